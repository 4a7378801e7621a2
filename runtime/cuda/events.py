"""Time between two events on a CUDA stream, calibrated against the host's clock.

A bracket is twenty launches or as many as fit in 5 ms, after a warm one (design section 7). A fill
of scratch memory goes first, long enough for the host to enqueue the whole bracket meanwhile, so
that a short kernel is not measured by the pace of the host.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

from ..timer import ClockPairs, SecondsOf
from .device import CudaDevice

FEW, MANY, REPEATS = 8, 72, 15  # fills of a calibration, whose difference is what counts
SCRATCH_BYTES = 64 << 20
SCRATCH_L2 = 4  # times the second-level cache, so that a fill leaves nothing else in it
LEAST_FILL_S = 1e-6  # a clock that stands still is refused by its scale
MARGIN = 1.5
MARGIN_S = 30e-6
ATTEMPTS = 4

Enqueue = Callable[[int], object]
"""Puts launch number i on the timer's stream."""


class _Run(NamedTuple):
    """Device seconds, host seconds to enqueue one launch, and whether the host stayed ahead."""

    seconds: float
    pace_s: float
    ahead: bool


class CudaEvents:
    """Readings on a stream of its own, for a timer that is calibrated by :meth:`calibration`."""

    def __init__(self, device: CudaDevice, clock: Callable[[], float] | None = None) -> None:
        self.device, self._clock = device, clock or perf_counter
        self.stream = device.new_stream()
        l2 = device.attribute("L2_CACHE_SIZE") or 0
        self._scratch = device.allocate(max(SCRATCH_BYTES, SCRATCH_L2 * l2))
        flags = int(device.driver.api.CUevent_flags.CU_EVENT_DEFAULT)
        with device.current():
            self._start = device.driver.call("cuEventCreate", flags)
            self._end = device.driver.call("cuEventCreate", flags)
        self._fill_s = 0.0

    def calibration(self) -> ClockPairs:
        """Both clocks' readings of few and of many fills, see :func:`..timer.calibrated_scale`.

        Of several readings the quickest counts, since the host is interrupted now and then.

        Raises:
            DeviceError: the device failed.
        """
        with self.device.current():
            self._fills(FEW)
            readings = [(self._reading(FEW), self._reading(MANY)) for _ in range(REPEATS)]
        (few_host, few_event), (many_host, many_event) = (
            min(r) for r in zip(*readings, strict=True)
        )
        self._fill_s = max(many_host - few_host, LEAST_FILL_S) / (MANY - FEW)
        return [few_event * 1e9, many_event * 1e9], [few_host * 1e9, many_host * 1e9]

    def seconds(self, enqueue: Enqueue, *, cold: bool = False) -> SecondsOf:
        """Readings of launches back to back, in seconds of the event clock.

        ``enqueue(i)`` puts launch i on :attr:`stream`; ``cold`` when every i has operands that the
        fill or the launches before have driven out of the cache. Launch 0 is the warm one.

        Raises:
            DeviceError: from the readings, when a launch failed.
        """
        warm, pace_s = False, 0.0

        def seconds_of(count: int) -> float:
            nonlocal warm, pace_s
            if not self._fill_s:
                self.calibration()
            with self.device.current():
                if not warm:
                    enqueue(0)
                    self._call("cuStreamSynchronize", self.stream)
                    warm = True
                seconds = 0.0
                for attempt in range(ATTEMPTS):
                    head_s = (count + 1) * pace_s * MARGIN * 2**attempt + MARGIN_S
                    seconds, pace_s, ahead = self._timed(enqueue, count, head_s, cold)
                    if ahead:
                        break
                return seconds

        return seconds_of

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
