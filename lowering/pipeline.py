"""Runs our passes and the compiler's own in one of IREE's pass managers, by MLIR's textual form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from dialects.errors import Error, Failures, UsageError

from .ir import PassManager, mlir


@dataclass(kw_only=True)
class Report:
    """What passes tell the caller: notes in order, each distinct one once, and errors."""

    source: str
    notes: list[str] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)

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


def parse_pipeline(text: str, passes: Sequence[type[Any]]) -> list[Item]:
    """Split ``builtin.module(a,b{x=1},func.func(c))`` into our passes and the compiler's texts.

    Raises:
        UsageError: unbalanced brackets, or an option that one of our passes does not have.
    """
    inner = text.strip()
    if inner.startswith("builtin.module(") and inner.endswith(")"):
        inner = inner[len("builtin.module(") : -1]
    known = {p.name: p for p in passes}
    items: list[Item] = []
    for part in _split(inner, ","):
        name, _, options = part.partition("{")
        if name.strip() in known:
            items.append(_with_options(known[name.strip()], options.removesuffix("}")))
        elif part:
            items.append(part)
    return items


def _split(text: str, mark: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "({[<") - (character in ")}]>")
        if depth < 0:
            break
        if character == mark and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    if depth != 0:
        raise UsageError(f"pass pipeline '{text}' has unbalanced brackets")
    return [*parts, current.strip()]


def _with_options(cls: type[Any], text: str) -> Pass:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for pair in text.split():
        key, equals, value = pair.partition("=")
        key = key.replace("-", "_")
        if key not in fields or not equals:
            have = ", ".join(fields) or "none"
            raise UsageError(f"pass '{cls.name}' has no option '{pair}', options are: {have}")
        values[key] = _option(cls, fields[key].type, key, value)
    return cls(**values)


def _option(cls: type[Any], type_: Any, key: str, value: str) -> Any:
    kind = type_ if isinstance(type_, str) else type_.__name__
    if kind == "int":
        if not value.lstrip("-").isdigit():
            raise UsageError(f"pass '{cls.name}': {key} must be an integer, found '{value}'")
        return int(value)
    if kind == "bool":
        if value not in ("true", "false"):
            raise UsageError(f"pass '{cls.name}': {key} must be true or false, found '{value}'")
        return value == "true"
    return value


def pipeline_text(items: Sequence[Item]) -> str:
    """The textual form that :func:`parse_pipeline` reads back."""
    return f"builtin.module({','.join(i if isinstance(i, str) else _spec(i) for i in items)})"


def _spec(item: Pass) -> str:
    fields = dataclasses.fields(item)  # type: ignore[arg-type]
    pairs = [
        f"{f.name}={str(v).lower() if isinstance(v, bool) else v}"
        for f in fields
        if f.init and (v := getattr(item, f.name)) != f.default and isinstance(v, str | int)
    ]
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
                text = str(error).strip().splitlines()[-1]
                raise Error(f"pass pipeline failed: {text}", where=report.source) from None
        if raised:
            raise raised[0]
        if report.errors:
            raise report.errors[0] if len(report.errors) == 1 else Failures(report.errors)


def _add_builtin(manager: PassManager, text: str) -> None:
    try:
        manager.add(text)
    except ValueError as error:
        reason = str(error).strip().splitlines()
        raise UsageError(f"pass '{text}': {reason[-1] if reason else 'unknown'}") from None


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


def _enable_printing(manager: PassManager, printing: Printing) -> None:
    if not printing.after_all and printing.tree_dir is None:
        return
    options: dict[str, Any] = {"print_after_all": True, "print_before_all": False}
    if printing.tree_dir is not None:
        options["tree_printing_dir_path"] = printing.tree_dir
    manager.enable_ir_printing(**options)
