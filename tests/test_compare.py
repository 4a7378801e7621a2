"""Timing several ways side by side, on arms whose cost is known."""

from __future__ import annotations

import itertools

import pytest

from runtime.compare import LEAST_ROUNDS, MOST_ROUNDS, Arm, calls, interleave


def constant(seconds: float) -> Arm:
    """An arm whose every call takes that long."""
    return lambda count: count * seconds


def test_calls_are_counted_and_timed() -> None:
    done: list[int] = []
    ticks = itertools.count()
    arm = calls(lambda: done.append(1), clock=lambda: float(next(ticks)))
    assert (arm(7), len(done)) == (1.0, 7)


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, 1e-2, 1.0])
def test_a_steady_arm(seconds: float) -> None:
    (timing,) = interleave({"a": constant(seconds)}).values()
    assert timing.microseconds == pytest.approx(seconds * 1e6)
    assert timing.spread == pytest.approx(0, abs=1e-9)


def test_every_arm_has_its_turn_first_and_follows_warm_calls_of_its_own() -> None:
    asked: list[tuple[str, int]] = []

    def arm(name: str, seconds: float) -> Arm:
        def run(count: int) -> float:
            asked.append((name, count))
            return count * seconds

        return run

    interleave({"a": arm("a", 0.005), "b": arm("b", 0.01)})
    rounds = [name for name, count in asked if count == {"a": 8, "b": 4}[name]]
    assert MOST_ROUNDS * 2 >= len(rounds) >= LEAST_ROUNDS * 2
    assert rounds[:6] == ["a", "b", "b", "a", "a", "b"]
    warm = {("a", 12), ("b", 6)}
    for before, after in itertools.pairwise(asked):
        if after in {("a", 8), ("b", 4)}:
            assert before in warm
            assert before[0] == after[0]


def test_drift_hits_all_alike() -> None:
    """A clock that slows down by half leaves the ratio of two arms as it is."""
    passed = itertools.count()

    def drifting(seconds: float) -> Arm:
        return lambda count: count * seconds * (1 + next(passed) / 100)

    found = interleave({"a": drifting(0.01), "b": drifting(0.02)})
    assert found["b"].microseconds / found["a"].microseconds == pytest.approx(2, rel=0.05)


def test_an_outlier_changes_no_median() -> None:
    count = itertools.count()
    found = interleave({"a": lambda n: n * (1.0 if next(count) == 6 else 0.01)})
    assert found["a"].microseconds == pytest.approx(10000)


def test_an_arm_that_takes_no_time_ends() -> None:
    """As a clock may say of an empty call; nothing divides by it, nothing runs for ever."""
    asked = []
    found = interleave({"a": lambda count: asked.append(count) or 0.0})
    assert (found["a"].microseconds, found["a"].spread) == (0.0, 0.0)
    assert len(asked) < 100


def test_a_slow_arm_runs_seldom() -> None:
    """One of seconds a call once, after a warm call; one of tenths without warm calls."""
    asked: list[tuple[str, int]] = []

    def arm(name: str, seconds: float) -> Arm:
        def run(count: int) -> float:
            asked.append((name, count))
            return count * seconds

        return run

    found = interleave(
        {"slow": arm("slow", 5.0), "a": arm("a", 0.01), "tenths": arm("tenths", 0.5)}
    )
    assert list(found) == ["slow", "a", "tenths"]
    assert [n for n, _ in asked].count("slow") == 2
    rounds = asked.count(("a", 4))
    assert rounds >= LEAST_ROUNDS
    assert asked.count(("tenths", 1)) == 2 + rounds
    assert found["slow"].microseconds == pytest.approx(5e6)
    assert found["tenths"].microseconds == pytest.approx(5e5)
    (alone,) = interleave({"slow": arm("slow", 5.0)}).values()
    assert (alone.microseconds, alone.spread) == (pytest.approx(5e6), 0.0)
