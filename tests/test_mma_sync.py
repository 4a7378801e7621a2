"""The mma.sync bodies, executed lane by lane on the host: every element, edge, layout and width."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dialects.member import Tile
from dialects.operands import EpilogueStep, Operand
from emulated_wave import Fault
from lowering.builder import dense
from mma_cases import SMALL, Case, product, sizes

BIAS = Operand(name="bias", type="f32", dims=("N",))
COLUMN = Operand(name="column", type="f16", dims=("M",))
RESIDUAL = Operand(name="residual", type="f16", dims=("M", "N"))
FLIPS = [(False, False), (False, True), (True, False), (True, True)]


@pytest.mark.parametrize(("flip_a", "flip_b"), FLIPS)
@pytest.mark.parametrize(
    ("type_", "accumulator", "k"), [("f16", "f32", 32), ("i8", "i32", 64), ("u8", "i32", 64)]
)
def test_both_layouts_of_both_operands(
    type_: str, accumulator: str, k: int, flip_a: bool, flip_b: bool
) -> None:
    """Edges in every size, several tiles along each, copies that land late, waves either way."""
    tile = replace(SMALL, k=k, m=64, n=64, waves_m=2)
    c = product(type_, accumulator, flip_a=flip_a, transposed_b=flip_b)
    case = Case(c, tile, "mma_sync", sizes(80, 96, 2 * k + 16))
    assert case.run(eager=False, reverse=True) == 0
    assert case.run(eager=True) == 0


@pytest.mark.parametrize("body", ["mma_sync", "mma_sync_words", "mma_sync_narrow"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (37, 72, 40), (16, 32, 32), (65, 8, 104)])
def test_copies_of_every_width(body: str, shape: tuple[int, int, int]) -> None:
    case = Case(dense("f16"), SMALL, body, sizes(*shape))
    assert case.run(eager=False) == 0
    assert case.run(reverse=True) == 0


@pytest.mark.parametrize(("flip_a", "flip_b"), FLIPS)
@pytest.mark.parametrize(
    ("type_", "accumulator", "body", "shape"),
    [
        ("f16", "f32", "mma_sync_words", (38, 14, 10)),
        ("bf16", "f32", "mma_sync_narrow", (37, 15, 7)),
        ("i8", "i32", "mma_sync_words", (36, 68, 44)),
        ("i8", "i32", "mma_sync_narrow", (37, 67, 41)),
    ],
)
def test_narrow_copies_in_every_layout(
    type_: str,
    accumulator: str,
    body: str,
    shape: tuple[int, int, int],
    flip_a: bool,
    flip_b: bool,
) -> None:
    tile = replace(SMALL, m=64, n=64) if type_ == "i8" else SMALL
    c = product(type_, accumulator, flip_a=flip_a, transposed_b=flip_b)
    case = Case(c, tile, body, sizes(*shape))
    case.run(eager=False)
    case.run(reverse=True)


@pytest.mark.parametrize("type_", ["bf16", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("flip_b", [False, True])
def test_other_floats(type_: str, flip_b: bool) -> None:
    tile = replace(SMALL, n=64, k=64)
    case = Case(dense(type_, transposed_b=flip_b), tile, "mma_sync", sizes(35, 80, 80))
    assert case.run() == 0


@pytest.mark.parametrize(
    ("tile", "shape", "flip_b"),
    [
        (Tile(m=16, n=16, k=16, waves_m=1, waves_n=1, stages=2), (17, 24, 56), False),
        (Tile(m=32, n=16, k=16, waves_m=2, waves_n=1, stages=3), (33, 24, 72), True),
        (Tile(m=128, n=64, k=64, waves_m=2, waves_n=2, stages=3), (100, 72, 72), False),
        (Tile(m=64, n=256, k=32, waves_m=1, waves_n=4, stages=4), (40, 264, 40), False),
        (Tile(m=64, n=128, k=128, waves_m=1, waves_n=4, stages=2), (40, 72, 136), True),
        (Tile(m=48, n=96, k=32, waves_m=3, waves_n=1, stages=2), (50, 104, 40), True),
        (Tile(m=128, n=16, k=16, waves_m=4, waves_n=1, stages=2), (129, 24, 24), False),
    ],
    ids=lambda v: v.name if isinstance(v, Tile) else "",
)
def test_tiles(tile: Tile, shape: tuple[int, int, int], flip_b: bool) -> None:
    """One step and several a tile, passes that are partial, waves of many shapes."""
    case = Case(dense("f16", transposed_b=flip_b), tile, "mma_sync", sizes(*shape))
    assert case.run(eager=False, reverse=True) == 0
    assert case.run() == 0


@pytest.mark.parametrize("body", ["mma_sync", "mma_sync_narrow"])
@pytest.mark.parametrize("pad", [0, 8, 16])
def test_batches_and_strides(body: str, pad: int) -> None:
    """What lies between the rows of C and between its batches stays as it was."""
    case = Case(product("f16", batch=True, flip_a=True), SMALL, body, sizes(40, 40, 24, 3), pad)
    case.run(eager=False)


@pytest.mark.parametrize("n", [8, 15, 34, 67])
@pytest.mark.parametrize(
    ("result", "epilogue", "extras", "accumulate"),
    [
        ("f32", (), (), True),
        ("f16", (EpilogueStep(op="cast", type="f16"),), (), False),
        ("f16", (), (), False),
        (
            "f32",
            (EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0)),
            (BIAS,),
            False,
        ),
        (
            "bf16",
            (
                EpilogueStep(op="add", operand="residual"),
                EpilogueStep(op="add", operand="column"),
                EpilogueStep(op="cast", type="bf16"),
            ),
            (RESIDUAL, COLUMN),
            True,
        ),
    ],
)
def test_results(
    n: int,
    result: str,
    epilogue: tuple[EpilogueStep, ...],
    extras: Sequence[Operand],
    accumulate: bool,
) -> None:
    """Stores of pairs and of single elements, old values, operands of the epilogue."""
    accumulator = result if not epilogue else "f32"
    c = dense(
        "f16",
        accumulator,
        result=result,
        epilogue=epilogue,
        extras=tuple(extras),
        accumulate=accumulate,
    )
    Case(c, SMALL, "mma_sync_narrow", sizes(35, n, 20)).run()


def test_an_i8_result() -> None:
    c = dense("i8", "i32", result="i8", epilogue=(EpilogueStep(op="cast", type="i8"),))
    tile = replace(SMALL, m=64, n=64)
    for n in (64, 65):
        case = Case(c, tile, "mma_sync_narrow", sizes(20, n, 5))
        case.run()


def test_a_sum_of_nothing() -> None:
    """K = 0: the epilogue of zero is stored, nothing is read."""
    epilogue = (EpilogueStep(op="add", operand="bias"),)
    c = dense("f16", extras=(BIAS,), epilogue=epilogue)
    for body in ("mma_sync", "mma_sync_narrow"):
        Case(c, SMALL, body, sizes(20, 24, 0)).run(eager=False)


MUTATIONS = (
    (r"arith\.xori", "arith.addi"),
    (r"arith\.shrui", "arith.shli"),
    (r"arith\.subi", "arith.addi"),
    (r"arith\.remui", "arith.divui"),
    (r"setp\.gt\.s32", "setp.eq.s32"),
    (r"wait_group 1", "wait_group 2"),
    (r"wait_group 0", "wait_group 1"),
    (r"cp\.async\.commit_group", "cp.async.wait_group 9"),
    (r"gpu\.barrier", ""),
    (r"0x6420", "0x7531"),
)
SAMPLED = 5


@pytest.fixture(scope="module")
def changed_cases() -> list[Case]:
    """K of part of a tile, of several, of part of a stage; edges in either pass of a copy."""
    tile = replace(SMALL, m=64, n=64, waves_m=2, stages=3)
    shapes = ((70, 80, 16), (70, 80, 112), (70, 80, 48), (100, 112, 48))
    return [Case(product("i8", "i32"), tile, "mma_sync", sizes(*shape)) for shape in shapes]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize(("old", "new"), MUTATIONS)
def test_one_changed_op_is_noticed(
    old: str, new: str, every: bool, changed_cases: list[Case]
) -> None:
    """A sample of the places of each op, or all of them."""
    text = changed_cases[0].text
    assert {c.text for c in changed_cases} == {text}
    start = text.index("gpu.thread_id")
    places = [m.span() for m in re.finditer(old, text) if m.start() > start]
    chosen = places if every else places[:: max(1, len(places) // SAMPLED)]
    assert chosen
    unnoticed = [p for p in chosen if not any(_notices(c, text, p, new) for c in changed_cases)]
    lines = [text[text.rfind("\n", 0, b) : text.find("\n", b)].strip() for b, _ in unnoticed]
    assert lines == []


def test_what_is_on_its_way_is_said(changed_cases: list[Case]) -> None:
    """Without a barrier or a wait by name, not by the chance of another result."""
    case = changed_cases[1]
    for old, new, fault in (
        ("gpu.barrier", "", "reads what another lane writes, no sync of the wave"),
        ("wait_group 1", "wait_group 2", "a copy that is on its way"),
        ("wait_group 0", "wait_group 1", "ends with copies on their way"),
    ):
        at = case.text.rindex(old)
        text = case.text[:at] + new + case.text[at + len(old) :]
        with pytest.raises(Fault, match=fault):
            case.run("\n".join(line for line in text.splitlines() if line.strip()))


def _notices(case: Case, text: str, place: tuple[int, int], new: str) -> bool:
    changed = text[: place[0]] + new + text[place[1] :]
    changed = "\n".join(line for line in changed.splitlines() if line.strip())
    try:
        late = case.run(changed, eager=False, reverse=True)
        return late + case.run(changed) > 0
    except (AssertionError, IndexError, ZeroDivisionError):
        return True
