"""The body of few rows, executed lane by lane on the host, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from emulated_wave import Fault
from kernel_sources import built, code_of, records, source, tile_body
from lowering.builder import dense
from lowering.target import parse_target
from mma_cases import TARGET, Case, product, sizes

SMALL = Tile(m=8, n=64, k=32, waves_n=1, waves_k=2, stages=2)
BIAS = Operand(name="bias", type="f32", dims=("N",))
COLUMN = Operand(name="column", type="f16", dims=("M",))
EIGHT_BIT = dense("i8", "i32", transposed_b=True)


@pytest.mark.parametrize("flip_b", [False, True])
@pytest.mark.parametrize(
    ("tile", "shape"),
    [
        (SMALL, (1, 8, 8)),
        (SMALL, (9, 64, 32)),
        (replace(SMALL, cluster=2), (7, 72, 40)),
        (replace(SMALL, m=16, n=128, waves_n=2, waves_k=1, stages=3), (16, 200, 264)),
        (replace(SMALL, m=24, k=64, waves_k=4, cluster=4), (9, 136, 520)),
        (replace(SMALL, n=32), (6, 40, 72)),
    ],
    ids=lambda v: v.name if isinstance(v, Tile) else "",
)
def test_the_result_is_exact(tile: Tile, flip_b: bool, shape: tuple[int, int, int]) -> None:
    """Rows, columns and K that tiles do not divide, turns that run out, several workgroups."""
    case = Case(dense("f16", transposed_b=flip_b), tile, "mma_rows", sizes(*shape))
    case.run()
    case.run(reverse=True)


def test_many_rows_and_columns() -> None:
    """Two blocks of 64 columns a wave; and 64 rows, where B has fewer columns a wave."""
    wide = replace(SMALL, m=32, n=128, k=16)
    Case(dense("f16"), wide, "mma_rows", sizes(35, 136, 40)).run()
    Case(dense("f16"), replace(SMALL, m=64, k=16), "mma_rows", sizes(70, 72, 40)).run()
    along = replace(SMALL, m=64, n=32)
    Case(dense("f16", transposed_b=True), along, "mma_rows", sizes(70, 40, 72)).run()


@pytest.mark.parametrize("type_", ["bf16", "f8e4m3", "f8e5m2", "i8", "u8"])
def test_other_types(type_: str) -> None:
    integer = type_ in ("i8", "u8")
    c = dense(type_, "i32" if integer else "f32", transposed_b=True)
    tile = replace(SMALL, k=64, cluster=2)
    Case(c, tile, "mma_rows", sizes(5, 40, 208)).run()


@pytest.mark.parametrize("pad", [8, 16])
def test_batches_and_strides(pad: int) -> None:
    c = product("f16", batch=True)
    Case(c, replace(SMALL, cluster=2), "mma_rows", sizes(5, 72, 40, 3), pad).run()


@pytest.mark.parametrize(
    ("result", "epilogue", "extras", "accumulate"),
    [
        ("f32", (), (), True),
        ("f16", (EpilogueStep(op="cast", type="f16"),), (), False),
        ("f16", (), (), False),
        (
            "bf16",
            (
                EpilogueStep(op="add", operand="bias"),
                EpilogueStep(op="add", operand="column"),
                EpilogueStep(op="max", constant=0.0),
                EpilogueStep(op="cast", type="bf16"),
            ),
            (BIAS, COLUMN),
            True,
        ),
    ],
)
def test_results(
    result: str,
    epilogue: tuple[EpilogueStep, ...],
    extras: tuple[Operand, ...],
    accumulate: bool,
) -> None:
    accumulator = result if not epilogue else "f32"
    c = dense(
        "f16", accumulator, result=result, epilogue=epilogue, extras=extras, accumulate=accumulate
    )
    Case(c, replace(SMALL, cluster=2), "mma_rows", sizes(11, 72, 24)).run()


def test_no_k_at_all_gives_zeros() -> None:
    Case(dense("f16"), SMALL, "mma_rows", sizes(3, 16, 0)).run()


MEET = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("bar.warp.sync 0xffffffff;", "", "writes what another lane uses, no sync of the wave"),
        ("cp.async.wait_group 0", "cp.async.wait_group 1", "writes where a copy is on its way to"),
        ("cp.async.wait_group 1", "cp.async.wait_group 2", "reads a copy that is on its way"),
        (MEET, "", "reads what another lane writes, no sync of the wave"),
        (MEET, "barrier.cluster.wait;", "waits at a barrier where it has not arrived"),
        ("barrier.cluster.wait;", "", "ends while another workgroup reads its memory"),
    ],
)
def test_what_is_not_waited_for_is_said(old: str, new: str, fault: str) -> None:
    """At the last place of each: of lanes, of copies, of workgroups."""
    case = Case(dense("f16"), replace(SMALL, stages=3, cluster=2), "mma_rows", sizes(7, 64, 200))
    at = case.text.rindex(old)
    with pytest.raises(Fault, match=fault):
        case.run(case.text[:at] + new + case.text[at + len(old) :])


def test_a_barrier_of_the_workgroup_is_none_of_the_cluster() -> None:
    case = Case(dense("f16"), replace(SMALL, cluster=2), "mma_rows", sizes(7, 64, 200))
    lines = ["gpu.barrier" if MEET in line else line for line in case.text.splitlines()]
    with pytest.raises(Fault, match="reads what another workgroup writes, no barrier of the clus"):
        case.run("\n".join(lines))


def refusal(contraction: Contraction = dense("f16"), tile: Tile = SMALL, isa: str = "") -> str:  # noqa: B008
    """What the body says of a member; empty when it takes it."""
    target = parse_target(f"cuda:{isa}") if isa else TARGET
    return tile_body("mma_rows").refusal(contraction, tile, target) or ""


@pytest.mark.parametrize(
    ("contraction", "tile", "said"),
    [
        (dense("f16"), replace(SMALL, waves_k=0), "needs waves_n, waves_k"),
        (dense("f16"), replace(SMALL, stages=1), "stages of at least 2"),
        (dense("f16"), replace(SMALL, waves_m=2), "no waves along M, found 2"),
        (dense("f16"), replace(SMALL, m=128), "m = 128 > 64"),
        (dense("f16"), replace(SMALL, m=12), "m = 12 is no multiple of 8"),
        (
            dense("f16"),
            replace(SMALL, n=96),
            "1 waves do not cut n = 96 into parts of 32, 64 or 128",
        ),
        (dense("f16"), replace(SMALL, k=24), "k = 24 is no multiple of 16"),
        (dense("f16"), replace(SMALL, k=128), "k = 128 is not 16, 32 or 64"),
        (dense("f16"), replace(SMALL, waves_k=64), "2048 threads > 1024"),
        (dense("f16"), replace(SMALL, m=64, n=128), "would hold"),
        (dense("f16"), replace(SMALL, cluster=16), "a cluster of 16 > 8"),
        (dense("f16"), replace(SMALL, cluster=5), "do not cut 8x64 sums"),
        (product("f16", flip_a=True), SMALL, "takes A with k contiguous"),
        (dense("i8", "i32"), replace(SMALL, k=64), "takes 8-bit B with k contiguous"),
        (EIGHT_BIT, SMALL, "k = 32 is no multiple of 64"),
        (dense("f32"), SMALL, "has no mma.sync for f32*f32->f32"),
        (dense("f16", transposed_b=True, source_b="q8_0"), SMALL, "has no q8_0 source"),
    ],
)
def test_what_it_cannot_build_is_refused_by_name(
    contraction: Contraction, tile: Tile, said: str
) -> None:
    assert "mma_rows" in refusal(contraction, tile)
    assert said in refusal(contraction, tile)


@pytest.mark.parametrize(("isa", "overlaps"), [("sm_80", False), ("sm_90", True)])
def test_only_parts_that_have_it_overlap_launches(
    isa: str, overlaps: bool, compile_cache: Path
) -> None:
    """The kernel waits before it touches memory, and says in its launch that it does."""
    for body, tile in (
        ("mma_rows", SMALL),
        ("mma_sync", Tile(m=32, n=32, k=32, waves_m=1, waves_n=2, stages=2)),
    ):
        result = built(
            source(dense("f16"), tile), parse_target(f"cuda:{isa}"), compile_cache, body=body
        )
        (record,) = records(result)
        text = code_of(result, record).decode()
        assert record.launch is not None
        assert record.launch.overlaps == overlaps
        assert text.count("griddepcontrol.wait") == text.count("launch_dependents") == overlaps
        if overlaps:
            assert text.index("griddepcontrol.wait") < text.index("cp.async.cg")
        assert record.groups[0].count == len(re.findall(r"mma\.sync", text)) > 0


def test_a_member_says_who_shares_its_k() -> None:
    assert replace(SMALL, cluster=4).name == "8x64x32_w0x1_s2_k2_c4"


def test_a_cluster_needs_an_isa_that_has_them() -> None:
    assert "has no clusters, found cluster = 2" in refusal(
        tile=replace(SMALL, cluster=2), isa="sm_89"
    )
    assert refusal(tile=SMALL, isa="sm_80") == ""
    assert refusal(tile=replace(SMALL, cluster=2), isa="sm_90") == ""
