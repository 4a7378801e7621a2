"""Why a mutant that no launch tells from its original is the same kernel.

Each reason is a property of the program that is looked up, so that it holds for whatever is emitted
next and for sizes that were not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

import numpy as np

from emulated_ir import Program, Step
from emulated_launch import Case, emulated
from emulated_memory import EmulatorError, Memory
from emulated_mutants import Mutant
from equivalent_blocks import same_word, scaled_to_zero
from kernel_emulator import Values
from program_properties import (
    Trace,
    constant_name,
    is_constant,
    least_sizes,
    least_values,
    multiples,
    reached,
    readers,
    units,
)


def reason(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> str | None:
    """The first reason that holds, or None. ``sizes`` are of the launches that are looked at."""

    def holds(property_: Callable[[Case, Mutant, Sequence[Sequence[int]]], bool]) -> bool:
        try:
            return property_(case, mutant, sizes)
        except EmulatorError:
            return False

    return next((text for text, property_ in _REASONS.items() if holds(property_)), None)


def copied_unit(case: Case, step: Step) -> int:
    """Elements that are copied at a time of what a step's results lead to; 1 where it is bytes."""
    c, needs = case.contraction, case.needs.alignment or {}
    blocks = {i for i, o in enumerate(c.operands) if o.source is not None}
    memories = {
        s.writes[0]
        for s in case.program.steps()
        if s.name == "hal.interface.binding.subspan" and s.attributes["binding"] in blocks
    }
    if any(memories & set(each.reads) for each in reached(case.program, step)):
        return 1
    dense = [o for o in c.operands if o.source is None]
    names = {name for o in dense for name in (*o.dims, *o.strides)}
    return gcd(*(need for name, need in needs.items() if name in names)) or 1


def _unread(case: Case, mutant: Mutant, _: object) -> bool:
    read = {number for step in case.program.steps() for number in step.reads}
    return bool(mutant.step.writes) and not read & set(mutant.step.writes)


def _never_less(case: Case, mutant: Mutant, _: object) -> bool:
    """The other operand grows with the sizes, so that the smallest launch has its least value."""
    if mutant.step.name != "arith.maxui" or mutant.operand != 1 or not mutant.constant:
        return False
    other = mutant.step.reads[0]
    return least_values(case)[other] >= max(mutant.value, mutant.old)


def _stand_in(case: Case, mutant: Mutant, _: object) -> bool:
    """The address of a load whose value the same condition drops, within the least operand."""
    step = mutant.step
    if step.name != "arith.select" or mutant.operand != 2 or not mutant.constant:
        return False
    load, *more = readers(case.program, step.writes[0])
    if more or load.name != "memref.load" or load.reads[1:] != step.writes:
        return False
    (chosen,) = readers(case.program, load.writes[0])
    dropped = chosen.name == "arith.select" and chosen.reads[:2] == (step.reads[0], *load.writes)
    return dropped and mutant.value < _least_units(case, load)


def _least_units(case: Case, load: Step) -> int:
    """Units that its buffer has at least; a load inside the loop over K is met with a K alone."""
    c, sizes = case.contraction, least_sizes(case)
    found = []
    for k in (0, units(case).get(c.k, 1)):
        sizes[c.dims.index(c.k)] = k
        run = emulated(case, sizes)
        memory = run.values[load.reads[0]]
        assert isinstance(memory, Memory)
        (binding,) = (
            s.attributes["binding"] for s in case.program.steps() if s.writes == load.reads[:1]
        )
        found.append(-(-run.launch.spans[binding] // memory.cell))
    return min(found) if load in case.program.block.steps else found[-1]


def _same_of_all_lanes(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """It follows from the lane's number alone, and no lane's differs."""
    step = mutant.step
    if not step.writes or not mutant.constant or not _of_the_lane(case, step.writes):
        return False
    before, after = (
        emulated(case, sizes[0], program=p).values[step.writes[0]]
        for p in (case.program, mutant.program)
    )
    return isinstance(before, np.ndarray) and np.array_equal(before, np.asarray(after))


def _same_unit(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """Wherever a value differs it is an aligned one and less than a unit more: cut off later.

    Lanes that have nothing to copy may differ by more: their guard is the copy's own.
    """
    unit = copied_unit(case, mutant.step)
    if unit == 1 or not mutant.constant:
        return False
    for shape in sizes:
        before, after = Trace(), Trace()
        values = emulated(case, shape, watch=before.see).values
        emulated(case, shape, program=mutant.program, watch=after.see)
        if not before.within(after, unit, _copying(case.program, mutant.step, values)):
            return False
    return True


def _copying(program: Program, step: Step, values: Values) -> np.ndarray:
    """Lanes that store what comes of a step's result."""
    made, guards = set(step.writes), []
    later = iter(program.steps())
    for each in later:  # past what the step itself is in
        if each is step:
            break
    for each in later:
        if each.name == "scf.if" and any(made & set(s.reads) for s in each.bodies[0].steps):
            guards.append(values.get(each.reads[0]))
        elif made & set(each.reads):
            made.update(each.writes)
    found = [g for g in guards if isinstance(g, np.ndarray)]
    return np.logical_or.reduce(np.broadcast_arrays(*found)) if found else np.ones(1, bool)


def _divides(case: Case, mutant: Mutant, _: object) -> bool:
    if mutant.step.name != "arith.ceildivui" or mutant.constant:
        return False
    known = multiples(case)
    total, by = (known[number] for number in mutant.step.reads)
    return by > 0 and total % by == 0


def _rounded_up(case: Case, mutant: Mutant, _: object) -> bool:
    """At least so much, no more than a unit, then whole units of it."""
    if mutant.step.name != "arith.maxui" or mutant.operand != 1 or not mutant.constant:
        return False
    after, *more = readers(case.program, mutant.step.writes[0])
    if more or after.name != "arith.ceildivui" or not is_constant(case, after.reads[1]):
        return False
    unit = multiples(case)[after.reads[1]]  # a constant is its own
    return all(1 <= value <= unit for value in (mutant.old, mutant.value))


def _never_equal(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """The size is a multiple of what the index never is."""
    if not _or_equal(mutant):
        return False
    unit = multiples(case)[mutant.step.reads[1]]
    return unit > 1 and _never_multiple(case, mutant.step.reads[0], 0, unit, sizes)


def _short_of_the_last(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """One unit more of a row of k that is never the last: what follows is the next row.

    It goes to rows or columns that the result has not.
    """
    if not _or_equal(mutant) or constant_name(case, mutant.step.reads[1]) == case.contraction.k:
        return False
    made = {number: step for step in case.program.steps() for number in step.writes}
    uses = readers(case.program, mutant.step.writes[0])
    both = next((s for s in uses if s.name == "arith.andi"), None)
    if both is None:
        return False
    (other,) = (made[n] for n in both.reads if n not in mutant.step.writes)
    if other.name != "arith.cmpi" or constant_name(case, other.reads[1]) != case.contraction.k:
        return False
    outer = [s for s in readers(case.program, other.reads[0]) if s.name == "arith.muli"]
    strides = (name for o in case.contraction.operands for name in o.strides)
    if not {constant_name(case, s.reads[1]) for s in outer} & set(strides):
        return False
    unit = multiples(case)[other.reads[1]]
    return unit > 1 and _never_multiple(case, other.reads[0], 1, unit, sizes)


def _of_zero(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """A wave's row where all waves share one; the steps of a swizzle and what they step over."""
    first, second = (*mutant.step.reads, 0, 0)[:2]
    swapped = (mutant.step.name, mutant.change)
    alone = {
        ("arith.addi", "as arith.subi"): (second,),
        ("arith.subi", "as arith.addi"): (second,),
        ("arith.xori", "as arith.addi"): (first, second),
    }.get(swapped)
    if alone is None or not _of_the_lane(case, alone):
        return False
    common: list[int] = []

    def see(step: Step, values: Values) -> None:
        if set(alone) & set(step.writes) and set(alone) <= set(values):
            found = [v for v in map(values.__getitem__, alone) if isinstance(v, np.ndarray)]
            common.append(int(np.bitwise_and.reduce(np.broadcast_arrays(*found)).max()))

    emulated(case, sizes[0], watch=see)
    return bool(common) and not any(common)


def _of_the_lane(case: Case, numbers: Sequence[int]) -> bool:
    """Whether values follow from the lane's number alone: no size, no loop, no memory."""
    wanted, made = set(numbers), set[int]()
    for step in reversed(list(case.program.steps())):
        made.update(step.writes)
        if wanted & set(step.writes):
            wanted.update(step.reads)
            if step.name.startswith(("hal.", "scf.")) or step.name == "memref.load":
                return False
    return wanted <= made


def _or_equal(mutant: Mutant) -> bool:
    return mutant.step.name == "arith.cmpi" and mutant.change == "by predicate 7"


def _never_multiple(
    case: Case, number: int, more: int, unit: int, sizes: Sequence[Sequence[int]]
) -> bool:
    """No lane's value and ``more`` is a multiple of ``unit``, whenever it is computed."""
    seen = []

    def see(step: Step, values: Values) -> None:
        if number in step.writes:
            value = values[number]
            assert isinstance(value, np.ndarray)
            seen.append(bool(np.any((value + np.uint64(more)) % np.uint64(unit) == 0)))

    for shape in sizes:
        emulated(case, shape, watch=see)
    return bool(seen) and not any(seen)


def _no_sum(case: Case, mutant: Mutant, _: object) -> bool:
    """A guard of K > 0: without it nothing is read of what is staged."""
    made = {number: step for step in case.program.steps() for number in step.writes}
    guard = mutant.step if mutant.step.name == "arith.cmpi" else None
    if mutant.step.name == "scf.if" and mutant.change == "always":
        guard = made[mutant.step.reads[0]]
    if (
        guard is None
        or guard.name != "arith.cmpi"
        or constant_name(case, guard.reads[1]) != case.contraction.k
    ):
        return False
    if made[guard.reads[0]].attributes.get("value") != 0 or "predicate 9" in mutant.change:
        return False
    if mutant.constant and mutant.value >= units(case).get(case.contraction.k, 1):
        return False
    run = emulated(case, least_sizes(case), program=mutant.program)
    return all(memory.read.max() < 0 for memory in run.shared)


def _idle(case: Case, mutant: Mutant, sizes: Sequence[Sequence[int]]) -> bool:
    """Its place is after another barrier, with no use of workgroup memory between the two."""
    if mutant.step.name != "gpu.barrier":
        return False
    return all(id(mutant.step) not in emulated(case, shape).needed for shape in sizes)


_REASONS: dict[str, Callable[[Case, Mutant, Sequence[Sequence[int]]], bool]] = {
    "nothing reads it": _unread,
    "the other operand is never less": _never_less,
    "what is read there is dropped": _stand_in,
    "what is read there is scaled to zero": scaled_to_zero,
    "the same word of all that it can be in": same_word,
    "the same for every lane": _same_of_all_lanes,
    "within one unit of copying, to which it is rounded": _same_unit,
    "there is nothing to round up": _divides,
    "rounded up to one unit either way": _rounded_up,
    "the two are never equal": _never_equal,
    "no bit is set in both, or in the second, of any lane": _of_zero,
    "one unit more of what the result has not, within the operand": _short_of_the_last,
    "only a sum of nothing differs, which reads nothing": _no_sum,
    "no workgroup memory is used since the barrier before": _idle,
}
