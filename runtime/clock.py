"""The device's own clock, where this process can read it: timer tier ``device`` (CUDA events)."""

from __future__ import annotations

from typing import Protocol

from dialects.manifest import Record

from .pack import Pack
from .proof import Case


class DeviceClock(Protocol):
    """Times candidates by the clock of their device."""

    def microseconds(self, pack: Pack, record: Record, case: Case) -> float:
        """Kernel time of one launch of a candidate on the operands of a case.

        Raises:
            DeviceError: the candidate fails or is wrong there, or the reading is impossible.
        """
        ...


def device_clock(uri: str) -> DeviceClock | None:
    """The clock of a device; None where there is none to read.

    Raises:
        DeviceError: a device that has one, and failed.
    """
    if uri.partition(":")[0] != "cuda":
        return None
    from .cuda.clock import CudaClock  # other devices never load it

    return CudaClock(uri)
