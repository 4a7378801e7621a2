"""Matrix instructions of an artifact by the type they sum in, so that each group has its own count.

A kernel may multiply one group of tiles natively and another not: a total would not tell which.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from dialects.operands import OperandGroup
from dialects.types import signless

from .spirv import COOPERATIVE_MULTIPLY_ADD, spirv_instructions, spirv_words

_TYPE_INT, _TYPE_FLOAT, _TYPE_MATRIX = 21, 22, 4456  # SPIR-V 1.6, section 3; KHR_cooperative_matrix
# the type of the sum comes first: .m16n16k16.f32.f32, .m16n8k16.f32.f16.f16.f32, .s32.s8.s8.s32
_PTX = re.compile(r"\b(?:wgmma\.mma_async|wmma\.mma|mma)\.[\w.:]*?m\d+n\d+k\d+\.(\w+)\.")
_PTX_TYPES: dict[str, str] = {"s32": "i32"}


def sums_by_type(backend: str, codes: Sequence[bytes], *, where: str) -> Counter[str] | None:
    """How many instructions sum in each type, by our names; None where that cannot be read.

    ``codes`` are all code objects of a candidate, as totals are of all its kernels.

    Raises:
        FormatError: SPIR-V that is cut off.
    """
    read = {"cuda": _ptx, "vulkan": _spirv}.get(backend)
    return sum((read(code, where) for code in codes), Counter[str]()) if read else None


def _ptx(code: bytes, where: str) -> Counter[str]:
    found: list[str] = _PTX.findall(code.decode(errors="replace"))
    return Counter([_PTX_TYPES.get(t, t) for t in found])


def _spirv(code: bytes, where: str) -> Counter[str]:
    scalars: dict[int, str] = {}
    matrices: dict[int, str] = {}
    sums: Counter[str] = Counter()
    for opcode, operands in spirv_instructions(spirv_words(code, where=where), where=where):
        if opcode in (_TYPE_INT, _TYPE_FLOAT):
            scalars[operands[0]] = f"{'i' if opcode == _TYPE_INT else 'f'}{operands[1]}"
        elif opcode == _TYPE_MATRIX:
            matrices[operands[0]] = scalars.get(operands[1], "")
        elif opcode == COOPERATIVE_MULTIPLY_ADD:
            sums[matrices.get(operands[0], "")] += 1
    return sums


def count_groups(
    groups: Sequence[OperandGroup], total: int | None, sums: Counter[str] | None
) -> tuple[OperandGroup, ...]:
    """The groups with their counts; null where an instruction could be another group's.

    Groups of one tier share the total unless they sum in types of their own.
    """
    native = {signless(g.acc) for g in groups if g.tier == "native"}
    if len(groups) == 1 or not native:
        return tuple(replace(g, count=total) for g in groups)

    def count(group: OperandGroup) -> int | None:
        acc = signless(group.acc)
        if group.tier == "software" and acc in native:
            return None
        if sums is None:
            return total if group.tier == "native" else None
        return sums[acc]

    return tuple(replace(g, count=count(g)) for g in groups)
