"""Matrix instructions of each ISA: types, shapes, rates. Facts of instruction sets, not of devices.

Sources: PTX ISA 8.0, table of ``mma.sync`` shapes; AMD RDNA 3/4 and CDNA 3 ISA guides, chapters on
WMMA and MFMA. On Vulkan the driver itself lists what it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dialects.operands import OperandGroup
from dialects.types import element_type

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


# Multiply-adds of one multiprocessor in a clock, dense: upper bounds over every part with the ISA,
# so that no true reading is refused. Sources: CUDA C++ programming guide, table of arithmetic
# throughput; white papers of each generation for matrix units; RDNA 3/4 and CDNA 3 ISA guides; two
# FMA pipes of the widest register on x86-64, two of multiply and two of add at 128 bits.
# (compute capability, matrix multiply-adds of 16-bit types); 8-bit types double it.
_SM_MATRIX = ((100, 4096), (90, 2048), (80, 1024))
_SM_BELOW = {86: 512, 87: 1024, 89: 512}  # parts between, whose matrix units are smaller
_SM_LANES = 128
_GFX_MATRIX = (("gfx94", 1024), ("gfx12", 512), ("gfx11", 256))
_GFX_LANES = 128  # packed or dual-issue f32
_X86_F32 = {"x86-64-v4": 32, "x86-64-v3": 16, "x86-64-v2": 16, "x86-64": 16}


def macs_per_clock(target: Target, group: OperandGroup) -> int | None:
    """The most that one multiprocessor does in a clock, or None where nothing bounds it."""
    bits = element_type(group.a).bits
    if group.tier == "native":
        sixteen = _matrix(target)
        if sixteen is None or bits not in (8, 16):
            return None
        return sixteen * 16 // bits
    if group.acc not in ("f16", "bf16", "f32"):
        return None  # narrow integers have dot products, f64 differs by part
    if target.backend == "cpu":
        return _X86_F32.get(target.isa) if bits == 32 else None
    lanes = {"cuda": _SM_LANES, "rocm": _GFX_LANES}.get(target.backend)
    return None if lanes is None else 2 * lanes if bits == 16 else lanes


def _matrix(target: Target) -> int | None:
    if target.backend == "rocm":
        return next((rate for isa, rate in _GFX_MATRIX if target.isa.startswith(isa)), None)
    version = re.match(r"sm_(\d+)", target.isa)
    if target.backend != "cuda" or version is None:
        return None
    number = int(version[1])
    known = (rate for least, rate in _SM_MATRIX if number >= least)
    return _SM_BELOW.get(number) or next(known, None)
