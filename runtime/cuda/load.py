"""Foreign load of a CUDA device, by NVIDIA's management library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from .driver import nvml, nvml_handle

KEPT_S = 5.0  # a reading is used again for that long
WINDOW_US = 1_000_000  # samples of the last second count


class CudaLoad:
    """Share of a device that other processes hold, in per cent; None where nobody tells."""

    def __init__(
        self,
        uuid: str,
        workers: Callable[[], list[int]],
        *,
        library: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._uuid, self._workers, self._clock = uuid, workers, clock
        self._library = library
        self._kept: tuple[float, int | None] | None = None

    def __call__(self) -> int | None:
        now = self._clock()
        if self._kept is None or now - self._kept[0] >= KEPT_S:
            self._kept = (now, self._read())
        return self._kept[1]

    def _read(self) -> int | None:
        library = self._library or nvml()
        handle = nvml_handle(library, self._uuid) if library is not None else None
        if library is None or handle is None:
            return None
        try:
            ids = {p.pid for p in library.nvmlDeviceGetComputeRunningProcesses(handle)}
            if not ids:  # not told, or nobody: then the device is idle and says so
                return int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
            foreign = ids - {os.getpid(), *self._workers()}
            return _share(library, handle, foreign) if foreign else 0
        except library.NVMLError:
            return None


def _share(library: Any, handle: Any, foreign: set[int]) -> int:
    """What the foreign processes took; the whole device's use where processes are not told apart.

    Each process counts by its busiest sample of the window.
    """
    since = max(0, int(time.time() * 1e6) - WINDOW_US)
    try:
        samples = library.nvmlDeviceGetProcessUtilization(handle, since)
    except library.NVMLError:
        return int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
    most: dict[int, int] = {}
    for sample in samples:
        if sample.pid in foreign:
            most[sample.pid] = max(most.get(sample.pid, 0), int(sample.smUtil))
    return min(100, sum(most.values()))
