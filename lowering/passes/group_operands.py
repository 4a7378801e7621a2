"""The pass ``group-operands``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.errors import Error
from dialects.operands import Contraction

from .. import attributes
from ..contractions import read_contraction
from ..ir import functions, location, mlir, symbol
from ..pipeline import Report


@dataclass(frozen=True, kw_only=True)
class GroupOperands:
    """Read which operands meet in the multiply-accumulate of each kernel.

    ``func.func @f(...) attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]}`` gains
    ``xpu.contraction = {a = {name = "a", type = "f16", dims = ["M", "K"]}, b = ..., ...}``.
    Named ops must have been generalized (``func.func(linalg-generalize-named-ops)``).
    """

    name: ClassVar[str] = "group-operands"

    def run(self, module: mlir.Operation, report: Report) -> None:
        for function in functions(module):
            if not attributes.is_kernel(function):
                continue
            where = location(function, report.source)
            try:
                contraction = _read(function, where)
            except Error as error:
                report.fail(error)
                continue
            attributes.put(function, "contraction", contraction)


def _read(function: mlir.Operation, where: str) -> Contraction:
    declared = attributes.declarations(function, where=where)
    try:
        return read_contraction(function, declared.dims)
    except Error as error:
        raise type(error)(f"kernel '{symbol(function)}': {error.message}", where=where) from None
