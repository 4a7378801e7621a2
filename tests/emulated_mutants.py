"""Programs that differ from an emitted one in one place: a constant, an operator, a step left out.

Every mutant is one that an emitter could have written by mistake. A mutant whose text the compiler
would refuse (types, missing values) is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from emulated_ir import Block, Program, Step, changed, constant_uses, shaped, with_step

# operations that read and give the same types
_OTHER = {
    "arith.addi": "arith.subi",
    "arith.subi": "arith.addi",
    "arith.muli": "arith.addi",
    "arith.xori": "arith.addi",
    "arith.divui": "arith.remui",
    "arith.remui": "arith.divui",
    "arith.ceildivui": "arith.divui",
    "arith.minui": "arith.maxui",
    "arith.maxui": "arith.minui",
    "arith.addf": "arith.mulf",
    "arith.mulf": "arith.addf",
    "arith.maximumf": "arith.minimumf",
    "arith.minimumf": "arith.maximumf",
}
_ORDERED = ("arith.subi", "arith.divui", "arith.remui", "arith.cmpi")
_PREDICATES = {0: (1,), 1: (0,), 6: (7, 9)}  # equal or not; less: also where equal, only where not
_STORES = ("memref.store", "vector.store", "gpu.subgroup_mma_store_matrix")
_TURNED = ("vector.from_elements", "scf.yield")
_PRODUCTS = ("amdgpu.wmma", "amdgpu.mfma", "gpu.subgroup_mma_compute")
NO_ZERO = -1  # NaN where a pattern of bits is a float's


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A program, what was changed to get it, and in which step of the original."""

    program: Program
    step: Step
    place: int  # of the step in the original
    change: str
    constant: bool = False  # then ``operand`` reads ``value`` in place of ``old``
    operand: int = 0
    old: int = 0
    value: int = 0

    @property
    def text(self) -> str:
        """``step 36: arith.muli operand 1: 40 -> 81``."""
        return f"step {self.place}: {self.step.name} {self.change}"


def constant_mutants(program: Program) -> Iterator[Mutant]:
    """Every use of an index constant with twice the value and one, and with its neighbours."""
    places = _places(program)
    for use in constant_uses(program):
        for value in sorted({2 * use.value + 1, use.value + 1, max(0, use.value - 1)}):
            if value != use.value:
                yield Mutant(
                    program=changed(program, use, value),
                    step=use.step,
                    place=places[id(use.step)],
                    change=f"operand {use.operand}: {use.value} -> {value}",
                    constant=True,
                    operand=use.operand,
                    old=use.value,
                    value=value,
                )


def operator_mutants(program: Program) -> Iterator[Mutant]:
    """Every other change: operators, operands, attributes, branches, barriers and stores."""
    places = _places(program)

    def mutant(other: Program, step: Step, change: str) -> Mutant:
        return Mutant(program=other, step=step, place=places[id(step)], change=change)

    for step in program.steps():
        for change, steps in _changes(step):
            yield mutant(with_step(program, step, steps), step, change)
    for block, at in _barriers(program.block):
        earlier = max((i for i in range(at) if block.steps[i].name in _STORES), default=None)
        if earlier is not None:
            steps = list(block.steps)
            steps.insert(earlier, steps.pop(at))
            moved = _with_block(program.block, block, steps)
            yield mutant(Program(moved, program.count), block.steps[at], "before the last store")


def _places(program: Program) -> dict[int, int]:
    return {id(step): place for place, step in enumerate(program.steps())}


def _changes(step: Step) -> Iterator[tuple[str, list[Step]]]:
    """What may stand in a step's place."""
    name, reads = step.name, step.reads
    if name in _OTHER:
        yield f"as {_OTHER[name]}", [replace(step, name=_OTHER[name])]
    if name in _ORDERED or name in _PRODUCTS:
        yield "with its first operands swapped", [_reading(step, (reads[1], reads[0], *reads[2:]))]
    if name == "arith.andi":
        for kept in range(2):
            yield f"of operand {kept} alone", [_reading(step, (reads[kept], reads[kept]))]
    if name == "arith.select":
        yield "with its arms swapped", [_reading(step, (reads[0], reads[2], reads[1]))]
    if name in _TURNED and len(reads) > 1:
        yield "with its operands rotated", [_reading(step, (*reads[1:], reads[0]))]
    if name == "scf.if" and not step.writes:
        yield "always", list(step.bodies[0].steps[:-1])
        yield "never", []
    if name in _STORES or name == "gpu.barrier":
        yield "left out", []
    yield from _attribute_changes(step)


def _attribute_changes(step: Step) -> Iterator[tuple[str, list[Step]]]:
    held = step.attributes
    if step.name == "arith.cmpi":
        for predicate in _PREDICATES[held["predicate"]]:
            yield f"by predicate {predicate}", [_having(step, predicate=predicate)]
    if step.name == "arith.constant" and step.types != ("index",) and held["value"] == 0:
        value = nan if isinstance(held["value"], float) else NO_ZERO
        yield f"{held['value']} -> {value}", [_having(step, value=value)]
    if step.name == "hal.interface.workgroup.id":
        for axis in {0, 1, 2} - {held["dimension"]}:
            yield f"of axis {axis}", [_having(step, dimension=axis)]
    if step.name == "hal.interface.constant.load":
        for ordinal in {held["ordinal"] + 1, held["ordinal"] - 1} - {-1}:
            yield f"of ordinal {ordinal}", [_having(step, ordinal=ordinal)]
    if step.name == "vector.extract":
        (length,), _ = shaped(step.read_types[0])
        other = (held["static_position"][0] + 1) % length
        yield f"at {other}", [_having(step, static_position=[other])]
    if "alignment" in held:
        yield "at twice the alignment", [_having(step, alignment=2 * held["alignment"])]
    if "leadDimension" in held:
        lead = held["leadDimension"] + 1
        yield "with one more between rows", [_having(step, leadDimension=lead)]
        yield "turned", [_turned(step)]


def _reading(step: Step, reads: Sequence[int]) -> Step:
    return replace(step, reads=tuple(reads))


def _having(step: Step, **attributes: Any) -> Step:
    return replace(step, attributes={**step.attributes, **attributes})


def _turned(step: Step) -> Step:
    held = dict(step.attributes)
    if held.pop("transpose", None) is None:
        held["transpose"] = "unit"
    return replace(step, attributes=held)


def _with_block(block: Block, old: Block, new: Sequence[Step]) -> Block:
    if block is old:
        return replace(block, steps=tuple(new))
    steps = (
        replace(s, bodies=tuple(_with_block(b, old, new) for b in s.bodies)) if s.bodies else s
        for s in block.steps
    )
    return replace(block, steps=tuple(steps))


def _barriers(block: Block) -> Iterator[tuple[Block, int]]:
    for at, step in enumerate(block.steps):
        if step.name == "gpu.barrier":
            yield block, at
        for body in step.bodies:
            yield from _barriers(body)
