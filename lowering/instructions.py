"""Matrix instructions of each ISA: types and shapes. Facts of instruction sets, not of devices.

Sources: PTX ISA 8.0, table of ``mma.sync`` shapes; AMD RDNA 3/4 and CDNA 3 ISA guides, chapters on
WMMA and MFMA. On Vulkan the driver itself lists what it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from dialects.grouping import Matrices, MultiplyAdd

from .matrix_tiles import UNEVEN_ROWS
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
            if (row.a, row.b, _signless(row.acc)) == (a, b, _signless(acc)):
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


# wmma.mma.sync, which the compiler makes of gpu.subgroup_mma: (a, acc, shape, since); PTX ISA,
# section 9.7.14
_WMMA_SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_WMMA = (
    *((a, acc, shape, 70) for a, acc in (("f16", "f32"), ("f16", "f16")) for shape in _WMMA_SHAPES),
    *((a, "i32", shape, 72) for a in ("i8", "u8") for shape in _WMMA_SHAPES),
)
COOP_ELEMENTS = ("f16", "f32", "f64", "i8", "u8")  # operand types of gpu.subgroup_mma
# What the compiler lowers of gpu.subgroup_mma_elementwise without leaving the matrix form
_ARITHMETIC = ("addf", "subf", "mulf", "divf", "maxf", "minf", "negatef", "addi", "subi", "muli")
_ELEMENTWISE = {
    "cuda": ("addf", "mulf", "divf", "maxf", "minf"),
    "vulkan": ("addf", "subf", "mulf", "divf", "negatef", "addi", "subi"),
    "rocm": (*_ARITHMETIC, "divs", "divu", "negates"),  # each lane's vector, by vector arithmetic
}


def matrices(target: Target) -> Matrices:
    """What the target has for whole tiles: instructions by type and shape, elementwise ops."""
    return Matrices(
        instruction=partial(_instruction, target),
        obstacle=partial(_obstacle, target),
        one_layout=target.backend == "rocm",
    )


def instruction_named(target: Target, name: str) -> Instruction:
    """The target's instruction of that name, which others may have with another map of lanes."""
    return next(i for i in INSTRUCTIONS if i.name == name and _has(target, i))


def _instruction(target: Target, multiply: MultiplyAdd) -> tuple[str, tuple[int, ...]] | str:
    """Name and shape, or why there is none. A given shape must be exactly the instruction's."""
    missing = f"no matrix instruction for {multiply.text}"
    if multiply.shape is not None:
        return _exact(target, multiply) or missing
    found = native_instruction(target, multiply.a, multiply.b, multiply.acc)
    return (found.name, found.shape) if found is not None else missing


def _exact(target: Target, multiply: MultiplyAdd) -> tuple[str, tuple[int, ...]] | str | None:
    shape = multiply.shape
    assert shape is not None
    size = "x".join(map(str, shape))
    if target.backend == "vulkan":
        if target.facts.wave_widths is None:
            return "matrix instructions need a known wave width, use a facts file or a device"
        types = (multiply.a, multiply.b, _signless(multiply.acc))
        listed = any(
            (r.m, r.n, r.k) == shape
            and (r.a, r.b, _signless(r.acc)) == types
            and r.scope == "subgroup"
            for r in target.facts.native_matrix_configs or ()
        )
        return (f"coop_matrix_{size}", shape) if listed else None
    if target.backend == "rocm":
        types = (multiply.a, multiply.b, multiply.acc)
        fitting = (i for i in INSTRUCTIONS if i.types == types and i.shape == shape)
        found = next((i for i in fitting if _has(target, i)), None)
        return (found.name, shape) if found is not None else None
    version = re.match(r"sm_(\d+)", target.isa) if target.backend == "cuda" else None
    if version is None or multiply.a != multiply.b:
        return None
    m, n, k = shape
    for a, acc, has, since in _WMMA:
        if (a, acc, has) == (multiply.a, multiply.acc, shape) and int(version[1]) >= since:
            return f"wmma.mma.m{m}n{n}k{k}.{acc}.{a}", shape
    return None


def coop_tiles(target: Target, operand: str, accumulator: str) -> tuple[str, ...]:
    """Shapes of the tiles that are native in cooperative-matrix IR, ``16x16x16`` and the like."""
    configs = target.facts.native_matrix_configs or ()
    listed = ((r.m, r.n, r.k) for r in configs)
    shapes = dict.fromkeys([*_WMMA_SHAPES, *listed, *(i.shape for i in INSTRUCTIONS)])
    found = []
    for shape in shapes:
        multiply = MultiplyAdd(a=operand, b=operand, acc=accumulator, shape=shape)
        if operand in COOP_ELEMENTS and isinstance(_exact(target, multiply), tuple):
            found.append("x".join(map(str, shape)))
    return tuple(found)


def _obstacle(target: Target, use: str) -> str | None:
    if use == UNEVEN_ROWS:
        uneven = "rows of its workgroup memory are no multiple of 16 bytes"
        return None if target.backend == "rocm" else uneven
    if use in _ELEMENTWISE.get(target.backend, ()):
        return None
    return f"elementwise {use} has no native form on {target.backend}"


def _signless(accumulator: str) -> str:
    """Sums of 32-bit integers wrap alike with and without a sign; drivers name either."""
    return "i32" if accumulator == "u32" else accumulator
