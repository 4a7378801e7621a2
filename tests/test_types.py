"""Element types end to end: every one that a body takes is exactly right, the others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialects.declarations import Declarations
from dialects.errors import UnsupportedError
from dialects.member import Member, Problem, Tile
from dialects.operands import EpilogueStep
from facts_files import FOLDER
from lowering.build import BuildOptions, build
from lowering.builder import KernelSource, dense, source_text
from lowering.compile import CompileOptions
from lowering.pack import write_pack
from lowering.target import parse_target
from lowering.tier_table import tier_rows
from runtime import Session
from runtime.facts import read_facts
from runtime.proof import make_case, prove

# operand type, accumulator, result
RIGHT = (
    ("f16", "f32", "f32"),
    ("f16", "f16", "f16"),
    ("f16", "f32", "f16"),
    ("bf16", "f32", "f32"),
    ("bf16", "bf16", "bf16"),
    ("f32", "f32", "f16"),
    ("f64", "f64", "f64"),
    ("f32", "f64", "f64"),
    ("i8", "i32", "i32"),
    ("u8", "i32", "i32"),
    ("i8", "i32", "f32"),
    ("i8", "i8", "i8"),
)
MEMBERS = (
    Member(tile=Tile(m=8, n=32, k=16, thread_m=4, thread_n=16), backends=("cpu",)),
    Member(
        tile=Tile(m=32, n=32, k=8, thread_m=4, thread_n=4), body="software", backends=("vulkan",)
    ),
)
SHAPES = ((1, 1, 1), (37, 15, 7), (13, 66, 130), (5, 8, 0))


def source(operand: str, accumulator: str, result: str, members: tuple[Member, ...]) -> str:
    """A product of these types, cast once where the result is another type."""
    cast = () if accumulator == result else (EpilogueStep(op="cast", type=result),)
    return source_text(
        [
            KernelSource(
                name="product",
                contraction=dense(operand, accumulator, epilogue=cast, result=result),
                declarations=Declarations(dims=("M", "N", "K"), members=members),
            )
        ]
    )


@pytest.mark.parametrize("device", ["local-sync", "vulkan"])
@pytest.mark.parametrize("types", RIGHT, ids="-".join)
def test_products_are_exact(
    types: tuple[str, str, str],
    device: str,
    compile_cache: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if device == "vulkan":
        request.getfixturevalue("vulkan_device")
    target = parse_target(f"device:{device}", read_facts)
    options = BuildOptions(compile=CompileOptions(cache=compile_cache))
    write_pack(build(source(*types, MEMBERS), "types", [target], options), tmp_path / "pack")
    with Session([tmp_path / "pack"], device=device, tuning="off") as session:
        ref = session.reference("product")
        (record,) = ref.entry.members
        executable = session.executable("product", record)
        for sizes in SHAPES:
            at = Problem(dims=("M", "N", "K"), sizes=sizes)
            case = make_case(session.device, ref.entry, at)
            assert prove(session.device, executable, case, whole=True) is None, sizes


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "vulkan", "cuda:sm_89", "rocm:gfx1100"])
def test_what_no_body_takes_is_refused_by_name(target: str) -> None:
    with pytest.raises(UnsupportedError, match="f8e4m3"):
        build(
            source("f8e4m3", "f32", "f32", tuple(Member(tile=m.tile) for m in MEMBERS)),
            "types",
            [parse_target(target)],
            BuildOptions(),
        )


LISTED = str(FOLDER / "vulkan-h200.json")


@pytest.mark.parametrize(
    ("target", "native"),
    [
        ("cuda:sm_80", {("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("i8", "i32")}),
        ("cuda:sm_75", set()),
        ("rocm:gfx1100", {("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("i8", "i32")}),
        ("rocm:gfx1030", set()),
        ("rocm:gfx942", {("f16", "f32"), ("bf16", "f32"), ("i8", "i32"), ("f32", "f32")}),
        ("vulkan", set()),
        ("cpu:x86-64-v4", set()),
    ],
)
def test_tier_table(target: str, native: set[tuple[str, str]]) -> None:
    rows = tier_rows(parse_target(target))
    found = {(r.operand, r.accumulator) for r in rows if r.tier == "native"}
    assert native <= found
    assert found <= native | {("u8", "i32")}
    for row in rows:
        assert (row.refused is None) == bool(row.bodies)
        assert row.refused is None or (row.operand in row.refused and "f16 holds" in row.refused)
        assert row.demoted is None or (row.tier, bool(row.bodies)) == ("native", True)


@pytest.mark.parametrize(
    ("target", "types", "bodies", "coop_tiles"),
    [
        (LISTED, ("f16", "f32"), "native", ("16x16x16", "16x8x16", "16x8x8")),
        (LISTED, ("bf16", "f32"), "gpu.mma_matrix has no bf16 operand", ()),
        (LISTED, ("i8", "i32"), "native", ("16x16x32", "16x8x32")),
        (LISTED, ("u8", "i32"), "native", ("16x16x32", "16x8x32")),
        ("cuda:sm_80", ("f16", "f16"), "", ("16x16x16", "32x8x16", "8x32x16")),
        ("cuda:sm_80", ("u8", "i32"), "", ("16x16x16", "32x8x16", "8x32x16")),
        ("cuda:sm_80", ("f32", "f32"), "", ()),
    ],
)
def test_tier_table_says_what_is_native_in_which_form(
    target: str, types: tuple[str, str], bodies: str, coop_tiles: tuple[str, ...]
) -> None:
    """What is listed and not built says why; the second form has shapes of its own."""
    rows = tier_rows(parse_target(target))
    (row,) = [r for r in rows if (r.operand, r.accumulator) == types]
    assert row.coop_tiles == coop_tiles
    if bodies == "native":
        assert (row.tier, row.demoted) == ("native", None)
    else:
        assert bodies in (row.demoted or "")
