"""MLIR through IREE's bindings: the only importer of ``iree.compiler.ir``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from iree.compiler import ir as mlir
from iree.compiler.passmanager import PassManager

from dialects.errors import DeclarationError, ParseError

__all__ = ["PassManager", "mlir"]

MAX_NESTING = 200  # brackets; the parser recurses, and its stack is the process's own

_SPLIT_MARK = re.compile(r"^// -----.*$", re.M)
_DIAGNOSTIC = re.compile(r'error: "-":(\d+):(\d+): (.*)')
_LOCATION = re.compile(r'"([^"]*)":(\d+):(\d+)')
_TOKEN = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|->|=>|[<>]=|[()<>\[\]{}]')
_LOCATION_ATTRIBUTE = re.compile(r"\bloc\(")
_ESCAPE = re.compile(rb'\\(?:[\\"nt]|([0-9A-Fa-f]{2}))')


def context() -> mlir.Context:
    """A fresh context with IREE's dialects; single-threaded, so that IR can be printed per pass."""
    result = mlir.Context()
    result.enable_multithreading(False)
    return result


def parse_module(text: str, name: str, into: mlir.Context) -> mlir.Module:
    """Parse and verify ``text``; ``name`` is what diagnostics call it.

    Raises:
        ParseError: with the position in ``name`` and the compiler's own words.
    """
    _check_text(text, name)
    try:
        return mlir.Module.parse(text, into)
    except mlir.MLIRError as error:
        message, where = diagnostic(error, name)
        raise ParseError(message, where=where) from None


def _check_text(text: str, name: str) -> None:
    """Refuse what the parser or its bindings could not report: the process would end."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ParseError("is no valid Unicode text", where=name) from None
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token[0] == '"' and not _is_utf8(token):
            raise ParseError("a string is no UTF-8 text", where=_line(text, found.start(), name))
        if len(token) == 1:
            depth = depth + 1 if token in "([{<" else max(depth - 1, 0)
        if depth > MAX_NESTING:
            where = _line(text, found.start(), name)
            raise ParseError(f"nests deeper than {MAX_NESTING} brackets", where=where)


def _is_utf8(literal: str) -> bool:
    """Whether the bytes of a string literal are, with its escapes taken for what they mean."""
    if "\\" not in literal:
        return True
    content = _ESCAPE.sub(lambda e: bytes([int(e[1], 16)]) if e[1] else b"?", literal.encode())
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _line(text: str, position: int, name: str) -> str:
    return f"{name}:{text.count(chr(10), 0, position) + 1}"


def diagnostic(error: Exception, name: str) -> tuple[str, str]:
    """The first message of a compiler's error, and where it points to in ``name``."""
    found = _DIAGNOSTIC.search(str(error))
    if found is None:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return (lines[-1] if lines else "no diagnostic"), name
    line, column, message = found.groups()
    return message.strip(), f"{name}:{line}:{column}"


def split_input(text: str) -> list[str]:
    """The parts between ``// -----`` lines, each padded so that its line numbers stay right."""
    parts, line = [], 0
    for part in _SPLIT_MARK.split(text):
        parts.append("\n" * line + part)
        line += part.count("\n")
    return parts


def location(op: mlir.Operation | mlir.OpView, name: str) -> str:
    """``name:line:column`` of an operation, or its author's own ``loc``, as far as it says."""
    found = _LOCATION.search(str(op.location))
    if found is None:
        return name
    file = name if found[1] == "-" else found[1]
    return f"{file}:{found[2]}:{found[3]}"


def functions(module: mlir.Operation) -> Iterator[mlir.Operation]:
    """The ``func.func`` ops of a module, outermost level only."""
    for op in list(module.regions[0].blocks[0].operations):
        if op.operation.name == "func.func":
            yield op.operation


def operations(module: mlir.Operation) -> list[mlir.Operation]:
    """The module's op and every op in it, in order."""
    found: list[mlir.Operation] = []

    def visit(op: mlir.Operation) -> mlir.WalkResult:
        found.append(op.operation)
        return mlir.WalkResult.ADVANCE

    module.walk(visit, mlir.WalkOrder.PRE_ORDER)
    return found


def symbol(op: mlir.Operation) -> str:
    """The symbol name of an operation."""
    return mlir.StringAttr(op.attributes["sym_name"]).value


def symbol_reference(op: mlir.Operation, name: str) -> str:
    """The last part of a symbol reference: ``f`` of ``@kernels::@f``."""
    return symbol_path(op.attributes[name])[-1]


def symbol_path(attribute: mlir.Attribute) -> list[str]:
    """The parts of a symbol reference, outermost first."""
    if isinstance(attribute, mlir.FlatSymbolRefAttr):
        return [mlir.FlatSymbolRefAttr(attribute).value]
    return list(mlir.SymbolRefAttr(attribute).value)


def attribute_names(op: mlir.Operation) -> list[str]:
    """Names of all attributes of an operation."""
    return [k if isinstance(k, str) else k.name for k in op.attributes]


def affine_results(attribute: mlir.Attribute) -> tuple[int, ...] | None:
    """Dimension numbers of a projected permutation ``(d0, d1) -> (d1)``; None for other maps."""
    inner = re.fullmatch(r"affine_map<\(.*?\) -> \((.*)\)>", str(attribute))
    if inner is None:
        return None
    parts = [p.strip() for p in inner[1].split(",")] if inner[1].strip() else []
    if len(set(parts)) != len(parts) or not all(re.fullmatch(r"d\d+", p) for p in parts):
        return None
    return tuple(int(p[1:]) for p in parts)


def attribute_value(attribute: mlir.Attribute) -> Any:
    """The Python value of an attribute made of dictionaries, arrays and scalars.

    Raises:
        DeclarationError: an attribute of another kind.
    """
    # the bindings end the process when they are to hand out a location in a dictionary
    if _LOCATION_ATTRIBUTE.search(_TOKEN.sub(_blank_string, str(attribute))):
        raise DeclarationError(f"{_shown(attribute)} holds a location")
    try:
        return _value(attribute)
    except RecursionError:
        raise DeclarationError("an attribute nests too deep") from None


def value_at(named: mlir.Operation | mlir.Attribute, name: str) -> Any:
    """The Python value of one attribute of an operation or dictionary."""
    attributes = named.attributes if isinstance(named, mlir.Operation) else named
    try:
        attribute = attributes[name]
    except TypeError:  # the bindings cannot hand a location out
        raise DeclarationError(f"attribute '{name}' is a location") from None
    return attribute_value(attribute)


def _blank_string(found: re.Match[str]) -> str:
    return '""' if found[0][0] == '"' else found[0]


def _shown(attribute: mlir.Attribute) -> str:
    text = str(attribute)
    return f"attribute '{text if len(text) <= 60 else text[:57] + '...'}'"


def _value(attribute: mlir.Attribute) -> Any:
    if isinstance(attribute, mlir.UnitAttr):
        return True
    if isinstance(attribute, mlir.BoolAttr):
        return mlir.BoolAttr(attribute).value
    if isinstance(attribute, mlir.StringAttr):
        return mlir.StringAttr(attribute).value
    if isinstance(attribute, mlir.FlatSymbolRefAttr):
        return mlir.FlatSymbolRefAttr(attribute).value
    if isinstance(attribute, mlir.IntegerAttr):
        return mlir.IntegerAttr(attribute).value
    if isinstance(attribute, mlir.FloatAttr):
        return mlir.FloatAttr(attribute).value
    if isinstance(attribute, mlir.ArrayAttr):
        return [_value(a) for a in mlir.ArrayAttr(attribute)]
    if isinstance(attribute, mlir.DictAttr):
        named = mlir.DictAttr(attribute)
        return {named[i].name: _value(named[i].attr) for i in range(len(named))}
    raise DeclarationError(f"{_shown(attribute)} is no dictionary, list, string or number")


def to_attribute(value: Any) -> mlir.Attribute:
    """The attribute of a JSON-like value; None entries of a dictionary are left out."""
    if isinstance(value, bool):
        return mlir.BoolAttr.get(value)
    if isinstance(value, int):
        return mlir.IntegerAttr.get(mlir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return mlir.FloatAttr.get_f64(value)
    if isinstance(value, str):
        return mlir.StringAttr.get(value)
    if isinstance(value, list | tuple):
        return mlir.ArrayAttr.get([to_attribute(v) for v in value])
    return mlir.DictAttr.get({k: to_attribute(v) for k, v in value.items() if v is not None})
