"""Every body's kernel, lane by lane from its IR, is exact where no such device is at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from emulated_launch import Case, case_of, check, transposed
from facts_files import FOLDER
from lowering.builder import dense

LISTED = str(FOLDER / "vulkan-h200.json")
RDNA = Tile(m=32, n=32, k=32, waves_m=2, waves_n=1)
CDNA = Tile(m=64, n=32, k=32, waves_m=2, waves_n=1)
SMALL = Tile(m=16, n=16, k=8, thread_m=2, thread_n=4)
BIAS = Operand(name="bias", type="f32", dims=("N",))
WHOLE = Operand(name="d", type="f32", dims=("N", "M"))
RELU = (EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0))
ROWS = (EpilogueStep(op="mul", operand="d"), EpilogueStep(op="cast", type="f16"))

BY_TYPE = [
    *(
        ("wmma", f"rocm:{isa}", RDNA, types)
        for isa in ("gfx1100", "gfx1201")
        for types in (("f16", "f32"), ("bf16", "f32"), ("f16", "f16"), ("i8", "i32"), ("u8", "i32"))
    ),
    *(
        ("mfma", f"rocm:{isa}", CDNA, types)
        for isa in ("gfx90a", "gfx942", "gfx950")
        for types in (("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("f32", "f32"))
    ),
    ("mfma", "rocm:gfx942", replace(CDNA, m=32), ("f16", "f32")),
    ("coop_matrix", LISTED, RDNA, ("f16", "f32")),
    ("coop_matrix", LISTED, RDNA, ("f16", "f16")),
    ("coop_matrix", LISTED, RDNA, ("i8", "i32")),
    ("software", "rocm:gfx1100", SMALL, ("bf16", "f32")),
    ("software", "rocm:gfx1100", SMALL, ("u8", "i32")),
]
LAYOUTS = [
    ("wmma", "rocm:gfx1100", RDNA, "f16"),
    ("wmma", "rocm:gfx1201", RDNA, "f16"),
    ("wmma", "rocm:gfx1100", RDNA, "i8"),
    ("mfma", "rocm:gfx942", CDNA, "bf16"),
    ("mfma", "rocm:gfx942", CDNA, "i8"),
    ("mfma", "rocm:gfx942", Tile(m=64, n=64, k=16, waves_m=2, waves_n=2), "f32"),
    ("coop_matrix", LISTED, RDNA, "f16"),
    ("software", "rocm:gfx942", SMALL, "f16"),
]
AWKWARD = ((37, 15, 33), (1, 1, 1), (2, 37, 64), (3, 5, 0))
UNITS = ((48, 80, 48), (16, 16, 16), (16, 16, 0))  # of 16 elements, as copies need


def sizes_for(case: Case, m: int, n: int, k: int, batch: int = 2) -> tuple[int, ...]:
    """Sizes in the kernel's order."""
    return (batch, m, n, k) if case.contraction.batch else (m, n, k)


def run(case: Case) -> None:
    """Shapes that divide no tile, dense and with poison between the rows."""
    wide = case.needs.alignment is not None
    for shape in UNITS if wide else AWKWARD:
        check(case, sizes_for(case, *shape), slack=0)
    check(case, sizes_for(case, *(UNITS if wide else AWKWARD)[0]), slack=16 if wide else 3)


def accumulator(type_: str) -> str:
    """What products of a type are summed in."""
    return "i32" if type_ in ("i8", "u8") else "f32"


@pytest.mark.parametrize(("body", "target", "tile", "types"), BY_TYPE)
def test_element_types(body: str, target: str, tile: Tile, types: tuple[str, str]) -> None:
    run(case_of(body, target, dense(*types), tile))
    if body != "software":
        run(case_of(f"{body}_narrow", target, dense(*types, transposed_b=True), tile))


@pytest.mark.parametrize(
    ("order", "batch"), [("AB", True), ("aB", False), ("Ab", False), ("ab", True)]
)
@pytest.mark.parametrize(("body", "target", "tile", "type_"), LAYOUTS)
def test_layouts(body: str, target: str, tile: Tile, type_: str, order: str, batch: bool) -> None:
    """A small letter is an operand stored the other way round."""
    product = dense(type_, accumulator(type_), batch=batch)
    product = transposed(product, a="a" in order, b="b" in order)
    run(case_of(body, target, product, tile))
    if body != "software":
        run(case_of(f"{body}_narrow", target, product, tile))


@pytest.mark.parametrize(
    "product",
    [
        dense("f16", accumulate=True),
        dense("f16", extras=(BIAS,), epilogue=RELU),
        dense("f16", accumulate=True, extras=(BIAS,), epilogue=RELU),
        dense("f16", extras=(WHOLE,), epilogue=ROWS, result="f16"),
        dense("f16", "f16", accumulate=True),
        dense("i8", "i32", accumulate=True),
    ],
    ids=["accumulate", "bias", "both", "cast", "narrow", "bytes"],
)
@pytest.mark.parametrize(
    ("body", "target", "tile"),
    [
        ("wmma", "rocm:gfx1100", RDNA),
        ("wmma", "rocm:gfx1201", RDNA),
        ("mfma", "rocm:gfx942", CDNA),
        ("coop_matrix", LISTED, RDNA),
        ("software", "rocm:gfx1100", SMALL),
    ],
)
def test_epilogues(body: str, target: str, tile: Tile, product: Contraction) -> None:
    if body == "mfma" and product.accumulator == "f16":
        pytest.skip("MFMA has no f16 sums")
    run(case_of(body, target, product, tile))


TILES = [
    ("wmma", "rocm:gfx1100", Tile(m=16, n=16, k=16, waves_m=1, waves_n=1)),
    ("wmma", "rocm:gfx1201", Tile(m=48, n=64, k=48, waves_m=3, waves_n=2)),
    ("wmma", "rocm:gfx1100", Tile(m=128, n=128, k=32, waves_m=2, waves_n=4)),
    ("wmma", "rocm:gfx1151", Tile(m=64, n=64, k=32, waves_m=2, waves_n=2)),
    ("mfma", "rocm:gfx942", Tile(m=16, n=16, k=16, waves_m=1, waves_n=1)),
    ("mfma", "rocm:gfx942", Tile(m=128, n=128, k=32, waves_m=2, waves_n=4)),
    ("mfma", "rocm:gfx950", Tile(m=64, n=96, k=64, waves_m=2, waves_n=3)),
]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("body", "target", "tile"), TILES)
def test_tiles(body: str, target: str, tile: Tile, turned: bool) -> None:
    """From one instruction to the largest of the samples, with passes that are not full."""
    product = transposed(dense("f16"), a=turned, b=turned)
    for name in (body, f"{body}_narrow"):
        case = case_of(name, target, product, tile)
        check(case, (tile.m + 16, tile.n + 16, 2 * tile.k + 16))


@pytest.mark.parametrize("k", [8, 24])
def test_rows_that_no_wide_store_divides(k: int) -> None:
    """Bytes are turned 16 rows of k at a time only where the tile has as many."""
    tile = Tile(m=128, n=32, k=k, waves_m=1, waves_n=1)
    case = case_of("mfma_narrow", "rocm:gfx90a", transposed(dense("i8", "i32"), a=True), tile)
    check(case, (130, 33, 2 * k + 3))


@settings(max_examples=25)
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(0, 70),
    slack=st.integers(0, 5),
    which=st.integers(0, 2),
    a=st.booleans(),
    b=st.booleans(),
)
def test_any_shape(m: int, n: int, k: int, slack: int, which: int, a: bool, b: bool) -> None:
    body, target, tile = (
        ("wmma_narrow", "rocm:gfx1100", RDNA),
        ("wmma_narrow", "rocm:gfx1201", RDNA),
        ("mfma_narrow", "rocm:gfx942", CDNA),
    )[which]
    check(case_of(body, target, transposed(dense("f16"), a=a, b=b), tile), (m, n, k), slack=slack)
