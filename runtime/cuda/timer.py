"""Time between two events on a CUDA stream, calibrated against the host's clock.

A bracket is twenty launches or as many as fit in 5 ms, after a warm one (design section 7). A fill
of scratch memory goes first, long enough for the host to enqueue the whole bracket meanwhile, so
that a short kernel is not measured by the pace of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts

from ..timer import Bracket, launches_in
from .device import CudaDevice

LEAST_SCALE, MOST_SCALE = 0.5, 2.0
SNAP = 0.005  # a scale this near to 1 is 1
FEW, MANY, REPEATS = 8, 72, 15  # fills of a calibration, whose difference is what counts
SCRATCH_BYTES = 64 << 20
SCRATCH_L2 = 4  # times the second-level cache, so that a fill leaves nothing else in it
MARGIN = 1.5
MARGIN_S = 30e-6
ATTEMPTS = 4
DOUBLE_RATE = 2  # transfers a clock of the memory (GDDR, HBM)

Enqueue = Callable[[int], object]
"""Puts launch number i on the timer's stream."""
_Reading = tuple[float, float]


def scale_of(few: Sequence[_Reading], many: Sequence[_Reading]) -> float:
    """Host seconds a device second, from (host, device) seconds of few and of many fills.

    The slope leaves out what entering and waiting cost; of each the quickest counts, since the
    host is interrupted now and then.

    Raises:
        DeviceError: the two clocks cannot be reconciled.
    """
    (host1, device1), (host2, device2) = min(few), min(many)
    scale = (host2 - host1) / (device2 - device1) if device2 > device1 else 0.0
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise DeviceError(
            f"the device's clock runs at {scale:.3g} of the host's, "
            f"required within {LEAST_SCALE:g} and {MOST_SCALE:g}"
        )
    return 1.0 if abs(scale - 1) <= SNAP else scale


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The least time that memory allows; ``kind`` is ``bandwidth``, or ``unknown``.

    What one multiply-accumulate instruction takes is no fact of a driver, so the matrix rate has
    no ceiling here.
    """

    kind: str
    microseconds: float


def bandwidth_ceiling(facts: DeviceFacts, nbytes: int, *, cold: bool) -> Ceiling:
    """The ceiling for a launch that must move so many bytes.

    Unless ``cold``, as many as fit in the second-level cache may have stayed there.
    """
    clock, bus = facts.memory_clock_khz, facts.memory_bus_bits
    if clock is None or bus is None or (facts.l2_bytes is None and not cold):
        return Ceiling(kind="unknown", microseconds=0.0)
    moved = nbytes if cold else max(0, nbytes - (facts.l2_bytes or 0))
    bytes_a_microsecond = bus / 8 * DOUBLE_RATE * clock / 1e3
    return Ceiling(kind="bandwidth", microseconds=moved / bytes_a_microsecond)


class _Run(NamedTuple):
    """Device seconds, host seconds to enqueue one launch, and whether the host stayed ahead."""

    seconds: float
    pace_s: float
    ahead: bool


class CudaTimer:
    """Brackets on a stream of its own. Calibrated when the first one is asked for."""

    def __init__(self, device: CudaDevice, clock: Callable[[], float] | None = None) -> None:
        self.device, self._clock = device, clock or perf_counter
        self.stream = device.new_stream()
        l2 = device.attribute("L2_CACHE_SIZE") or 0
        self._scratch = device.allocate(max(SCRATCH_BYTES, SCRATCH_L2 * l2))
        flags = int(device.driver.api.CUevent_flags.CU_EVENT_DEFAULT)
        with device.current():
            self._start = device.driver.call("cuEventCreate", flags)
            self._end = device.driver.call("cuEventCreate", flags)
        self._scale: float | None = None
        self._fill_s = 0.0

    @property
    def scale(self) -> float:
        """Host seconds a device second.

        Raises:
            DeviceError: the two clocks cannot be reconciled.
        """
        if self._scale is None:
            with self.device.current():
                self._fills(FEW)
                few, many = zip(
                    *[(self._reading(FEW), self._reading(MANY)) for _ in range(REPEATS)],
                    strict=True,
                )
            self._fill_s = median(device for _, device in many) / MANY
            self._scale = scale_of(few, many)
        return self._scale

    def bracket(self, enqueue: Enqueue, *, cold: bool = False) -> Bracket:
        """Time launches back to back.

        ``enqueue(i)`` puts launch i on :attr:`stream`; ``cold`` when every i has operands of its
        own, which the fill has driven out of the cache. Launch 0 is the warm one.

        Raises:
            DeviceError: a launch failed.
        """
        scale = self.scale
        with self.device.current():
            enqueue(0)
            self._call("cuStreamSynchronize", self.stream)
            run = self._timed(enqueue, 1, MARGIN_S, cold)
            count = launches_in(run.seconds)
            for attempt in range(ATTEMPTS):
                head_s = (count + 1) * run.pace_s * MARGIN * 2**attempt + MARGIN_S
                run = self._timed(enqueue, count, head_s, cold)
                if run.ahead:
                    break
        return Bracket(launches=count, microseconds=run.seconds * scale / count * 1e6)

    def _timed(self, enqueue: Enqueue, count: int, head_s: float, cold: bool) -> _Run:
        """Launches 1 to ``count``, behind fills that take ``head_s``."""
        self._fills(max(1, round(head_s / self._fill_s)))
        if not cold:
            enqueue(0)
        self._call("cuEventRecord", self._start, self.stream)
        begin = self._clock()
        for i in range(1, count + 1):
            enqueue(i)
        pace_s = (self._clock() - begin) / count
        self._call("cuEventRecord", self._end, self.stream)
        began, *_ = self.device.driver.api.cuEventQuery(self._start)
        self._call("cuEventSynchronize", self._end)
        seconds = self._call("cuEventElapsedTime", self._start, self._end) / 1e3
        return _Run(seconds, pace_s, ahead=began != self.device.driver.success)

    def _reading(self, count: int) -> tuple[float, float]:
        """Host and device seconds of so many fills."""
        self._call("cuStreamSynchronize", self.stream)
        begin = self._clock()
        self._call("cuEventRecord", self._start, self.stream)
        self._fills(count)
        self._call("cuEventRecord", self._end, self.stream)
        self._call("cuEventSynchronize", self._end)
        host = self._clock() - begin
        return host, self._call("cuEventElapsedTime", self._start, self._end) / 1e3

    def _fills(self, count: int) -> None:
        words = self._scratch.nbytes // 4
        for _ in range(count):
            self._call("cuMemsetD32Async", self._scratch.pointer, 0, words, self.stream)

    def _call(self, name: str, *arguments: Any) -> Any:
        return self.device.driver.call(name, *arguments)
