"""The pass ``scan-launches``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dialects.launches import LaunchSite, pin_launches

from .. import attributes
from ..ir import functions, mlir, symbol
from ..launches import launch_sites
from ..pipeline import Report


@dataclass(frozen=True, kw_only=True)
class ScanLaunches:
    """Note on each kernel what its launch sites say of its block (seed section 1).

    ``func.func @f(...) attributes {xpu.kernel, ...}`` beside ``gpu.launch_func @gpu::@f ... threads
    in (%c128, %c1, %c1)`` gains ``xpu.launch = {sites = 1, threads = 128, block = [128, 1, 1]}``;
    a block that is no constant gives ``{sites = 1, unbounded = ["file:line:column"]}``.
    """

    name: ClassVar[str] = "scan-launches"
    elsewhere: tuple[LaunchSite, ...] = field(default=(), repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        kernels = {symbol(f): f for f in functions(module) if attributes.is_kernel(f)}
        sites = [*launch_sites(module, kernels, report.source), *self.elsewhere]
        for name, function in kernels.items():
            mine = [s for s in sites if s.kernel == name]
            if mine:
                attributes.put(function, "launch", pin_launches(mine))
