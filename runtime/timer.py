"""Kernel time. The tier that measured a number is printed beside it (design section 7).

``host``: the slope of ``<kernel>.repeat``, whose calls run back to back inside one invocation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .executors import Launchable

BRACKET_LAUNCHES = 20
BRACKET_SECONDS = 0.005


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """One timed run of launches, in microseconds a launch."""

    launches: int
    microseconds: float


def launches_in(seconds: float) -> int:
    """How many launches of that length make a bracket: twenty, or what fits in 5 ms, at least 1."""
    if seconds <= 0:
        return BRACKET_LAUNCHES
    return max(1, min(BRACKET_LAUNCHES, int(BRACKET_SECONDS / seconds)))


def host_bracket(
    executable: Launchable,
    buffers: Sequence[Any],
    constants: Sequence[int],
    clock: Callable[[], float] = time.perf_counter,
) -> Bracket:
    """Time one bracket after a warm launch, without the cost of entering the function.

    Raises:
        DeviceError: the device failed.
    """
    start = clock()
    executable.repeat(buffers, constants, 1)
    warm = clock()
    executable.repeat(buffers, constants, 0)
    empty = clock()
    count = launches_in((warm - start) - (empty - warm))
    begin = clock()
    executable.repeat(buffers, constants, count)
    spent = clock() - begin
    seconds = without_entry(spent, empty - warm)
    return Bracket(launches=count, microseconds=seconds / count * 1e6)


def without_entry(spent: float, empty: float) -> float:
    """The time of launches less that of entering the function, which a call without any takes.

    An interruption of the empty call must not make the launches look free.
    """
    return spent - empty if spent > empty else spent
