"""The least time a launch can take, from what a driver and an instruction set state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dialects.facts import DeviceFacts
from dialects.manifest import Record
from dialects.member import Problem
from dialects.operands import OperandGroup, Tier
from facts_files import fixture_facts
from lowering.instructions import macs_per_clock
from lowering.target import parse_target
from records import KERNEL, NATIVE_GROUP, RECORD
from runtime.ceilings import HEADROOM, bytes_a_second, least_microseconds, macs_a_second

FACTS = DeviceFacts(
    backend="cuda",
    multiprocessors=100,
    clock_khz=1_000_000,
    memory_bus_bits=1024,
    memory_clock_khz=1_000_000,
    l2_bytes=1 << 20,
)
NATIVE = replace(RECORD, groups=(replace(NATIVE_GROUP, macs_per_clock=1000),))
SQUARE = Problem(dims=("M", "N", "K"), sizes=(4096, 4096, 4096))
ROW = Problem(dims=("M", "N", "K"), sizes=(1, 4096, 4096))


def test_bandwidth_is_bus_times_clock_at_double_data_rate() -> None:
    assert bytes_a_second(FACTS) == 256e9


def test_a_matrix_rate_is_multiprocessors_times_clock_times_the_instructions() -> None:
    assert macs_a_second(FACTS, NATIVE) == 1e14


def test_a_square_product_is_bound_by_the_matrix_rate() -> None:
    least = least_microseconds(FACTS, KERNEL, NATIVE, SQUARE)
    assert least == pytest.approx(4096**3 / 1e14 / HEADROOM * 1e6)


def test_a_row_is_bound_by_what_the_cache_does_not_hold() -> None:
    nbytes = 2 * 4096 + 2 * 4096**2 + 4 * 4096
    least = least_microseconds(FACTS, KERNEL, NATIVE, ROW)
    assert least == pytest.approx((nbytes - (1 << 20)) / 256e9 / HEADROOM * 1e6)
    cold = least_microseconds(FACTS, KERNEL, NATIVE, ROW, sets=4)
    assert cold == pytest.approx((nbytes - (1 << 18)) / 256e9 / HEADROOM * 1e6)
    cached = replace(FACTS, l2_bytes=1 << 30)
    assert least_microseconds(cached, KERNEL, NATIVE, ROW) == pytest.approx(
        4096**2 / 1e14 / HEADROOM * 1e6
    )


@pytest.mark.parametrize(
    ("facts", "record"),
    [
        (DeviceFacts(backend="vulkan"), NATIVE),
        (replace(FACTS, clock_khz=None, memory_clock_khz=None), NATIVE),
        (replace(FACTS, multiprocessors=None, l2_bytes=None), NATIVE),
        (replace(FACTS, memory_bus_bits=None), RECORD),
    ],
)
def test_without_clocks_or_rates_no_ceiling_is_known(facts: DeviceFacts, record: Record) -> None:
    assert least_microseconds(facts, KERNEL, record, SQUARE) is None


def test_a_group_of_unknown_rate_leaves_the_matrix_rate_unknown() -> None:
    mixed = replace(NATIVE, groups=(*NATIVE.groups, NATIVE_GROUP))
    assert macs_a_second(FACTS, mixed) is None


@pytest.mark.parametrize(
    ("built", "own", "known"),
    [
        ("cuda:sm_90a", "sm_90a", True),
        ("cuda:sm_90", "sm_90a", True),
        ("cuda:sm_90a", "sm_90", True),
        ("cuda:sm_89", "sm_90a", False),
        ("cuda:sm_80", "sm_89", False),
        ("rocm:gfx1100", "gfx1101", False),
        ("vulkan", None, True),
    ],
)
def test_the_rate_of_another_instruction_set_is_no_ceiling(
    built: str, own: str | None, known: bool
) -> None:
    """A later part runs the code of an earlier one, and faster than that one could."""
    record = replace(NATIVE, identity=replace(NATIVE.identity, target=built, isa=None))
    assert (macs_a_second(replace(FACTS, isa=own), record) is not None) == known


@pytest.mark.parametrize(("tflops", "possible"), [(759, True), (989, True), (1400, False)])
def test_the_best_rate_that_was_measured_passes_and_one_above_the_peak_does_not(
    tflops: float, possible: bool
) -> None:
    """759 is the vendor library's at 4096^3 on that device, 989 the peak its maker states."""
    record = replace(RECORD, groups=(replace(NATIVE_GROUP, macs_per_clock=2048),))
    least = least_microseconds(fixture_facts("cuda-h200"), KERNEL, record, SQUARE)
    assert least is not None
    assert (2 * 4096**3 / (tflops * 1e6) >= least) == possible


@pytest.mark.parametrize(
    ("target", "a", "acc", "tier", "rate"),
    [
        ("cuda:sm_90a", "f16", "f32", "native", 2048),
        ("cuda:sm_90a", "i8", "i32", "native", 4096),
        ("cuda:sm_89", "f16", "f32", "native", 512),
        ("cuda:sm_80", "bf16", "f32", "native", 1024),
        ("rocm:gfx1100", "f16", "f32", "native", 256),
        ("rocm:gfx942", "i8", "i32", "native", 2048),
        ("cuda:sm_90a", "f32", "f32", "software", 128),
        ("cpu:x86-64-v4", "f32", "f32", "software", 32),
        ("cuda:sm_75", "f16", "f32", "native", None),
        ("vulkan", "f16", "f32", "native", None),
        ("vulkan", "f32", "f32", "software", None),
        ("cuda:sm_90a", "i8", "i32", "software", None),
        ("cpu:x86-64-v4", "f64", "f64", "software", None),
    ],
)
def test_rates_are_fixture_facts_the_instruction_set(
    target: str, a: str, acc: str, tier: Tier, rate: int | None
) -> None:
    group = OperandGroup(a=a, b=a, acc=acc, tier=tier, reason="")
    assert macs_per_clock(parse_target(target), group) == rate
