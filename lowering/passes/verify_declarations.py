"""The pass ``verify-declarations``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.errors import DeclarationError, Error

from .. import attributes
from ..ir import functions, location, mlir, symbol
from ..pipeline import Report


@dataclass(frozen=True, kw_only=True)
class VerifyDeclarations:
    """Check every ``xpu.*`` attribute of the module; the IR stays as it is.

    ``func.func @f(...) attributes {xpu.kernel, xpu.dims = ["M", "N", "K"], ...}`` passes,
    ``xpu.nonsense`` or a function with ``xpu.dims`` but without ``xpu.kernel`` is refused.
    """

    name: ClassVar[str] = "verify-declarations"

    def run(self, module: mlir.Operation, report: Report) -> None:
        kernels = 0
        for function in functions(module):
            where = location(function, report.source)
            names = [k if isinstance(k, str) else k.name for k in function.attributes]
            declared = [n for n in names if n.startswith("xpu.")]
            if not declared:
                continue
            kernels += 1
            try:
                attributes.declarations(function, where=where)
                if not attributes.is_kernel(function):
                    raise DeclarationError(
                        f"function '{symbol(function)}' has {declared[0]} but no xpu.kernel",
                        where=where,
                    )
            except Error as error:
                report.fail(error)
        if not kernels:
            report.fail(
                DeclarationError("the module has no function with xpu.kernel", where=report.source)
            )
