"""What the rules record of a survivor: residency (R4), fill and split (R5), padding (R6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.facts import DeviceFacts
from dialects.manifest import Launch, Record, SplitK
from dialects.member import Problem
from dialects.rules import Case, Verdict, fill_and_split, judge, mnk, padding_permille
from facts_files import fixture_facts
from records import KERNEL, RECORD, record

RTX_4090 = fixture_facts("cuda-rtx4090")


def survivor(
    candidate: Record, facts: DeviceFacts, dims: tuple[str, ...] = (), sizes: tuple[int, ...] = ()
) -> Verdict:
    """The verdict on a candidate that survives."""
    asked = Problem(dims=dims, sizes=sizes) if dims else None
    verdict = judge(Case(kernel=KERNEL, record=candidate, facts=facts, problem=asked))
    assert verdict.ok
    return verdict


def test_a_survivor_carries_its_residency() -> None:
    pinned = record(registers=255, threads_per_group=256, static_shared_bytes=34816)
    assert survivor(pinned, RTX_4090).resident == 1
    assert survivor(record(threads_per_group=256), RTX_4090).resident == 6
    assert survivor(pinned, DeviceFacts(backend="cuda")).resident is None
    assert survivor(RECORD, RTX_4090).resident is None


@pytest.mark.parametrize(
    ("sizes", "fills", "pad"),
    [
        ((128, 4096, 4096), False, 0),
        ((512, 4096, 4096), True, 0),
        ((100, 4096, 4096), False, 218),
        ((16, 128, 4096, 4096), True, 0),
        ((127, 127, 127), False, 15),
        ((0, 4096, 4096), False, 0),
        ((1, 1, 1), False, 999),
    ],
)
def test_a_survivor_carries_fill_and_padding(sizes: tuple[int, ...], fills: bool, pad: int) -> None:
    dims = ("B", "M", "N", "K")[-len(sizes) :]
    kernel_dims = replace(KERNEL, dims=dims)
    asked = Problem(dims=dims, sizes=sizes)
    verdict = judge(Case(kernel=kernel_dims, record=RECORD, facts=RTX_4090, problem=asked))
    assert (verdict.fills, verdict.splits, verdict.pad_permille) == (fills, 1, pad)


def test_a_survivor_before_a_problem_is_known_records_no_padding() -> None:
    verdict = survivor(RECORD, RTX_4090)
    assert (verdict.fills, verdict.splits, verdict.pad_permille) == (True, 1, 0)


def test_sizes_without_a_batch_have_one() -> None:
    assert mnk(Problem(dims=("M", "N", "K"), sizes=(2, 3, 4))) == (1, 2, 3, 4)
    assert mnk(Problem(dims=("B", "M", "N", "K"), sizes=(5, 2, 3, 4))) == (5, 2, 3, 4)


@pytest.mark.parametrize(
    ("tiles", "k", "k_block", "multiprocessors", "expected"),
    [
        # The pinned vectors: 128x4096x4096 and M = 512 with 128x128 tiles and blocks of 256.
        (32, 4096, 256, 128, (True, 4)),
        (128, 4096, 256, 128, (True, 1)),
        # None fills: the largest divisor of the 16 blocks up to 16 stays.
        (4, 4096, 256, 128, (False, 16)),
        (1, 4096, 256, 128, (False, 16)),
        # 15 blocks: 3, 5 and 15; the first that fills.
        (32, 3840, 256, 96, (True, 3)),
        (32, 3840, 256, 97, (True, 5)),
        # 17 blocks: no divisor in reach.
        (32, 4352, 256, 128, (False, 1)),
        # Part of a block does not count.
        (32, 4096 + 255, 256, 128, (True, 4)),
        (32, 255, 256, 128, (False, 1)),
        (32, 4096, 0, 128, (False, 1)),
        (32, 4096, 256, None, (True, 1)),
        (0, 4096, 256, None, (True, 1)),
    ],
)
def test_fill_and_split_examples(
    tiles: int, k: int, k_block: int, multiprocessors: int | None, expected: tuple[bool, int]
) -> None:
    found = fill_and_split(tiles=tiles, k=k, k_block=k_block, multiprocessors=multiprocessors)
    assert found == expected


def test_the_number_of_splits_has_a_ceiling() -> None:
    def splits(most: int) -> tuple[bool, int]:
        return fill_and_split(tiles=1, k=64, k_block=1, multiprocessors=32, max_splits=most)

    assert splits(1) == (False, 1)
    assert splits(8) == (False, 8)
    assert splits(32) == (True, 32)


@given(
    tiles=st.integers(0, 300),
    k=st.integers(0, 10_000),
    k_block=st.sampled_from([0, 1, 7, 32, 256]),
    multiprocessors=st.none() | st.integers(1, 300),
    most=st.integers(1, 20),
)
def test_fill_and_split_is_the_first_legal_divisor_that_fills(
    tiles: int, k: int, k_block: int, multiprocessors: int | None, most: int
) -> None:
    fills, splits = fill_and_split(
        tiles=tiles, k=k, k_block=k_block, multiprocessors=multiprocessors, max_splits=most
    )
    blocks = k // k_block if k_block else 0
    legal = [1] + [s for s in range(2, most + 1) if blocks > 0 and blocks % s == 0]
    if multiprocessors is None:
        assert (fills, splits) == (True, 1)
        return
    filling = [s for s in legal if tiles * s >= multiprocessors]
    assert fills == bool(filling)
    assert splits == (filling[0] if filling else legal[-1])


def test_padding_of_the_pinned_vector() -> None:
    assert padding_permille(100, 4096, 128, 128) == 218


@given(
    m=st.integers(0, 5000),
    n=st.integers(0, 5000),
    tile_m=st.integers(1, 300),
    tile_n=st.integers(1, 300),
)
def test_padding_is_the_share_of_the_tiles_that_lies_outside(
    m: int, n: int, tile_m: int, tile_n: int
) -> None:
    found = padding_permille(m, n, tile_m, tile_n)
    rows, columns = len(range(0, m, tile_m)) * tile_m, len(range(0, n, tile_n)) * tile_n
    padded = rows * columns
    if not padded:
        assert found == 0
        return
    assert found * padded <= (padded - m * n) * 1000 < (found + 1) * padded
    assert 0 <= found < 1000
    assert padding_permille(rows, columns, tile_m, tile_n) == 0
    assert padding_permille(n, m, tile_n, tile_m) == found


SPLIT = SplitK(
    k_block=256,
    workspace="4 * M * N * splits",
    launch=Launch(
        entry="gemm_split",
        grid=("ceildiv(N, 128)", "ceildiv(M, 128)", "splits"),
        block=(256, 1, 1),
        dynamic_shared_bytes=0,
        bindings=(),
        constants=(),
    ),
)


@pytest.mark.parametrize(
    ("sizes", "changes", "expected"),
    [
        ((128, 4096, 4096), {}, (True, 4)),
        ((512, 4096, 4096), {}, (True, 1)),
        ((128, 4096, 255), {}, (False, 1)),
        # No member is pruned because its split would not fit: it does not split.
        ((128, 4096, 4096), {"max_workgroup_counts": (65535, 65535, 3)}, (False, 1)),
        ((128, 4096, 4096), {"max_workgroup_counts": (65535, 65535, 4)}, (True, 4)),
        ((2048, 512, 512), {"max_binding_bytes": 8 << 20}, (True, 2)),
        ((2048, 512, 512), {"max_binding_bytes": (8 << 20) - 1}, (False, 1)),
        ((128, 4096, 4096), {"max_workgroup_sizes": (128, 1, 1)}, None),
        ((128, 4096, 4096), {"memory_bytes": 43 << 20}, (True, 4)),
        ((128, 4096, 4096), {"memory_bytes": 42 << 20}, (False, 1)),
        ((128, 4096, 4096), {"multiprocessors": None}, (True, 1)),
    ],
)
def test_a_split_is_recorded_where_the_member_has_one_and_the_device_takes_it(
    sizes: tuple[int, ...], changes: dict[str, Any], expected: tuple[bool, int] | None
) -> None:
    facts = replace(RTX_4090, **changes)
    asked = Problem(dims=("M", "N", "K"), sizes=sizes)
    candidate = replace(RECORD, split=SPLIT)
    verdict = judge(Case(kernel=KERNEL, record=candidate, facts=facts, problem=asked))
    if expected is None:
        assert verdict.refusal is not None  # the member itself is too wide
        return
    assert verdict.ok
    assert (verdict.fills, verdict.splits) == expected
