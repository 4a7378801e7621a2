"""What holds of an emitted program at every launch: least values, multiples, who reads what."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd, lcm

import numpy as np

from dialects.block_formats import block_format
from emulated_ir import Program, Step
from emulated_launch import Case, emulated
from kernel_emulator import Values


def units(case: Case) -> dict[str, int]:
    """What sizes and strides are multiples of: what the body needs, and whole blocks of K."""
    c = case.contraction
    found = dict(case.needs.alignment or {})
    for operand in (c.a, c.b):
        if operand.source is not None:
            found[c.k] = lcm(found.get(c.k, 1), block_format(operand.source).elements)
    return found


def least_sizes(case: Case) -> list[int]:
    """The smallest launch: sizes of the result of at least 1, a sum of nothing."""
    c, needs = case.contraction, units(case)
    return [0 if d == c.k else needs.get(d, 1) for d in c.dims]


def constant_name(case: Case, number: int) -> str | None:
    """The launch constant that a value is, or None."""
    made = {number: step for step in case.program.steps() for number in step.writes}
    step = made.get(number)
    while step and step.name == "arith.index_castui":
        step = made.get(step.reads[0])
    if step is None or step.name != "hal.interface.constant.load":
        return None
    return case.launch.constants[step.attributes["ordinal"]]


def is_constant(case: Case, number: int) -> bool:
    """Whether a value is an ``arith.constant``, which :func:`multiples` gives as it is."""
    return any(s.name == "arith.constant" and number in s.writes for s in case.program.steps())


def readers(program: Program, number: int) -> list[Step]:
    return [step for step in program.steps() if number in step.reads]


def reached(program: Program, step: Step) -> list[Step]:
    """The steps that read what follows from a step's results, in order."""
    made, found = set(step.writes), []
    for each in program.steps():
        if made & set(each.reads):
            made.update(each.writes)
            found.append(each)
    return found


def least_values(case: Case) -> dict[int, int]:
    """The least value of each integer in the smallest launch."""
    values = emulated(case, least_sizes(case)).values
    return {
        number: int(value.min())
        for number, value in values.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size
    }


def multiples(case: Case) -> dict[int, int]:
    """What each index is a multiple of in every launch; 0 is a multiple of all."""
    needs, least = units(case), least_values(case)
    known: dict[int, int] = {}
    for step in case.program.steps():
        of = [known.get(number, 1) for number in step.reads]
        match step.name:
            case "arith.constant" if step.types == ("index",):
                made = step.attributes["value"]
            case "hal.interface.constant.load":
                made = needs.get(case.launch.constants[step.attributes["ordinal"]], 1)
            case "arith.index_castui":
                made = of[0]
            case "arith.addi" | "arith.subi" | "arith.remui":
                made = gcd(*of)
            case "arith.select":
                made = gcd(*of[1:])
            case "arith.muli":
                made = of[0] * of[1]
            case "arith.maxui" if least.get(step.reads[0], 0) >= of[1]:
                made = of[0]
            case "scf.for":
                known[step.bodies[0].arguments[0]] = gcd(of[0], of[2])
                made = 1
            case _:
                made = 1
        known.update(dict.fromkeys(step.writes, made))
    return known


@dataclass
class Trace:
    """Every index that a program computes, in order, without its constants."""

    found: list[tuple[str, np.ndarray]] = field(default_factory=list)

    def see(self, step: Step, values: Values) -> None:
        """Remember one step's result."""
        if step.types == ("index",) and step.name != "arith.constant":
            value = values[step.writes[0]]
            assert isinstance(value, np.ndarray)
            self.found.append((step.name, value.astype(np.int64)))

    def within(self, other: Trace, unit: int, lanes: np.ndarray) -> bool:
        """Whether the lanes' values are these, or less than a unit above a multiple of it."""
        if [name for name, _ in self.found] != [name for name, _ in other.found]:
            return False
        for (_, value), (_, changed) in zip(self.found, other.found, strict=True):
            differs = (value != changed) & lanes
            more = np.broadcast_to(changed - value, differs.shape)[differs]
            mine = np.broadcast_to(value, differs.shape)[differs]
            if np.any(mine % unit) or np.any(more < 0) or np.any(more >= unit):
                return False
        return True
