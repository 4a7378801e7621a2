"""Which clock times launches on a device: one entry a back end that has events of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .executors import Launchable, Memory
from .timer import KernelTimer, SecondsOf, host_seconds

# (executable, sets of buffers to rotate, constants) -> seconds of a number of launches
Readings = Callable[[Launchable, Sequence[Sequence[Any]], Sequence[int]], SecondsOf]


@dataclass(frozen=True, kw_only=True)
class LaunchClock:
    """A timer and the readings it takes its brackets from.

    Executables and buffers are of ``device``: not that of the session where the clock launches
    the code objects itself.
    """

    timer: KernelTimer
    readings: Readings
    device: Memory


def clock_of(device: Memory) -> LaunchClock:
    """The best clock that this process has for a device: its own events on CUDA, else the host's.

    Raises:
        DeviceError: a device that has one, and failed.
    """
    if device.backend == "cuda":
        from .cuda.clock import event_clock  # other devices never load it

        return event_clock(device)
    return LaunchClock(timer=KernelTimer(), readings=host_seconds, device=device)
