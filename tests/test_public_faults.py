"""Faults that were met on real parts elsewhere; here each is a refusal with its amounts.

Shared memory of another size than a table believed, waves of another width than the shapes were
made for, grids and operands past what the interface can count.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dialects.facts import DeviceFacts, MatrixConfig
from dialects.manifest import Footprint, Needs, Record, Refusal
from dialects.member import Problem, Tile
from dialects.rules import Case, judge
from facts_files import fixture_facts
from kernel_sources import built, lowered, records, source, whole_pipeline
from lowering.build import BuildOptions, lower
from lowering.builder import dense
from lowering.records import plan
from lowering.target import target_from_facts
from records import KERNEL, NATIVE_GROUP, RECORD, record

TILE = Tile(m=64, n=64, k=32, waves_m=2, waves_n=2)
VULKAN_LIMITS = (65535, 65535, 65535)


def refusal(candidate: Record, facts: DeviceFacts, *sizes: int) -> Refusal | None:
    dims = ("B", "M", "N", "K")[-len(sizes) :]
    asked = Problem(dims=dims, sizes=sizes) if sizes else None
    return judge(Case(kernel=KERNEL, record=candidate, facts=facts, problem=asked)).refusal


def waves(width: int, threads: int, *, rows: int = 16, tile: Tile = TILE) -> Record:
    """A member that was counted for 2 x 2 waves, on a part whose waves have that width."""
    group = replace(NATIVE_GROUP, shape=(rows, 8, 16))
    return replace(
        RECORD,
        tile=tile,
        groups=(group,),
        footprint=Footprint(threads_per_group=threads),
        needs=Needs(wave_width=width, waves=(tile.waves_m, tile.waves_n), row_lanes=8),
    )


@pytest.mark.parametrize(
    ("candidate", "need", "limit", "message"),
    [
        # A subgroup of 128: two wave tiles of 64 rows in a block of 64.
        (waves(128, 512, rows=64), 128, 64, "wave tiles of 2 x 64 rows > 64 of the block tile"),
        # Of 16: the four waves that share the tile are half of the block.
        (waves(16, 128), 64, 128, "4 waves of 16 are 64 lanes, the block has 128"),
        # Of 1: a row takes more lanes than there are, and the load stride is 0.
        (waves(1, 4), 8, 4, "load stride < 1: a row takes 8 lanes, the block has 4"),
        (waves(32, 100), 100, 32, "waves of 32 do not cover 100 threads exactly"),
        (
            waves(32, 192, tile=replace(TILE, waves_m=3)),
            3,
            64,
            "3 waves do not share 64 rows of the block tile evenly",
        ),
        (waves(32, 128), None, None, None),
        (waves(2, 8), None, None, None),
    ],
)
def test_waves_that_do_not_fit_the_block(
    candidate: Record, need: int | None, limit: int | None, message: str | None
) -> None:
    found = refusal(candidate, DeviceFacts(backend="vulkan"))
    if message is None:
        assert found is None
    else:
        assert found == Refusal(rule="wave", need=need, limit=limit, message=f"{message} (wave)")


@pytest.mark.parametrize("granted", [32, 64])
def test_a_part_that_grants_one_width_only(granted: int) -> None:
    facts = DeviceFacts(backend="vulkan", wave_widths=(granted,))
    assert refusal(waves(granted, 4 * granted), facts) is None
    other = 96 - granted
    found = refusal(waves(other, 4 * other), facts)
    assert found is not None
    assert (found.rule, found.need, found.limit) == ("wave", other, granted)
    assert found.message == f"wave width {other} not in [{granted}] (wave)"


def test_a_width_that_exists_but_cannot_be_asked_for() -> None:
    facts = DeviceFacts(backend="vulkan", wave_widths=(8, 16, 32), requirable_wave_widths=(16, 32))
    assert refusal(waves(16, 64), facts) is None
    found = refusal(waves(8, 32), facts)
    assert found is not None
    assert found.message == "wave width 8 of [8, 16, 32] cannot be asked for (wave)"
    assert (found.need, found.limit) == (8, 32)


def test_a_driver_update_that_changes_the_subgroup_size() -> None:
    """The pack was built before it: its code is pruned, and none is launched at another width."""
    before = fixture_facts("vulkan-lavapipe-26.2")
    after = replace(before, wave_widths=(16,), driver="a newer one")
    built_before = waves(8, 32)
    built_before = replace(built_before, groups=RECORD.groups)
    assert refusal(built_before, before) is None
    found = refusal(built_before, after)
    assert found is not None
    assert (found.rule, found.need, found.limit) == ("wave", 8, 16)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32, 64, 128])
def test_bodies_follow_the_width_or_refuse(width: int) -> None:
    """Whatever a driver grants, what is emitted passes the rules on that very device."""
    config = MatrixConfig(m=16, n=16, k=16, a="f16", b="f16", acc="f32")
    facts = DeviceFacts(
        backend="vulkan",
        wave_widths=(width,),
        native_matrix_configs=(config,),
        features=("fp16",),
        storage_features=("b16",),
        max_threads_per_block=1024,
        shared_bytes_per_block=32768,
    )
    target = target_from_facts(facts)
    text = source(dense("f16"), TILE)
    candidates, _ = lower(text, "test.mlir", target, BuildOptions())
    assert {c.info.body for c in candidates} == {"coop_matrix", "coop_matrix_narrow"}
    for candidate in candidates:
        made = plan(candidate, target).record
        assert made.footprint.threads_per_group == 4 * width
        assert made.refused is None


@pytest.mark.parametrize("limit", [16384, 8192, 0])
def test_little_or_no_shared_memory(limit: int) -> None:
    facts = DeviceFacts(backend="vulkan", shared_bytes_per_block=limit)
    assert refusal(record(static_shared_bytes=limit), facts) is None
    found = refusal(record(static_shared_bytes=limit + 16), facts)
    assert found is not None
    assert (found.rule, found.need, found.limit) == ("R3", limit + 16, limit)
    assert refusal(record(static_shared_bytes=0), facts) is None


def test_a_device_without_shared_memory_is_refused_before_compiling(compile_cache: Path) -> None:
    target = target_from_facts(DeviceFacts(backend="vulkan", shared_bytes_per_block=0))
    tile = Tile(m=16, n=16, k=16, thread_m=4, thread_n=4)
    with pytest.raises(Exception, match=r"shared 4096 B > 0 B per block \(R3\)"):
        built(source(None, tile), target, compile_cache)


def test_a_limit_that_a_table_has_too_high(compile_cache: Path) -> None:
    """163 KiB believed where the driver grants 99: 229376 B are refused, not launched."""
    facts = fixture_facts("cuda-rtx4090")
    assert facts.shared_limit == 101376
    large = Tile(m=256, n=192, k=64, thread_m=16, thread_n=8)
    small = Tile(m=4, n=4, k=4, thread_m=2, thread_n=2)
    assert 2 * 4 * large.k * (large.m + large.n) == 229376
    text, target = source(dense("f32"), large, small), target_from_facts(facts)
    result = built(text, target, compile_cache, body="software")
    refused, fine = records(result)
    assert refused.refused == Refusal(
        rule="R3", need=229376, limit=101376, message="shared 229376 B > 101376 B per block (R3)"
    )
    assert fine.files is not None
    found = refusal(record(dynamic_shared_bytes=229376), facts, 4096, 4096, 4096)
    assert found == refused.refused


def test_the_compiler_is_told_the_limit_of_the_driver() -> None:
    text = lowered(
        source(None, Tile(m=16, n=16, k=16, thread_m=4, thread_n=4)), whole_pipeline("vulkan")
    )
    assert "max_workgroup_memory_bytes = 65536" in text  # unknown: the most that the ISA allows


@pytest.mark.parametrize(
    ("sizes", "axis", "need"),
    [
        ((128 * 65535 + 1, 1, 1), "y", 65536),
        ((1, 128 * 65535 + 1, 1), "x", 65536),
    ],
)
def test_a_grid_past_what_the_interface_counts(
    sizes: tuple[int, ...], axis: str, need: int
) -> None:
    facts = DeviceFacts(backend="vulkan", max_workgroup_counts=VULKAN_LIMITS)
    found = refusal(RECORD, facts, *sizes)
    assert found is not None
    assert (found.rule, found.need, found.limit) == ("grid", need, 65535)
    assert f"grid {axis} {need} > 65535 workgroups" in found.message


def test_a_batch_past_what_z_counts() -> None:
    assert RECORD.launch is not None
    batched = replace(RECORD, launch=replace(RECORD.launch, grid=("1", "1", "B")))
    facts = DeviceFacts(backend="vulkan", max_workgroup_counts=VULKAN_LIMITS)
    assert refusal(batched, facts, 65535, 1, 1, 1) is None
    found = refusal(batched, facts, 65536, 1, 1, 1)
    assert found is not None
    assert found.message == "grid z 65536 > 65535 workgroups (grid)"


def test_more_elements_than_32_bits_index() -> None:
    facts = DeviceFacts(backend="vulkan")
    assert refusal(RECORD, facts, 1 << 16, 1, 1 << 15) is None
    found = refusal(RECORD, facts, 1 << 16, 1, (1 << 15) + 1)
    assert found is not None
    assert (found.rule, found.limit) == ("index", 1 << 31)
    assert found.need == (1 << 31) + (1 << 16)
