"""KernelTimer: how long one launch takes, by which clock, and what no clock may claim.

Tiers (design section 7): ``device`` reads the device's own events, ``host`` the slope of
``<kernel>.repeat``, whose calls run back to back inside one invocation, and ``unavailable`` nothing
that could be believed. Everything here but :class:`KernelTimer` is a pure function of readings, so
that each back end's clock shares it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from typing import Any, Literal

from dialects.errors import DeviceError, UsageError

from .choice import upper_median
from .executors import Launchable

TimerTier = Literal["device", "host", "unavailable"]
CachePolicy = Literal["hot", "cold"]
CACHE_POLICIES: tuple[CachePolicy, ...] = ("hot", "cold")

BRACKET_LAUNCHES = 20
BRACKET_SECONDS = 0.005
SNAP = 0.005  # an event clock this near to the host's is the host's
LEAST_SCALE, GREATEST_SCALE = 0.5, 2.0
COLD_L2 = 2  # rotating buffers hold at least that many times the L2 cache

# Seconds that a number of launches took, back to back, without what the host spends around them.
SecondsOf = Callable[[int], float]
# Readings of the event clock and of the host's for the same spans, in nanoseconds.
ClockPairs = tuple[Sequence[float], Sequence[float]]


class TimerError(DeviceError):
    """A reading that cannot be true."""


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """One timed run of launches, in microseconds a launch."""

    launches: int
    microseconds: float


def checked_cache(policy: str) -> CachePolicy:
    """The cache policy of that name.

    Raises:
        UsageError: none is called so, with those that are.
    """
    for known in CACHE_POLICIES:
        if policy == known:
            return known
    raise UsageError(f"cache '{policy}' is not one of {', '.join(CACHE_POLICIES)}")


def launches_in(seconds: float) -> int:
    """How many launches of that length make a bracket: twenty, or what fits in 5 ms, at least 1."""
    if seconds <= 0:
        return BRACKET_LAUNCHES
    return max(1, min(BRACKET_LAUNCHES, int(BRACKET_SECONDS / seconds)))


def take_bracket(seconds_of: SecondsOf) -> Bracket:
    """One bracket by any clock, after a warm launch that also says how many launches to take.

    Raises:
        DeviceError: the device failed.
    """
    count = launches_in(seconds_of(1))
    return Bracket(launches=count, microseconds=seconds_of(count) / count * 1e6)


def calibrated_scale(event_ns: Sequence[float], host_ns: Sequence[float]) -> float | None:
    """Nanoseconds that the event clock counts in one of the host's, by the slope method.

    ``event_ns[i]`` and ``host_ns[i]`` are both clocks' readings of the same span; spans of at least
    two lengths. The slope between spans cancels whatever each reading costs alone; of several pairs
    the median slope counts. Within :data:`SNAP` of 1 it is 1 exactly. None where no two spans
    differ or the scale lies outside [0.5, 2]: such a clock is refused (origin section 10; an event
    clock was seen to run 4.6 % fast).
    """
    pairs = list(zip(event_ns, host_ns, strict=True))
    slopes = [
        (event2 - event1) / (host2 - host1)
        for (event1, host1), (event2, host2) in combinations(pairs, 2)
        if host1 != host2
    ]
    if not slopes:
        return None
    scale = upper_median(slopes)
    if not LEAST_SCALE <= scale <= GREATEST_SCALE:
        return None
    return 1.0 if abs(scale - 1) <= SNAP else scale


def refuse_impossible(bracket: Bracket, least_us: float | None) -> Bracket:
    """The bracket itself, unless it is faster than the hardware.

    ``least_us`` is from :func:`runtime.ceilings.least_microseconds`; None refuses nothing else.

    Raises:
        TimerError: a time that is not positive, or below ``least_us``.
    """
    if not bracket.microseconds > 0:
        raise TimerError(f"timed at {bracket.microseconds:g} us, which is no time")
    if least_us is not None and bracket.microseconds < least_us:
        raise TimerError(
            f"timed at {bracket.microseconds:.4g} us, the hardware needs {least_us:.4g} us at least"
        )
    return bracket


def sets_for_cold(set_bytes: int, l2_bytes: int) -> int:
    """How many sets of buffers to rotate so that each launch finds its own evicted."""
    return max(2, -(-COLD_L2 * l2_bytes // max(set_bytes, 1)))


class KernelTimer:
    """Brackets by one clock, calibrated at first use; every bracket is checked against a floor.

    ``calibrate`` gives readings of an event clock beside the host's, see :func:`calibrated_scale`;
    without it, times are the host's own.
    """

    def __init__(self, calibrate: Callable[[], ClockPairs] | None = None) -> None:
        self._calibrate = calibrate
        self._scale: float | None = None if calibrate else 1.0
        self._calibrated = calibrate is None

    @property
    def scale(self) -> float | None:
        """Event nanoseconds in one of the host's; None where the clock was refused.

        Raises:
            DeviceError: the device failed while it was calibrated.
        """
        if not self._calibrated:
            assert self._calibrate is not None
            self._scale = calibrated_scale(*self._calibrate())
            self._calibrated = True
        return self._scale

    @property
    def tier(self) -> TimerTier:
        """Which clock the times are of; asks for the calibration."""
        if self.scale is None:
            return "unavailable"
        return "device" if self._calibrate else "host"

    def bracket(self, seconds_of: SecondsOf, least_us: float | None = None) -> Bracket:
        """One bracket in the host's microseconds.

        Raises:
            TimerError: the clock was refused, or the reading cannot be true.
            DeviceError: the device failed.
        """
        scale = self.scale
        if scale is None:
            raise TimerError(
                "the device's clock does not agree with the host's: its scale lies outside "
                f"[{LEAST_SCALE}, {GREATEST_SCALE}]"
            )
        taken = take_bracket(lambda count: seconds_of(count) / scale)
        return refuse_impossible(taken, least_us)


def host_seconds(
    executable: Launchable,
    buffer_sets: Sequence[Sequence[Any]],
    constants: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> SecondsOf:
    """Launches by the host's clock, without the cost of entering the function.

    One set of buffers keeps the caches hot: all launches of a bracket run inside one invocation.
    Several are taken in turn, one invocation a launch.
    """
    turn: Iterator[Sequence[Any]] = cycle(buffer_sets)

    def span(buffers: Sequence[Any], count: int) -> float:
        begin = clock()
        executable.repeat(buffers, constants, count)
        return clock() - begin

    def seconds_of(count: int) -> float:
        if len(buffer_sets) == 1:
            spent, empty = span(buffer_sets[0], count), span(buffer_sets[0], 0)
            return without_entry(spent, empty)
        empty = span(buffer_sets[0], 0)
        return sum(without_entry(span(next(turn), 1), empty) for _ in range(count))

    return seconds_of


def without_entry(spent: float, empty: float) -> float:
    """The time of launches less that of entering the function, which a call without any takes.

    An interruption of the empty call must not make the launches look free.
    """
    return spent - empty if spent > empty else spent
