"""Matrix instructions of each ISA: types, shapes, rates. Facts of instruction sets, not of devices.

Sources: PTX ISA 8.0, table of ``mma.sync`` shapes; AMD RDNA 3/4 and CDNA 2/3/4 ISA guides, chapters
on WMMA and MFMA. On Vulkan the driver itself lists what it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dialects.grouping import Matrices, MultiplyAdd
from dialects.operands import OperandGroup
from dialects.types import element_type

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


def _amd(
    family: str, kind: str, shape: tuple[int, int, int], a: str, acc: str, spelt: str | None = None
) -> Instruction:
    """``spelt`` is the operand type in the mnemonic, where it is not called like ours."""
    m, n, k = shape
    return Instruction(
        name=f"{kind}_{acc}_{m}x{n}x{k}_{spelt or a}",
        shape=shape,
        types=(a, a, acc),
        family=family,
        since=0,
    )


def _wmma(family: str) -> tuple[Instruction, ...]:
    """RDNA 3 and RDNA 4 ISA guides. Each takes a wave of 32."""
    shape = (16, 16, 16)
    return (
        _amd(family, "wmma", shape, "f16", "f32"),
        _amd(family, "wmma", shape, "bf16", "f32"),
        _amd(family, "wmma", shape, "f16", "f16"),
        _amd(family, "wmma", shape, "i8", "i32", "iu8"),
        _amd(family, "wmma", shape, "u8", "i32", "iu8"),
    )


def _mfma(family: str, k: int, k8: int) -> tuple[Instruction, ...]:
    """CDNA ISA guides. ``k`` and ``k8`` are the depth of a 16x16 product of 16-bit and
    of 8-bit operands; a 32x32 one is half as deep. Each takes a wave of 64.
    """
    types = (("f16", "f32", k), ("bf16", "f32", k), ("i8", "i32", k8))
    return (
        *(
            _amd(family, "mfma", (m, m, depth * 16 // m), a, acc)
            for a, acc, depth in types
            for m in (16, 32)
        ),
        _amd(family, "mfma", (16, 16, 4), "f32", "f32"),
    )


INSTRUCTIONS = (
    _nvidia((16, 8, 16), "f16", "f32", 80),
    _nvidia((16, 8, 16), "f16", "f16", 80),
    _nvidia((16, 8, 16), "bf16", "f32", 80),
    _nvidia((16, 8, 32), "i8", "i32", 80),
    _nvidia((16, 8, 32), "u8", "i32", 80),
    _nvidia((16, 8, 32), "f8e4m3", "f32", 89),
    _nvidia((16, 8, 32), "f8e5m2", "f32", 89),
    *_wmma("gfx110"),
    *_wmma("gfx115"),
    *_wmma("gfx120"),
    *_mfma("gfx90a", 16, 16),
    *_mfma("gfx94", 16, 32),
    *_mfma("gfx950", 32, 64),
    *_mfma("gfx950", 16, 32)[:-1],
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


def coop_matrix_name(m: int, n: int, k: int) -> str:
    """What notes and manifests call a cooperative-matrix config, which has no mnemonic."""
    return f"coop_matrix_{m}x{n}x{k}"


def native_instruction(target: Target, a: str, b: str, acc: str) -> Instruction | None:
    """The first instruction of the target for exactly these types, or None."""
    if target.backend == "vulkan":
        row = next(iter(target.facts.matrix_configs(a, b, acc)), None)
        if row is None:
            return None
        shape = (row.m, row.n, row.k)
        name = coop_matrix_name(*shape)
        return Instruction(name=name, shape=shape, types=(a, b, acc), family="spirv", since=0)
    return next(iter(native_instructions(target, (a, b, acc))), None)


def native_instructions(target: Target, types: tuple[str, str, str]) -> list[Instruction]:
    """Every instruction of the ISA for exactly these types (A, B, accumulator)."""
    return [i for i in INSTRUCTIONS if i.types == types and _has(target, i)]


def _has(target: Target, instruction: Instruction) -> bool:
    if instruction.family == "sm":
        return (target.compute_capability or 0) >= instruction.since
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
    if target.backend == "vulkan":
        if target.facts.wave_widths is None:
            return "matrix instructions need a known wave width, use a facts file or a device"
        configs = target.facts.matrix_configs(multiply.a, multiply.b, multiply.acc)
        listed = any((r.m, r.n, r.k) == shape for r in configs)
        return (coop_matrix_name(*shape), shape) if listed else None
    if target.backend == "rocm":
        types = (multiply.a, multiply.b, multiply.acc)
        fitting = (i for i in INSTRUCTIONS if i.types == types and i.shape == shape)
        found = next((i for i in fitting if _has(target, i)), None)
        return (found.name, shape) if found is not None else None
    capability = target.compute_capability
    if capability is None or multiply.a != multiply.b:
        return None
    m, n, k = shape
    for a, acc, has, since in _WMMA:
        if (a, acc, has) == (multiply.a, multiply.acc, shape) and capability >= since:
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
    number = target.compute_capability
    if number is None:
        return None
    known = (rate for least, rate in _SM_MATRIX if number >= least)
    return _SM_BELOW.get(number) or next(known, None)
