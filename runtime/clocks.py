"""Which clock times launches on a device: one entry a back end that has events of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .device import Device
from .execute import Executable
from .timer import KernelTimer, SecondsOf, host_seconds

# (executable, sets of buffers to rotate, constants) -> seconds of a number of launches
Readings = Callable[[Executable, Sequence[Sequence[Any]], Sequence[int]], SecondsOf]


@dataclass(frozen=True, kw_only=True)
class LaunchClock:
    """A timer and the readings it takes its brackets from."""

    timer: KernelTimer
    readings: Readings


def clock_of(device: Device) -> LaunchClock:
    """The best clock that this process has for a device: the host's, on every back end so far."""
    return LaunchClock(timer=KernelTimer(), readings=host_seconds)
