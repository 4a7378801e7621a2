"""Times candidates by CUDA events around launches of their own code objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..clocks import LaunchClock
from ..executors import Launchable, Memory
from ..timer import KernelTimer, SecondsOf
from .code import CudaCode
from .device import CudaBuffer, CudaDevice
from .events import CudaEvents


@dataclass(frozen=True, kw_only=True)
class EventClock(LaunchClock):
    """A clock of CUDA events, whose stream others may launch on to be timed alike."""

    events: CudaEvents


def event_clock(device: Memory) -> EventClock:
    """The clock of a device. One that IREE opened is opened once more, for launches of our own.

    Raises:
        DeviceError: it is not there, or failed.
    """
    if not isinstance(device, CudaDevice):
        device = CudaDevice(device.uri, poison=True)
    opened = device
    events = CudaEvents(opened)

    def readings(
        executable: Launchable, sets: Sequence[Sequence[CudaBuffer]], constants: Sequence[int]
    ) -> SecondsOf:
        assert isinstance(executable, CudaCode)
        bound, stream = executable.bind(constants), events.stream
        # With their buffers, which have to live for as long as anybody may launch on them.
        held = [(buffers, [buffer.pointer for buffer in buffers]) for buffers in sets]
        opened.synchronize(opened.stream)  # the uploads, which went another way

        def enqueue(i: int) -> None:
            bound.launch(held[i % len(held)][1], stream)

        return events.seconds(enqueue, cold=len(sets) > 1)

    return EventClock(
        timer=KernelTimer(events.calibration), readings=readings, device=opened, events=events
    )
