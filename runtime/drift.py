"""Takes a device's drift out of samples, so that who was measured when decides nothing.

A clock that ramps by 20 % over five rounds of eight candidates lets two equals of the middle round,
whose samples are the medians, differ by 3.5 %: more than the tie band. What every candidate's own
samples say about the time between them gives the rate, whatever each one costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from math import exp, log

LEAST_DRIFT = 0.05  # over the whole trial; less moves a median by a third of the tie band at most

Samples = Mapping[str, Sequence[float]]
Point = tuple[int, float]  # when a sample was taken, and its time


def without_drift(samples: Samples, taken: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """The samples as they would be in the middle of the trial.

    ``taken`` names the candidate of each bracket, in the order in which they were taken; samples
    that it does not account for, as well as times that are not positive, leave all as they are.
    The rate is the median slope of the logarithms over pairs of one candidate's samples (Theil and
    Sen), which no single bracket moves. It must show between neighbouring samples too: a device
    that changes its clock once has no rate, and the medians of five rounds stand on one side of it.
    """
    plain = {name: tuple(times) for name, times in samples.items()}
    places = _places(plain, taken)
    if places is None or not all(t > 0 for times in plain.values() for t in times):
        return plain
    series = [list(zip(places[name], times, strict=True)) for name, times in plain.items()]
    rates = (
        _median_slope(pair for points in series for pair in combinations(points, 2)),
        _median_slope(pair for points in series for pair in pairwise(points)),
    )
    rate = min(rates, key=abs) if rates[0] * rates[1] > 0 else 0.0
    if abs(rate) * len(taken) < LEAST_DRIFT:
        return plain
    middle = (len(taken) - 1) / 2
    return {
        name: tuple(
            time * exp(-rate * (place - middle))
            for place, time in zip(places[name], times, strict=True)
        )
        for name, times in plain.items()
    }


def _median_slope(pairs: Iterable[tuple[Point, Point]]) -> float:
    """Of the logarithm of time over place; 0 without pairs."""
    slopes = sorted(
        (log(time2) - log(time1)) / (place2 - place1) for (place1, time1), (place2, time2) in pairs
    )
    if not slopes:
        return 0.0
    # The plain median: the upper one of an even count would lean to one side.
    return (slopes[len(slopes) // 2] + slopes[(len(slopes) - 1) // 2]) / 2


def _places(samples: Samples, taken: Sequence[str]) -> dict[str, list[int]] | None:
    """When each sample was taken, by candidate."""
    places: dict[str, list[int]] = {name: [] for name in samples}
    for place, name in enumerate(taken):
        if name in places:
            places[name].append(place)
    complete = all(len(places[name]) == len(times) for name, times in samples.items())
    return places if complete else None
