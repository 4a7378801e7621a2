"""Why a mutant of a kernel that decodes blocks is the same: see :mod:`equivalent_mutants`."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

import numpy as np

from emulated_ir import Program, Step
from emulated_launch import Case, emulated
from emulated_mutants import Mutant
from kernel_emulator import Values
from program_properties import is_constant, multiples, readers


def scaled_to_zero(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """The address of a block whose scale the same condition makes 0, no further than before."""
    step = mutant.step
    if step.name != "arith.select" or mutant.operand != 2 or not mutant.constant:
        return False
    loads = _multiplied_by_zero(case.program, step)
    if not loads:
        return False
    for shape in sizes:
        before, after = (
            _furthest(case, program, shape, loads, step.reads[0])
            for program in (case.program, mutant.program)
        )
        if after > before:
            return False
    return True


def _multiplied_by_zero(program: Program, address: Step) -> list[Step]:
    """The loads that an address leads to, if integers times a scale of 0 are all that is left."""
    made = {number: step for step in program.steps() for number in step.writes}
    zeros = {n for n, s in made.items() if s.attributes.get("value") == 0}
    tainted, scales, loads = set(address.writes), set[int](), []
    for step in program.steps():
        if not tainted & set(step.reads):
            continue
        if step.name == "arith.select" and step.reads[0] == address.reads[0]:
            if step.reads[2] not in zeros:
                return []
            scales.update(step.writes)
            continue
        if step.name == "arith.mulf" and scales & set(step.reads):
            (other,) = set(step.reads) - scales
            if made[other].name != "arith.sitofp":
                return []
            continue
        if not step.writes or step.bodies:
            return []
        if step.name == "memref.load":
            loads.append(step)
        tainted.update(step.writes)
    return loads if scales else []


def _furthest(
    case: Case, program: Program, shape: Sequence[int], loads: Sequence[Step], inside: int
) -> int:
    """The last cell that is read where a condition does not hold."""
    last = [-1]

    def see(step: Step, values: Values) -> None:
        if any(step is load for load in loads):
            index, condition = values[step.reads[1]], values[inside]
            assert isinstance(index, np.ndarray)
            assert isinstance(condition, np.ndarray)
            index, condition = np.broadcast_arrays(index, condition)
            last.append(int(index[~condition].max(initial=0)))

    emulated(case, shape, program=program, watch=see)
    return max(last)


def same_word(case: Case, mutant: Mutant, _: object) -> bool:
    """A place within a word that is divided by the word's size: of all that it can be."""
    if mutant.step.name != "arith.addi" or mutant.operand != 1 or not mutant.constant:
        return False
    uses = readers(case.program, mutant.step.writes[0])
    known = multiples(case)
    if any(s.name != "arith.divui" or s.reads[0] not in mutant.step.writes for s in uses):
        return False
    unit = known[mutant.step.reads[0]]
    sizes = [known[s.reads[1]] for s in uses]  # constants are multiples of themselves
    if not unit or not all(is_constant(case, s.reads[1]) for s in uses):
        return False
    return all(
        (at + mutant.old) // size == (at + mutant.value) // size
        for size in sizes
        for at in range(0, lcm(unit, size), unit)
    )
