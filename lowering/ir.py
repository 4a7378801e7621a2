"""MLIR through IREE's bindings: the only importer of ``iree.compiler.ir``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from iree.compiler import ir as mlir
from iree.compiler.passmanager import PassManager

from dialects.errors import DeclarationError, ParseError

__all__ = ["PassManager", "mlir"]

_SPLIT_MARK = re.compile(r"^// -----.*$", re.M)
_DIAGNOSTIC = re.compile(r'error: "-":(\d+):(\d+): (.*)')
_LOCATION = re.compile(r'"-":(\d+):(\d+)')


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
    try:
        return mlir.Module.parse(text, into)
    except mlir.MLIRError as error:
        found = _DIAGNOSTIC.search(str(error))
        if found is None:
            raise ParseError(str(error).strip().splitlines()[-1], where=name) from None
        line, column, message = found.groups()
        raise ParseError(message.strip(), where=f"{name}:{line}:{column}") from None


def split_input(text: str) -> list[str]:
    """The parts between ``// -----`` lines, each padded so that its line numbers stay right."""
    parts, line = [], 0
    for part in _SPLIT_MARK.split(text):
        parts.append("\n" * line + part)
        line += part.count("\n")
    return parts


def location(op: mlir.Operation | mlir.OpView, name: str) -> str:
    """``name:line:column`` of an operation, as far as its location says."""
    found = _LOCATION.search(str(op.location))
    return f"{name}:{found[1]}:{found[2]}" if found else name


def functions(module: mlir.Operation) -> Iterator[mlir.Operation]:
    """The ``func.func`` ops of a module, outermost level only."""
    for op in list(module.regions[0].blocks[0].operations):
        if op.operation.name == "func.func":
            yield op.operation


def symbol(op: mlir.Operation) -> str:
    """The symbol name of an operation."""
    return mlir.StringAttr(op.attributes["sym_name"]).value


def affine_results(attribute: mlir.Attribute) -> tuple[int, ...] | None:
    """Dimension numbers of a projected permutation ``(d0, d1) -> (d1)``; None for other maps."""
    inner = re.fullmatch(r"affine_map<\(.*?\) -> \((.*)\)>", str(attribute))
    if inner is None:
        return None
    parts = [p.strip() for p in inner[1].split(",")] if inner[1].strip() else []
    if not all(re.fullmatch(r"d\d+", p) for p in parts):
        return None
    return tuple(int(p[1:]) for p in parts)


def attribute_value(attribute: mlir.Attribute) -> Any:
    """The Python value of an attribute made of dictionaries, arrays and scalars.

    Raises:
        DeclarationError: an attribute of another kind.
    """
    if isinstance(attribute, mlir.UnitAttr):
        return True
    if isinstance(attribute, mlir.BoolAttr):
        return mlir.BoolAttr(attribute).value
    if isinstance(attribute, mlir.StringAttr):
        return mlir.StringAttr(attribute).value
    if isinstance(attribute, mlir.IntegerAttr):
        return mlir.IntegerAttr(attribute).value
    if isinstance(attribute, mlir.FloatAttr):
        return mlir.FloatAttr(attribute).value
    if isinstance(attribute, mlir.ArrayAttr):
        return [attribute_value(a) for a in mlir.ArrayAttr(attribute)]
    if isinstance(attribute, mlir.DictAttr):
        named = mlir.DictAttr(attribute)
        return {named[i].name: attribute_value(named[i].attr) for i in range(len(named))}
    raise DeclarationError(f"attribute '{attribute}' is no dictionary, list, string or number")


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
