"""Times several ways to compute the same thing side by side, so that drift hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .choice import upper_median

# Runs a number of calls and gives the seconds they took.
Arm = Callable[[int], float]
BRACKET_S = 0.04
WARM_S = 0.06  # a BLAS keeps its threads spinning for some 30 ms after its last call
ESTIMATE_S, MOST_CALLS = 0.002, 1 << 16
LEAST_ROUNDS, MOST_ROUNDS = 5, 15
TOTAL_S = 8.0
LONG_S = 0.25  # a call of that length needs no warm one before it in each round
ALONE_S = 2.0  # and one of this length is timed once


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Microseconds a call: the median of the rounds, and their spread.

    ``spread`` is the distance of the quartiles divided by the median.
    """

    microseconds: float
    spread: float


def calls(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> Arm:
    """An arm of plain calls."""

    def arm(count: int) -> float:
        start = clock()
        for _ in range(count):
            function()
        return clock() - start

    return arm


def interleave(arms: Mapping[str, Arm]) -> dict[str, Timing]:
    """Time every arm in rounds of rotating order; each bracket follows warm calls of its own.

    The warm calls outlast worker threads of the arm before that still spin. An arm whose call takes
    :data:`ALONE_S` or more is timed once, after a warm call, and in no round.
    """
    warm, counts = {}, {}
    alone: dict[str, Timing] = {}
    estimate = 0.0
    for name, arm in arms.items():
        once = _seconds_a_call(arm)
        if once >= ALONE_S:
            alone[name] = timing_of([once * 1e6])
            continue
        warm[name] = max(1, round(WARM_S / once)) if once < LONG_S else 0
        counts[name] = max(1, round(BRACKET_S / once))
        estimate += once * (warm[name] + counts[name])
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(TOTAL_S / max(estimate, 1e-6))))

    def sample(name: str) -> float:
        if warm[name]:
            arms[name](warm[name])
        return arms[name](counts[name]) / counts[name] * 1e6

    found = alone | (_rotated(list(counts), rounds, sample) if counts else {})
    return {name: found[name] for name in arms}


def interleave_readings(
    readings: Mapping[str, Callable[[], float]],
    clock: Callable[[], float] = time.perf_counter,
    *,
    total_s: float = TOTAL_S,
    most: int = MOST_ROUNDS,
) -> dict[str, Timing]:
    """Take brackets of a device's timer, microseconds each, in rounds of rotating order.

    As many as ``total_s`` allows, ``most`` of them. A round before the others, which does not
    count, lets the clocks of the device rise.
    """
    names = list(readings)
    start = clock()
    for name in names:
        readings[name]()
    spent = max(clock() - start, 1e-6)
    rounds = max(LEAST_ROUNDS, min(most, int(total_s / spent)))
    return _rotated(names, rounds, lambda name: readings[name]())


def _rotated(names: list[str], rounds: int, sample: Callable[[str], float]) -> dict[str, Timing]:
    """A sample of each a round, microseconds; a round starts one further on than the last."""
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(sample(name))
    return {name: timing_of(values) for name, values in samples.items()}


def _seconds_a_call(arm: Arm) -> float:
    """Of warm calls, enough of them that the clock's own cost does not count."""
    arm(1)
    count, seconds = 1, arm(1)
    while seconds < ESTIMATE_S and count < MOST_CALLS:
        count *= 4
        seconds = arm(count)
    return max(seconds / count, 1e-9)


def timing_of(microseconds: Sequence[float]) -> Timing:
    """The timing that samples of one call give."""
    ordered = sorted(microseconds)
    median = upper_median(ordered)
    quarter = len(ordered) // 4
    spread = (ordered[-1 - quarter] - ordered[quarter]) / median if median else 0.0
    return Timing(microseconds=median, spread=spread)
