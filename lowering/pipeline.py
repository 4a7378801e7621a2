"""Runs our passes and the compiler's own in one of IREE's pass managers, by MLIR's textual form."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from dialects.declarations import Hold
from dialects.errors import Error, Failures, UsageError

from .ir import PassManager, diagnostic, mlir

# A value with brackets, commas or blanks stands in double quotes, a backslash before a quote in it.
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(rf"{_QUOTED}|.", re.S)
_PAIR = re.compile(rf'(?:{_QUOTED}|[^\s"])+', re.S)


@dataclass(frozen=True, kw_only=True)
class Unlowered:
    """A kernel that its author's hold lets go without any code for a target."""

    kernel: str
    reason: str
    holds: tuple[Hold, ...]


@dataclass(kw_only=True)
class Report:
    """What passes tell the caller: notes in order, each distinct one once, and errors.

    ``unlowered`` are the kernels that no body could serve and that a hold covers.
    """

    source: str
    notes: list[str] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    unlowered: list[Unlowered] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)

    def fail(self, error: Error) -> None:
        """Record a failure; the pass goes on, so that all offenders are named."""
        self.errors.append(error)


class Pass(Protocol):
    """A rewrite of a whole module. The fields of the dataclass are its options."""

    name: ClassVar[str]

    def run(self, module: mlir.Operation, report: Report) -> None:
        """Rewrite ``module`` in place; failures go to the report."""
        ...


@dataclass(frozen=True, kw_only=True)
class Printing:
    """IR dumps, by MLIR's own flags. The text goes to standard error, as in ``iree-opt``."""

    after_all: bool = False
    tree_dir: str | None = None


Item = Pass | str


def option_fields(cls: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The options of a pass; a field without ``repr`` is for callers in Python alone."""
    return {f.name: f for f in dataclasses.fields(cls) if f.repr}


def parse_pipeline(text: str, passes: Sequence[type[Any]]) -> list[Item]:
    """Split ``builtin.module(a,b{x=1},func.func(c))`` into our passes and the compiler's texts.

    Raises:
        UsageError: unbalanced brackets or quotes, one of our passes nested or used as an anchor, or
            an option that it does not have.
    """
    inner = text.strip()
    if inner.startswith("builtin.module(") and inner.endswith(")"):
        inner = inner[len("builtin.module(") : -1]
    known = {p.name: p for p in passes}
    items: list[Item] = []
    for part in _split(inner):
        name, brace, options = part.partition("{")
        if name.strip() in known:
            if brace and not options.endswith("}"):
                raise UsageError(f"pass '{part}': expected '}}' at the end of its options")
            items.append(_with_options(known[name.strip()], options.removesuffix("}")))
        elif part:
            for nested in re.findall(r"[\w.-]+", re.sub(r"\{.*?\}", "", part)):
                if nested in known:
                    raise UsageError(f"pass '{nested}' runs on the module, found '{part}'")
            items.append(part)
    return items


def _split(text: str) -> list[str]:
    """The parts between commas outside of brackets and quotes."""
    parts, depth, current = [], 0, ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == '"':
            raise UsageError(f"pass pipeline '{text}' has unbalanced quotes")
        depth += (token in "({[<") - (token in ")}]>")
        if depth < 0:
            break
        if token == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += token
    if depth != 0:
        raise UsageError(f"pass pipeline '{text}' has unbalanced brackets")
    return [*parts, current.strip()]


def _with_options(cls: type[Any], text: str) -> Pass:
    fields = option_fields(cls)
    values: dict[str, Any] = {}
    for pair in _PAIR.findall(text):
        key, equals, value = pair.partition("=")
        key = key.replace("-", "_")
        if key not in fields or not equals:
            have = ", ".join(fields) or "none"
            raise UsageError(f"pass '{cls.name}' has no option '{pair}', options are: {have}")
        values[key] = _option(cls, fields[key].type, key, _unquoted(value))
    return cls(**values)


def _option(cls: type[Any], type_: Any, key: str, value: str) -> Any:
    kind = type_ if isinstance(type_, str) else type_.__name__
    if kind == "int":
        if not re.fullmatch(r"-?[0-9]{1,18}", value):
            raise UsageError(f"pass '{cls.name}': {key} must be an integer, found '{value}'")
        return int(value)
    if kind == "bool":
        if value not in ("true", "false"):
            raise UsageError(f"pass '{cls.name}': {key} must be true or false, found '{value}'")
        return value == "true"
    return value


def _quoted(value: str) -> str:
    if re.fullmatch(r"[\w.:/+@%~^-]+", value, re.ASCII):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.S) if text.startswith('"') else text


def pipeline_text(items: Sequence[Item]) -> str:
    """The textual form that :func:`parse_pipeline` reads back."""
    return f"builtin.module({','.join(i if isinstance(i, str) else _spec(i) for i in items)})"


def _spec(item: Pass) -> str:
    pairs = []
    for field_ in option_fields(type(item)).values():
        value = getattr(item, field_.name)
        if value != field_.default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            pairs.append(f"{field_.name}={_quoted(text)}")
    return f"{item.name}{{{' '.join(pairs)}}}" if pairs else item.name


def run_pipeline(
    module: mlir.Module,
    items: Sequence[Item],
    report: Report,
    printing: Printing | None = None,
) -> None:
    """Run the passes in order, verifying between them.

    Raises:
        Error: what our passes reported, all of it; or the compiler's own diagnostic.
    """
    with module.context:
        manager = PassManager("builtin.module")
        manager.enable_verifier(True)
        raised: list[Exception] = []
        for item in items:
            if isinstance(item, str):
                _add_builtin(manager, item)
            else:
                manager.add(_guard(item, report, raised), name=item.name, argument=item.name)
        if printing is not None:
            _enable_printing(manager, printing)
        try:
            manager.run(module.operation)
        except mlir.MLIRError as error:
            if not raised and not report.errors:
                text, where = diagnostic(error, report.source)
                raise Error(f"pass pipeline failed: {text}", where=where) from None
        if raised:
            raise raised[0]
        if report.errors:
            raise report.errors[0] if len(report.errors) == 1 else Failures(report.errors)


def _add_builtin(manager: PassManager, text: str) -> None:
    try:
        manager.add(text)
    except ValueError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = [line.partition("error: ")[2] for line in lines if "error: " in line]
        reason = (said or lines or ["unknown"])[0]
        raise UsageError(f"pass '{text}': {reason}") from None


def _guard(
    item: Pass, report: Report, raised: list[Exception]
) -> Callable[[mlir.Operation, Any], None]:
    """Keep a Python exception from unwinding through the compiler: note it, fail, raise later."""

    def run(operation: mlir.Operation, handle: Any) -> None:
        try:
            item.run(operation, report)
        except Error as error:
            report.fail(error)
        except Exception as error:
            raised.append(error)
        if raised or report.errors:
            handle.signal_pass_failure()

    return run


def _check_directory(path: str) -> None:
    """The compiler only prints a line and goes on where it cannot write its dumps."""
    try:
        Path(path or "/dev/null").mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write IR dumps: {reason}", where=path) from None


def _enable_printing(manager: PassManager, printing: Printing) -> None:
    if not printing.after_all and printing.tree_dir is None:
        return
    options: dict[str, Any] = {"print_after_all": True, "print_before_all": False}
    if printing.tree_dir is not None:
        _check_directory(printing.tree_dir)
        options["tree_printing_dir_path"] = printing.tree_dir
    manager.enable_ir_printing(**options)
