"""The wgmma bodies: what they take, what their code holds, and the arithmetic of their tiles."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from kernel_sources import built, code_of, records, source, tile_body
from lowering.builder import dense
from lowering.target import parse_target
from lowering.tiles import BODIES, refusal_of
from lowering.tiles.raster import TileOrder
from lowering.tiles.wgmma_store import CHUNK_ROWS, StagedStore
from word_machine import WordMachine

TILE = Tile(m=64, n=64, k=64, waves_m=4, waves_n=1, stages=3)
NAMES = ("tma_wgmma", "tma_wgmma_pair", "wgmma")
HOPPER = parse_target("cuda:sm_90a")
PLAIN = dense("f16")
EIGHT_BIT = dense("i8", "i32", transposed_b=True)


def refusal(name: str, contraction: Contraction = PLAIN, tile: Tile = TILE) -> str:
    """What a body says of a member; empty when it takes it."""
    return tile_body(name).refusal(contraction, tile, HOPPER) or ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("contraction", "change", "said"),
    [
        (PLAIN, {"k": 32}, "takes k = 64 of f16, found 32"),
        (PLAIN, {"waves_m": 3}, "takes 4, 8 or 12 waves, found 3x1"),
        (PLAIN, {"waves_m": 16}, "takes 4, 8 or 12 waves, found 16x1"),
        (PLAIN, {"m": 96}, "takes m in 64 rows for each 4 of 4 waves, found 96"),
        (PLAIN, {"n": 48}, "takes n as a multiple of 64 up to 256, found 48"),
        (PLAIN, {"n": 512}, "takes n as a multiple of 64 up to 256, found 512"),
        (PLAIN, {"m": 128, "n": 256}, "would hold 256 > 128 sums a lane"),
        (PLAIN, {"stages": 2}, "needs stages >= 3, found 2"),
        (PLAIN, {"n": 128, "stages": 12}, "would take"),
        (dense("f32"), {}, "has no f32*f32->f32"),
        (dense("f16", "f64"), {}, "has no f16*f16->f64"),
        (dense("i8", "i32"), {"k": 128}, "takes 8-bit operands with k contiguous"),
        (EIGHT_BIT, {}, "takes k = 128 of i8, found 64"),
    ],
)
def test_a_member_that_cannot_be_built_is_refused_by_name(
    name: str, contraction: Contraction, change: dict[str, int], said: str
) -> None:
    assert f"{name} {said}" in refusal(name, contraction, replace(TILE, **change))


@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_89", "cuda:sm_100a"])
@pytest.mark.parametrize("name", NAMES)
def test_another_isa_is_refused(name: str, target: str) -> None:
    isa = target.partition(":")[2]
    said = tile_body(name).refusal(PLAIN, TILE, parse_target(target))
    assert said == f"{name} is for sm_90a, the target is {isa}"


def test_a_pair_splits_the_columns_between_two() -> None:
    assert "splits n among 2 workgroups, found 64" in refusal("tma_wgmma_pair")
    assert refusal("tma_wgmma_pair", tile=replace(TILE, n=128)) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "needs cluster of 2 to 8, found 0"),
        ({"cluster": 1}, "needs cluster of 2 to 8, found 1"),
        ({"cluster": 16}, "needs cluster of 2 to 8, found 16"),
        ({"cluster": 3}, "splits n among 3 workgroups, found 64"),
        ({"cluster": 2, "k": 32}, "takes k = 64 of f16, found 32"),
    ],
)
def test_who_shares_k_is_a_cluster(change: dict[str, int], said: str) -> None:
    assert f"tma_wgmma_split {said}" in refusal("tma_wgmma_split", tile=replace(TILE, **change))
    assert refusal("tma_wgmma_split", tile=replace(TILE, cluster=4)) == ""


@pytest.mark.parametrize("parameter", ["waves_k", "cluster"])
def test_only_bodies_that_share_k_take_members_that_do(parameter: str) -> None:
    """Others would be built of them twice."""
    for body in BODIES:
        said = refusal_of(body, PLAIN, replace(TILE, **{parameter: 2}), HOPPER) or ""
        shares = body.name in {"mma_rows", "tma_wgmma_split"}
        assert (f"{body.name} has no {parameter}, found 2" in said) != (
            shares and (parameter, body.name) != ("waves_k", "tma_wgmma_split")
        )


@pytest.mark.parametrize("name", ["tma_wgmma", "wgmma"])
@pytest.mark.parametrize(
    ("contraction", "k"),
    [
        (PLAIN, 64),
        (dense("bf16"), 64),
        (dense("f16", "f16"), 64),
        (EIGHT_BIT, 128),
        (dense("f8e4m3", transposed_b=True), 128),
    ],
)
def test_what_the_instruction_has_is_taken(name: str, contraction: Contraction, k: int) -> None:
    assert refusal(name, contraction, replace(TILE, k=k)) == ""


CAST = EpilogueStep(op="cast", type="f16")
BIAS = Operand(name="bias", type="f32", dims=("N",))
FINISHED = dense(
    "f16", result="f16", extras=(BIAS,), epilogue=(EpilogueStep(op="add", operand="bias"), CAST)
)


@pytest.mark.parametrize(
    ("name", "contraction", "tile", "products"),
    [
        ("tma_wgmma", PLAIN, TILE, 4),
        ("tma_wgmma", FINISHED, replace(TILE, m=128), 8),
        ("tma_wgmma_pair", dense("bf16", transposed_b=True), replace(TILE, n=128), 4),
        ("tma_wgmma_split", PLAIN, replace(TILE, cluster=2), 4),
        ("wgmma", PLAIN, TILE, 4),
        ("wgmma", EIGHT_BIT, replace(TILE, k=128), 4),
    ],
)
def test_the_code_holds_exactly_the_instructions_that_were_emitted(
    name: str, contraction: Contraction, tile: Tile, products: int, compile_cache: Path
) -> None:
    result = built(source(contraction, tile), HOPPER, compile_cache, body=name)
    (record,) = records(result)
    text = code_of(result, record).decode()
    assert record.groups[0].count == products
    assert re.search(r"^\.target sm_90a$", text, re.M)
    version = re.search(r"^\.version (\d+)\.(\d+)$", text, re.M)
    assert version is not None
    assert (int(version[1]), int(version[2])) >= (8, 3)
    assert text.count("cp_fenceproxy") == (1 if name == "wgmma" else 3)
    assert (".reqnctapercluster 2" in text) == (name in ("tma_wgmma_pair", "tma_wgmma_split"))
    assert text.count("barrier.cluster.wait") == {"tma_wgmma_pair": 2, "tma_wgmma_split": 4}.get(
        name, 0
    )
    assert text.index("griddepcontrol.wait") < text.index("cp_fenceproxy")
    assert record.launch is not None
    assert record.launch.overlaps
    assert record.launch.dynamic_shared_bytes == record.footprint.shared_bytes


def test_rows_and_addresses_are_needed_in_whole_copies(compile_cache: Path) -> None:
    (engine,) = records(built(source(PLAIN, TILE), HOPPER, compile_cache, body="tma_wgmma"))
    (threads,) = records(built(source(PLAIN, TILE), HOPPER, compile_cache, body="wgmma"))
    # the engine stores whole 16 bytes of a row, so its length counts too
    assert engine.needs.alignment == {"a.0": 8, "b.0": 8, "c.0": 4, "N": 4}
    assert threads.needs.alignment == {"a.0": 2, "b.0": 2}


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 20),
    batches=st.integers(1, 3),
    group=st.integers(1, 16),
)
def test_every_tile_is_walked_once(rows: int, columns: int, batches: int, group: int) -> None:
    machine = WordMachine()
    order = TileOrder(rows=rows, columns=columns, batches=batches, group=group)
    count = order.count(machine)
    assert count == rows * columns * batches
    places = [order.place(machine, i) for i in range(rows * columns * batches)]
    assert set(places) == {
        (r, c, b) for r in range(rows) for c in range(columns) for b in range(batches)
    }
    steps = [(b, r // group, c) for r, c, b in places if isinstance(r, int)]
    assert [step[:2] for step in steps] == sorted(step[:2] for step in steps)
    for before, after in pairwise(steps):  # a column of a group, then the one beside it
        if before[:2] == after[:2]:
            assert abs(cast(int, after[2]) - cast(int, before[2])) <= 1


def _staged(type_: str) -> dict[tuple[int, int], int]:
    """(row, byte) of a chunk -> byte offset in staging memory, by what every lane writes."""
    found: dict[tuple[int, int], int] = {}
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        store = StagedStore(
            ir=WordMachine(), type=type_, buffer=0, barrier=1, thread=thread, tensor=""
        )
        for i, address in enumerate(store.addresses()):
            assert isinstance(address, int)
            if type_ == "f32":  # one lane: eight bytes of two rows
                for half in range(2):
                    row = warp * 16 + lane // 4 + 8 * half
                    at = (row, (8 * i + 2 * (lane % 4)) * 4)
                    assert at not in found
                    found[at] = address + half * 8 * 128
            else:  # stmatrix: a lane names the row of one of four 8x8 matrices
                matrix, row = divmod(lane, 8)
                at = (warp * 16 + matrix % 2 * 8 + row, (2 * i + matrix // 2) * 16)
                assert at not in found
                found[at] = address
    return found


@pytest.mark.parametrize(("type_", "unit"), [("f16", 16), ("f32", 8)])
def test_a_chunk_is_staged_as_the_engine_reads_it(type_: str, unit: int) -> None:
    found = _staged(type_)
    assert sorted(found) == [(r, b) for r in range(CHUNK_ROWS) for b in range(0, 128, unit)]
    for (row, byte), offset in found.items():
        # the 128-byte swizzle: 16-byte columns exchanged by the row's place among eight
        swizzled = (byte // 16 ^ row % 8) * 16 + byte % 16
        assert offset == row * 128 + swizzled
