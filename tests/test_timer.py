"""Brackets, calibration and refusals, on clocks of our own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest

from runtime.execute import Executable
from runtime.timer import (
    BRACKET_LAUNCHES,
    Bracket,
    ClockPairs,
    KernelTimer,
    TimerError,
    calibrated_scale,
    host_seconds,
    launches_in,
    refuse_impossible,
    sets_for_cold,
)


class Clock:
    """Time that only the device's work moves."""

    def __init__(self, launch_s: float, entry_s: float, interruptions: dict[int, float]) -> None:
        self.now, self.calls, self.touched = 0.0, [], []
        self._launch_s, self._entry_s, self._interruptions = launch_s, entry_s, interruptions

    def __call__(self) -> float:
        return self.now

    def repeat(self, buffers: Sequence[Any], constants: Sequence[int], count: int) -> None:
        """Entering costs too; the n-th call may be interrupted."""
        self.now += self._entry_s + count * self._launch_s
        self.now += self._interruptions.get(len(self.calls), 0.0)
        self.calls.append(count)
        if count:
            self.touched.append(buffers)


def bracket(
    launch_s: float, entry_s: float = 1e-3, sets: Sequence[Any] = ((),), **interruptions: float
) -> tuple[Bracket, Clock]:
    """Time a bracket; ``call_N`` interrupts the N-th call by that many seconds."""
    delays = {int(name.removeprefix("call_")): s for name, s in interruptions.items()}
    clock = Clock(launch_s, entry_s, delays)
    return KernelTimer().bracket(host_seconds(cast("Executable", clock), sets, [], clock)), clock


@pytest.mark.parametrize(
    ("seconds", "launches"),
    [(-1, 20), (0, 20), (1e-9, 20), (2.4e-4, 20), (2.6e-4, 19), (2e-3, 2), (5e-3, 1), (9, 1)],
)
def test_how_many_launches_make_a_bracket(seconds: float, launches: int) -> None:
    assert launches_in(seconds) == launches
    assert launches <= BRACKET_LAUNCHES


@pytest.mark.parametrize(("launch_s", "count"), [(1e-6, 20), (1e-4, 20), (2e-3, 2), (0.3, 1)])
def test_entering_the_function_is_not_counted(launch_s: float, count: int) -> None:
    measured, clock = bracket(launch_s)
    assert measured.launches == count
    assert measured.microseconds == pytest.approx(launch_s * 1e6)
    assert clock.calls == [1, 0, count, 0]


def test_an_interrupted_empty_call_does_not_make_launches_free() -> None:
    """The reading is then too long by an entry, and never 0."""
    measured, _ = bracket(1e-6, call_3=0.5)
    assert measured.microseconds == pytest.approx((1e-3 + 20e-6) / 20 * 1e6)


def test_an_interrupted_warm_call_only_shortens_the_bracket() -> None:
    measured, _ = bracket(1e-4, call_0=0.5)
    assert measured.launches == 1
    assert measured.microseconds == pytest.approx(100)


def test_cold_caches_take_the_sets_of_buffers_in_turn() -> None:
    measured, clock = bracket(1e-3, sets=("a", "b", "c"))
    assert (measured.launches, measured.microseconds) == (5, pytest.approx(1000))
    assert clock.touched == ["a", "b", "c", "a", "b", "c"]
    assert clock.calls == [0, 1, 0, *[1] * 5]


@pytest.mark.parametrize(
    ("nbytes", "l2", "sets"), [(100, 50, 2), (100, 100, 2), (30, 100, 7), (1, 10, 20), (0, 8, 16)]
)
def test_rotating_buffers_hold_twice_the_l2_cache(nbytes: int, l2: int, sets: int) -> None:
    assert sets_for_cold(nbytes, l2) == sets
    assert sets * max(nbytes, 1) >= 2 * l2


def spans(scale: float, latency_ns: float = 0.0, noise: float = 0.0) -> ClockPairs:
    """Both clocks over sleeps of 20 and 60 ms; each event reading costs a fixed latency more."""
    chance = random.Random(3)
    host = [20e6, 60e6, 20e6, 60e6]
    return [h * scale * (1 + chance.uniform(-noise, noise)) + latency_ns for h in host], host


@pytest.mark.parametrize(
    ("scale", "found"),
    [(1.0, 1.0), (1.0049, 1.0), (0.9951, 1.0), (1.0456, 1.0456), (0.5, 0.5), (2.0, 2.0)],
)
def test_calibration_is_a_slope_that_snaps_to_one(scale: float, found: float) -> None:
    """A latency that every reading has cancels, however long it is."""
    for latency in (0.0, 7e6):
        assert calibrated_scale(*spans(scale, latency)) == pytest.approx(found)


def test_one_interrupted_reading_does_not_spoil_the_calibration() -> None:
    events, host = spans(1.0456)
    assert calibrated_scale([*events, 500e6], [*host, 60e6]) == pytest.approx(1.0456, rel=0.01)


@pytest.mark.parametrize("scale", [0.49, 2.01, 0.0, -1.0, 1e6])
def test_a_clock_that_is_no_clock_is_refused(scale: float) -> None:
    assert calibrated_scale(*spans(scale)) is None
    timer = KernelTimer(lambda: spans(scale))
    assert timer.tier == "unavailable"
    with pytest.raises(TimerError, match=r"scale lies outside \[0\.5, 2\.0\]"):
        timer.bracket(lambda count: 1e-4 * count)


@pytest.mark.parametrize("pairs", [([], []), ([5.0], [5.0]), ([5.0, 6.0], [7.0, 7.0])])
def test_spans_of_one_length_calibrate_nothing(pairs: ClockPairs) -> None:
    assert calibrated_scale(*pairs) is None


def test_an_event_clock_is_calibrated_once_and_at_first_use() -> None:
    asked = []

    def calibrate() -> ClockPairs:
        asked.append(1)
        return spans(1.25)

    timer = KernelTimer(calibrate)
    assert asked == []
    for _ in range(3):
        taken = timer.bracket(lambda count: 1e-4 * count)
        assert (taken.launches, taken.microseconds) == (20, pytest.approx(80))
    assert (timer.tier, timer.scale, len(asked)) == ("device", pytest.approx(1.25), 1)


def test_a_timer_without_events_is_the_hosts() -> None:
    assert (KernelTimer().tier, KernelTimer().scale) == ("host", 1.0)


@pytest.mark.parametrize("microseconds", [0.0, -3.0, 9.9, float("nan")])
def test_a_time_that_cannot_be_is_refused(microseconds: float) -> None:
    with pytest.raises(TimerError, match=r"is no time|the hardware needs 10 us at least"):
        refuse_impossible(Bracket(launches=1, microseconds=microseconds), 10.0)


def test_a_time_that_can_be_is_kept() -> None:
    slow = Bracket(launches=1, microseconds=10.0)
    assert refuse_impossible(slow, 10.0) is slow
    assert refuse_impossible(slow, None) is slow
