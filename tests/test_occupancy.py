"""Resident workgroups: against pinned readings, and against what the numbers must satisfy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.facts import DeviceFacts
from dialects.occupancy import Residency, Usage, feasible_blocks, residency
from facts_files import fixture_facts

RTX_4090 = fixture_facts("cuda-rtx4090")
H200 = fixture_facts("cuda-h200")
UNKNOWN = DeviceFacts(backend="cuda")


@pytest.mark.parametrize(
    ("usage", "groups", "limiter", "need", "limit"),
    [
        # The pinned vector: the register file holds one group, everything else more.
        (Usage(threads=256, registers=255, shared_bytes=34816), 1, "registers", 65280, 65536),
        (Usage(threads=256, registers=64, shared_bytes=34816), 2, "shared", 34816, 102400),
        (Usage(threads=512, registers=32, shared_bytes=1024), 3, "threads", 512, 1536),
        (Usage(threads=32, registers=16, shared_bytes=1024), 24, "blocks", 1, 24),
        (Usage(threads=1024), 1, "threads", 1024, 1536),
        (Usage(threads=1025), 0, "threads per block", 1025, 1024),
        (Usage(threads=512, registers=255), 0, "registers", 130560, 65536),
        (Usage(shared_bytes=102400), 1, "shared", 102400, 102400),
        (Usage(shared_bytes=102401), 0, "shared", 102401, 102400),
    ],
)
def test_the_least_budget_binds(
    usage: Usage, groups: int, limiter: str, need: int, limit: int
) -> None:
    expected = Residency(groups=groups, limiter=limiter, need=need, limit=limit)
    assert residency(usage, RTX_4090) == expected


def test_the_shared_bytes_that_the_driver_reserves_count() -> None:
    usage = Usage(threads=128, shared_bytes=232448)
    found = residency(usage, H200)
    assert found == Residency(groups=1, limiter="shared", need=233472, limit=233472)
    more = replace(H200, shared_bytes_reserved_per_block=1025)
    assert residency(usage, more) == Residency(
        groups=0, limiter="shared", need=233473, limit=233472
    )


@pytest.mark.parametrize(
    ("usage", "facts"),
    [
        (Usage(), RTX_4090),
        (Usage(registers=255), RTX_4090),
        (Usage(threads=256, registers=255, shared_bytes=1 << 20), UNKNOWN),
        (Usage(threads=256), replace(UNKNOWN, max_threads_per_block=1024)),
        (Usage(shared_bytes=0), RTX_4090),
    ],
)
def test_nothing_known_is_no_answer(usage: Usage, facts: DeviceFacts) -> None:
    assert residency(usage, facts) is None


AMOUNTS = st.none() | st.integers(1, 300_000)


@given(
    threads=AMOUNTS,
    registers=st.none() | st.integers(1, 255),
    shared=AMOUNTS,
    facts=st.builds(
        DeviceFacts,
        backend=st.just("cuda"),
        max_threads_per_block=AMOUNTS,
        threads_per_multiprocessor=AMOUNTS,
        registers_per_multiprocessor=AMOUNTS,
        shared_bytes_per_multiprocessor=AMOUNTS,
        shared_bytes_reserved_per_block=st.none() | st.integers(0, 2048),
        blocks_per_multiprocessor=st.none() | st.integers(1, 64),
    ),
)
def test_so_many_groups_fit_and_one_more_does_not(
    threads: int | None, registers: int | None, shared: int | None, facts: DeviceFacts
) -> None:
    found = residency(Usage(threads=threads, registers=registers, shared_bytes=shared), facts)
    if found is None:
        return
    assert found.groups * found.need <= found.limit < (found.groups + 1) * found.need
    used = {
        facts.threads_per_multiprocessor: threads,
        facts.registers_per_multiprocessor: threads and registers and threads * registers,
        facts.shared_bytes_per_multiprocessor: shared,
        facts.blocks_per_multiprocessor: 1,
    }
    for limit, need in used.items():
        if limit is not None and need is not None:
            assert found.groups * need <= limit


def test_feasible_blocks_go_from_most_resident_threads_to_least() -> None:
    # 255 registers: 256 threads fill the file however they are cut, 512 do not fit at all.
    assert feasible_blocks(Usage(registers=255), RTX_4090) == (256, 128, 64, 32)
    # Nothing but threads: 1024 leave a third of the 1536 idle, 32 and below meet 24 blocks.
    assert feasible_blocks(Usage(), RTX_4090) == (512, 256, 128, 64, 1024, 32)
    # One group by shared bytes: the larger the block, the more threads.
    assert feasible_blocks(Usage(shared_bytes=101376), RTX_4090) == (1024, 512, 256, 128, 64, 32)
    assert feasible_blocks(Usage(shared_bytes=102401), RTX_4090) == ()


def test_feasible_blocks_are_whole_waves_of_the_narrowest_width() -> None:
    facts = replace(RTX_4090, wave_widths=(64, 128), max_threads_per_block=256)
    assert feasible_blocks(Usage(), facts) == (256, 128, 64)


@pytest.mark.parametrize("unknown", ["wave_widths", "max_threads_per_block"])
def test_feasible_blocks_need_the_wave_and_the_limits(unknown: str) -> None:
    assert feasible_blocks(Usage(), replace(RTX_4090, **{unknown: None})) is None
    known = DeviceFacts(backend="cuda", wave_widths=(32,), max_threads_per_block=1024)
    assert feasible_blocks(Usage(registers=32), known) is None
