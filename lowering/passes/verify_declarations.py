"""The pass ``verify-declarations``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.errors import DeclarationError, Error

from .. import attributes, decoders
from ..ir import attribute_names, location, mlir, operations, symbol
from ..pipeline import Report


@dataclass(frozen=True, kw_only=True)
class VerifyDeclarations:
    """Check every ``xpu.*`` attribute of the module; the IR stays as it is.

    ``func.func @f(...) attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], ...}`` passes, and
    ``func.func private @d(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}``;
    ``xpu.nonsense`` or a function with ``xpu.dims`` but without ``xpu.kernel`` is refused.
    """

    name: ClassVar[str] = "verify-declarations"

    def run(self, module: mlir.Operation, report: Report) -> None:
        kernels = 0
        for op in operations(module):
            where = location(op, report.source)
            try:
                kernels += _declares_kernel(op, module, where)
            except Error as error:
                report.fail(type(error)(error.message, where=error.where or where))
        if not kernels and not report.errors:
            report.fail(
                DeclarationError("the module has no function with xpu.kernel", where=report.source)
            )


def _declares_kernel(op: mlir.Operation, module: mlir.Operation, where: str) -> bool:
    """Whether the op is a kernel whose declarations are right; declarations stand nowhere else."""
    declared = [n for n in attribute_names(op) if n.startswith("xpu.")]
    if op.name != "func.func" or op.parent != module:
        if declared:
            raise DeclarationError(
                f"{declared[0]} belongs on a function of the outermost module, found on '{op.name}'"
            )
        return False
    if declared == [decoders.ATTRIBUTE]:
        decoders.check_decoder(op)
        return False
    if declared and not attributes.is_kernel(op):
        raise DeclarationError(f"function '{symbol(op)}' has {declared[0]} but no xpu.kernel")
    if declared:
        attributes.declarations(op, where=where)
    return bool(declared)
