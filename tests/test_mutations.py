"""How much a wrong index would be noticed: every index constant of a kernel changed in turn.

Kernels that copy element by element are caught whole. What is not caught of the others has no
effect at the sizes that they take, multiples of a copied unit:

- ``maxui`` with 1 of a size, which is 0 only where nothing is launched;
- ``select`` of the address that stands in for one outside: the value read there is dropped, and an
  operand without elements is not read at all;
- ``cmpi`` that guards a partial copy: the excess lanes fill a buffer before its own copy does;
- ``cmpi`` of 0 with K, which guards the first copy: with 1, as long as K is no 1;
- ``scf.for`` from 1 in place of 0: the address is rounded down to the same unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dialects.member import Tile
from dialects.operands import Contraction
from emulated_ir import ConstantUse, changed, constant_uses
from emulated_launch import Case, case_of, check, transposed
from emulated_memory import EmulatorError
from facts_files import FOLDER
from lowering.builder import dense

TILE = Tile(m=32, n=32, k=16, waves_m=2, waves_n=1)
SMALL = Tile(m=16, n=16, k=8, thread_m=2, thread_n=2)
LISTED = str(FOLDER / "vulkan-h200.json")
WIDE = (((40, 24, 40), 8), ((8, 8, 8), 0), ((24, 40, 0), 0))
NARROW = (((37, 34, 77), 3), ((1, 1, 1), 0), ((5, 3, 0), 0))
BLOCKS = (((40, 23, 160), 8), ((7, 8, 32), 0), ((24, 40, 0), 0))
Q8 = dense("f16", transposed_b=True, source_b="q8_0")
HARMLESS = {
    "arith.maxui operand 1",
    "arith.select operand 2",
    "arith.cmpi operand 0",
    "arith.cmpi operand 1",
    "scf.for operand 0",
}
MUTANTS = [  # with the share that was measured, rounded down
    ("wmma", "rocm:gfx1100", dense("f16"), TILE, 0.88),
    ("wmma", "rocm:gfx1201", dense("f16", "f16", transposed_b=True), TILE, 0.86),
    ("wmma_narrow", "rocm:gfx1100", transposed(dense("f16"), a=True), TILE, 1.0),
    ("mfma", "rocm:gfx942", transposed(dense("bf16"), a=True, b=True), TILE, 0.88),
    ("mfma_narrow", "rocm:gfx942", dense("i8", "i32"), replace(TILE, k=32), 1.0),
    ("coop_matrix", LISTED, dense("f16"), TILE, 0.91),
    ("wmma", "rocm:gfx1100", Q8, replace(TILE, k=64), 0.9),
    ("mfma_narrow", "rocm:gfx942", Q8, replace(TILE, k=64), 0.87),
    ("software", "rocm:gfx1100", dense("f32"), SMALL, 1.0),
]


def missed(case: Case, uses: Sequence[ConstantUse]) -> list[ConstantUse]:
    """The uses whose change to twice the value and one is not noticed at any of the sizes."""
    dense_shapes = WIDE if case.needs.alignment else NARROW
    shapes = BLOCKS if case.contraction.b.source else dense_shapes
    found = []
    for use in uses:
        program = changed(case.program, use, 2 * use.value + 1)
        try:
            for sizes, slack in shapes:
                check(case, sizes, slack=slack, program=program)
        except EmulatorError:
            continue
        found.append(use)
    return found


def kind(use: ConstantUse) -> str:
    """The operation and operand, without the value."""
    return use.text.partition(" = ")[0]


@pytest.mark.full
@pytest.mark.parametrize(("body", "target", "product", "tile", "floor"), MUTANTS)
def test_every_index_constant(
    body: str, target: str, product: Contraction, tile: Tile, floor: float
) -> None:
    """The share caught is at least what was measured; what is not caught is harmless."""
    case = case_of(body, target, product, tile)
    uses = constant_uses(case.program)
    left = missed(case, uses)
    share = 1 - len(left) / len(uses)
    print(f"{body} on {target}: {share:.3f} of {len(uses)} caught", Counter(map(kind, left)))
    assert share >= floor
    assert {kind(u) for u in left} <= HARMLESS


@pytest.mark.parametrize(("body", "target", "product", "tile", "floor"), MUTANTS)
def test_some_index_constants(
    body: str, target: str, product: Contraction, tile: Tile, floor: float
) -> None:
    """A sample of them: none that matters goes unnoticed."""
    case = case_of(body, target, product, tile)
    uses = [u for u in constant_uses(case.program) if kind(u) not in HARMLESS]
    assert len(uses) > 20
    assert missed(case, uses[:: max(1, len(uses) // 10)]) == []
