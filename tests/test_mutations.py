"""How much a wrong kernel would be noticed: each part of an emitted one changed in turn.

A mutant is noticed by some launch, or it is the same kernel for a reason that is looked up in the
program (:mod:`equivalent_mutants`). Anything else is a hole in the launches or in the emulator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pytest

from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from emulated_ir import Program
from emulated_launch import Case, case_of, check, transposed
from emulated_memory import EmulatorError
from emulated_mutants import Mutant, constant_mutants, operator_mutants
from equivalent_mutants import reason
from facts_files import FOLDER
from lowering.builder import dense
from program_properties import least_sizes, units

Launch = tuple[tuple[int, ...], int]  # sizes in the kernel's order, and elements between rows
TILE = Tile(m=32, n=32, k=16, waves_m=2, waves_n=1)
SMALL = Tile(m=16, n=16, k=8, thread_m=2, thread_n=2)
LISTED = str(FOLDER / "vulkan-h200.json")
SAMPLED = 12
DOUBTED = 8  # one in so many
Q8 = dense("f16", transposed_b=True, source_b="q8_0")
BIAS = Operand(name="bias", type="f32", dims=("N",))
RELU = (EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0))
MUTANTS = {
    "wmma": ("wmma", "rocm:gfx1100", dense("f16"), TILE),
    "wmma-gfx12": ("wmma", "rocm:gfx1201", dense("f16", "f16", transposed_b=True), TILE),
    "wmma-bytes": (
        *("wmma", "rocm:gfx1100", dense("i8", "i32", batch=True, accumulate=True)),
        Tile(m=32, n=32, k=32, waves_m=1, waves_n=2),
    ),
    "wmma-narrow": ("wmma_narrow", "rocm:gfx1100", transposed(dense("f16"), a=True), TILE),
    "mfma": ("mfma", "rocm:gfx942", transposed(dense("bf16"), a=True, b=True), TILE),
    "mfma-bias": (
        *("mfma", "rocm:gfx950", dense("f16", extras=(BIAS,), epilogue=RELU, transposed_b=True)),
        Tile(m=32, n=64, k=32, waves_m=1, waves_n=2),
    ),
    "mfma-narrow": ("mfma_narrow", "rocm:gfx942", dense("i8", "i32"), replace(TILE, k=32)),
    "coop": ("coop_matrix", LISTED, dense("f16"), TILE),
    "wmma-blocks": ("wmma", "rocm:gfx1100", Q8, replace(TILE, k=64)),
    "mfma-narrow-blocks": ("mfma_narrow", "rocm:gfx942", Q8, replace(TILE, k=64)),
    "software": ("software", "rocm:gfx1100", dense("f32"), SMALL),
    "software-swizzled": (
        *("software", "rocm:gfx1100", dense("f16", batch=True, accumulate=True)),
        Tile(m=32, n=32, k=16, thread_m=4, thread_n=4),
    ),
}
Named = tuple[str, str, Contraction, Tile]


class Launches:
    """Sizes that tell a kernel from a wrong one, as a body's alignment allows."""

    def __init__(self, case: Case, tile: Tile) -> None:
        needs = units(case)
        self.case, self.tile = case, tile
        *_, m, n, k = case.contraction.dims
        self.units = [needs.get(d, 1) for d in (m, n, k)]
        self.slack = max((case.needs.alignment or {}).values(), default=3)

    def sizes(self, m: int, n: int, k: int, batch: int = 1) -> tuple[int, ...]:
        """Rounded up to what the body takes."""
        rounded = (-(-s // u) * u for s, u in zip((m, n, k), self.units, strict=True))
        return (*((batch,) if self.case.contraction.batch else ()), *rounded)

    def first(self) -> list[Launch]:
        """Several tiles with edges, one element, no K, and a K of more steps than the tile has k.

        A step of the loop divided by one less than the tile's k differs only there.
        """
        tile = self.tile
        m, n = tile.m + 5, tile.n + 2
        return [
            (self.sizes(m, n, 2 * tile.k + 3, 2), self.slack),
            (self.sizes(1, 1, 1), 0),
            (self.sizes(m, n, 0, 2), 0),
            (tuple(least_sizes(self.case)), 0),
            (self.sizes(1, 1, tile.k * (tile.k + 2)), self.slack),
        ]

    @property
    def looked_at(self) -> list[tuple[int, ...]]:
        """Sizes of the launches on which properties are looked up."""
        return [sizes for sizes, _ in self.first()]

    def edges(self) -> Iterator[Launch]:
        """Every size up to the tile's, one at a time, so that each guard has its last lane."""
        tile, (m, n, k) = self.tile, self.units
        for depth in (k, tile.k + k):
            yield from ((self.sizes(s, tile.n, depth), self.slack) for s in _upto(tile.m, m))
            yield from ((self.sizes(tile.m, s, depth), self.slack) for s in _upto(tile.n, n))
        for slack in (0, self.slack):
            yield from ((self.sizes(1, 1, s), slack) for s in _upto(2 * tile.k, k))
        if self.case.contraction.b.source is not None:
            # a block's number divided by one less than its elements, in each pass of a copy
            yield self.sizes(tile.m, tile.n, k * (k + 2)), self.slack


def _upto(last: int, unit: int) -> range:
    return range(unit, last + 1, unit)


def noticed(case: Case, mutant: Mutant, launches: Iterable[Launch]) -> bool:
    """Whether any launch tells the mutant from the kernel."""
    for sizes, slack in launches:
        try:
            check(case, sizes, slack=slack, program=mutant.program)
        except EmulatorError:
            return True
    return False


def judged(
    case: Case, launches: Launches, mutants: Sequence[Mutant]
) -> tuple[Counter[str], list[str], list[str]]:
    """How many are the same kernel by reason; those with no reason; and those wrongly excused.

    A reason is asked for of some of those that are noticed too: there must be none.
    """
    same: Counter[str] = Counter()
    missed, excused = [], []
    for number, mutant in enumerate(mutants):
        found = noticed(case, mutant, chain(launches.first(), launches.edges()))
        if found and number % DOUBTED:
            continue
        why = reason(case, mutant, launches.looked_at)
        if why is None and not found:
            missed.append(mutant.text)
        elif why is not None and found:
            excused.append(f"{mutant.text}: {why}")
        elif why is not None:
            same[why] += 1
    return same, missed, excused


@pytest.mark.full
@pytest.mark.parametrize("make", [constant_mutants, operator_mutants])
@pytest.mark.parametrize("named", MUTANTS.values(), ids=MUTANTS)
def test_every_mutant(named: Named, make: Callable[[Program], Iterator[Mutant]]) -> None:
    """Noticed by a launch that the kernel passes, or the same for a reason, and never both."""
    case = case_of(*named)
    launches = Launches(case, named[3])
    for sizes, slack in chain(launches.first(), launches.edges()):
        check(case, sizes, slack=slack)
    mutants = list(make(case.program))
    same, missed, excused = judged(case, launches, mutants)
    total, equal = len(mutants), sum(same.values())
    print(f"{total - equal - len(missed)} caught, {equal} equivalent of {total}: {dict(same)}")
    assert missed == []
    assert excused == []


@pytest.mark.parametrize("named", MUTANTS.values(), ids=MUTANTS)
def test_some_mutants(named: Named) -> None:
    """A sample of both kinds, for those who do not wait."""
    case = case_of(*named)
    launches = Launches(case, named[3])
    for sizes, slack in launches.first():
        check(case, sizes, slack=slack)
    mutants = [*constant_mutants(case.program), *operator_mutants(case.program)]
    assert len(mutants) > 10 * SAMPLED
    for mutant in mutants[:: len(mutants) // SAMPLED]:
        assert (
            noticed(case, mutant, launches.first())
            or reason(case, mutant, launches.looked_at)
            or noticed(case, mutant, launches.edges())
        ), mutant.text
