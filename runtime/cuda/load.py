"""Foreign load of a CUDA device, by NVIDIA's management library."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from dialects.facts import DeviceFacts

from .driver import nvml, nvml_handle

WINDOW_US = 1_000_000  # samples of the last second count


def nvml_foreign_percent(
    facts: DeviceFacts, own: Sequence[int] = (), *, library: Any = None
) -> int | None:
    """Share of the device that other processes hold, in per cent; None where nobody tells.

    ``own`` are further process ids of ours, beside this one.
    """
    library = library or nvml()
    handle = nvml_handle(library, facts.uuid) if library is not None and facts.uuid else None
    if library is None or handle is None:
        return None
    try:
        ids = {p.pid for p in library.nvmlDeviceGetComputeRunningProcesses(handle)}
        if not ids:  # not told, or nobody: then the device is idle and says so
            return int(library.nvmlDeviceGetUtilizationRates(handle).gpu)
        foreign = ids - {os.getpid(), *own}
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
