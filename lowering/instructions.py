"""Matrix instructions of each ISA: types and shapes. Facts of instruction sets, not of devices.

Sources: PTX ISA 8.0, table of ``mma.sync`` shapes; AMD RDNA 3/4 and CDNA 3 ISA guides, chapters on
WMMA and MFMA. On Vulkan the driver itself lists what it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .target import Target


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """D[m,n] = A[m,k] * B[k,n] + C, its types, and the ISA versions that have it."""

    name: str
    shape: tuple[int, int, int]
    types: tuple[str, str, str]
    family: str
    since: int


def _nvidia(shape: tuple[int, int, int], a: str, acc: str, since: int) -> Instruction:
    m, n, k = shape
    return Instruction(
        name=f"mma.sync.m{m}n{n}k{k}.{acc}.{a}",
        shape=shape,
        types=(a, a, acc),
        family="sm",
        since=since,
    )


def _amd(name: str, shape: tuple[int, int, int], a: str, acc: str, family: str) -> Instruction:
    return Instruction(name=name, shape=shape, types=(a, a, acc), family=family, since=0)


INSTRUCTIONS = (
    _nvidia((16, 8, 16), "f16", "f32", 80),
    _nvidia((16, 8, 16), "f16", "f16", 80),
    _nvidia((16, 8, 16), "bf16", "f32", 80),
    _nvidia((16, 8, 32), "i8", "i32", 80),
    _nvidia((16, 8, 32), "u8", "i32", 80),
    _nvidia((16, 8, 32), "f8e4m3", "f32", 89),
    _nvidia((16, 8, 32), "f8e5m2", "f32", 89),
    *(
        _amd(f"wmma_{acc}_16x16x16_{a}", (16, 16, 16), a, acc, family)
        for family in ("gfx11", "gfx12")
        for a, acc in (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("i8", "i32"))
    ),
    *(
        _amd(f"mfma_{acc}_{m}x{m}x{k}_{a}", (m, m, k), a, acc, "gfx94")
        for m, k, a, acc in (
            (16, 16, "f16", "f32"),
            (16, 16, "bf16", "f32"),
            (16, 32, "i8", "i32"),
        )
    ),
)


SIMDS = 4  # a compute unit of GCN and CDNA, and a work-group processor of RDNA, has four
_UNIFIED_FILES = ("gfx90a", "gfx94", "gfx95")  # vector and accumulation registers in one file
_WIDE_FILES = ("gfx1100", "gfx1101", "gfx1151", "gfx12")


def has_unified_registers(isa: str) -> bool:
    """Whether accumulation registers are half of one file (CDNA 2 and 3 ISA guides)."""
    return isa.startswith(_UNIFIED_FILES)


def waves_by_registers(isa: str, wave: int, registers: int) -> int | None:
    """Waves of one SIMD that so many vector registers a lane leave room for; None when unknown.

    The register file of a SIMD and the unit of allocation are those of the ISA (LLVM's guide to the
    AMDGPU back end, code object V5, kernel descriptor; CDNA 3 ISA guide, section 3.6.4).
    """
    if has_unified_registers(isa):
        total, unit = 512, 8
    elif isa.startswith("gfx9"):
        total, unit = 256, 4
    elif isa.startswith(("gfx10", "gfx11", "gfx12")):
        total, unit = (1536, 24) if isa.startswith(_WIDE_FILES) else (1024, 16)
        if wave == 64:
            total, unit = total // 2, unit // 2
    else:
        return None
    return total // (-(-registers // unit) * unit) if registers else None


def native_instruction(target: Target, a: str, b: str, acc: str) -> Instruction | None:
    """The first instruction of the target for exactly these types, or None."""
    if target.backend == "vulkan":
        for row in target.facts.native_matrix_configs or ():
            if (row.a, row.b, row.acc) == (a, b, acc):
                shape = (row.m, row.n, row.k)
                name = f"coop_matrix_{row.m}x{row.n}x{row.k}"
                return Instruction(
                    name=name, shape=shape, types=(a, b, acc), family="spirv", since=0
                )
        return None
    for instruction in INSTRUCTIONS:
        if instruction.types == (a, b, acc) and _has(target, instruction):
            return instruction
    return None


def _has(target: Target, instruction: Instruction) -> bool:
    if target.backend == "cuda" and instruction.family == "sm":
        version = re.match(r"sm_(\d+)", target.isa)
        return version is not None and int(version[1]) >= instruction.since
    return target.backend == "rocm" and target.isa.startswith(instruction.family)
