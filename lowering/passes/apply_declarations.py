"""The pass ``apply-declarations``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

from dialects.codec import decode
from dialects.expressions import ceildiv

from ..candidate import CandidateInfo
from ..instructions import SIMDS, has_unified_registers
from ..ir import attribute_value, mlir, operations
from ..pipeline import Report
from ..target import Target, parse_target

FAST = "#arith.fastmath<fast>"  # contract, reassoc, arcp, afn, nnan, ninf, nsz


@dataclass(frozen=True, kw_only=True)
class ApplyDeclarations:
    """Put what the author declared on the device functions of each emitted module.

    ``module attributes {xpu.candidate = {limits = {min_resident = 2}, fast_math = true, ...}} {
    ... func.func @gemm() { ... arith.addf %a, %b : f32 ... } }`` for CUDA becomes
    ``... func.func @gemm() attributes {nvvm.minctasm = 2 : i32} { ... arith.addf %a, %b
    fastmath<fast> : f32 ... }``.
    """

    name: ClassVar[str] = "apply-declarations"
    target: str = "cpu"
    resolved: Target | None = field(default=None, repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        target = self.resolved or parse_target(self.target)
        for emitted in (o.operation for o in module.regions[0].blocks[0].operations):
            if "xpu.candidate" not in emitted.attributes:
                continue
            value: dict[str, Any] = attribute_value(emitted.attributes["xpu.candidate"])
            info = decode(CandidateInfo, value, where="xpu.candidate")
            for op in _device_operations(emitted):
                if op.name == "func.func":
                    _bound(op, info, target)
                if info.fast_math and "fastmath" in op.attributes:
                    op.attributes["fastmath"] = mlir.Attribute.parse(FAST, op.context)


def _device_operations(emitted: mlir.Operation) -> Iterator[mlir.Operation]:
    for executable in (o.operation for o in emitted.regions[0].blocks[0].operations):
        if executable.name.startswith("hal.executable"):
            yield from operations(executable)


def _bound(function: mlir.Operation, info: CandidateInfo, target: Target) -> None:
    """The block itself is in ``translation_info``; these are the bounds that go beyond it."""
    limits = info.limits
    if target.backend == "cuda":
        _put(function, "nvvm.minctasm", limits.min_resident)
        _put(function, "nvvm.maxnreg", limits.max_registers)
    elif target.backend == "rocm":
        if limits.min_resident and info.launch.block:
            waves = ceildiv(prod(info.launch.block), target.wave) * limits.min_resident
            simds = target.facts.simds_per_multiprocessor or SIMDS
            _put(function, "rocdl.waves_per_eu", ceildiv(waves, simds))
        if limits.max_registers:
            # of a unified file, the attribute counts one half and the back end may fill the other
            halves = 2 if has_unified_registers(target.isa) else 1
            count = mlir.StringAttr.get(str(max(limits.max_registers // halves, 1)))
            function.attributes["llvm_func_attrs"] = mlir.DictAttr.get({"amdgpu-num-vgpr": count})


def _put(function: mlir.Operation, name: str, value: int | None) -> None:
    if value is not None:
        type_ = mlir.IntegerType.get_signless(32)
        function.attributes[name] = mlir.IntegerAttr.get(type_, value)
