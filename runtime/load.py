"""How much of a device other processes hold: a choice measured beside them is used, not stored.

One reader a back end, in :data:`READERS`. Each is given the device's facts and further process ids
of ours, and answers with a percentage, or None where the system does not say.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dialects.facts import DeviceFacts

LIMIT_PERCENT = 25
WINDOW_S = 0.1
KEPT_S = 5.0
SAMPLES = 3  # the least of them counts, so that our own work that has just ended decays

_PCI = re.compile(r"([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")

Reader = Callable[[DeviceFacts, Sequence[int]], int | None]


def cpu_foreign_percent(
    own: Sequence[int] = (),
    *,
    root: Path = Path("/"),
    window_s: float = WINDOW_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int | None:
    """Share of this machine's processor time that other processes took over a short window.

    ``own`` are further process ids of ours, beside this one. None where the system does not say.
    """
    ids = {os.getpid(), *own}
    before = _reading(root, ids)
    sleep(window_s)
    after = _reading(root, ids)
    if before is None or after is None or after[1] <= before[1]:
        return None
    busy, total, mine = (b - a for a, b in zip(before, after, strict=True))
    return max(0, min(100, round(100 * (busy - mine) / total)))


def _reading(root: Path, ids: set[int]) -> tuple[int, int, int] | None:
    """Ticks so far: busy and in all over every processor, and of our own processes."""
    try:
        fields = (root / "proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, idle, iowait, irq, softirq, steal = (int(f) for f in fields)
    except (OSError, ValueError):
        return None
    busy = user + nice + system + irq + softirq
    mine = sum(_own_ticks(root, i) for i in ids)
    return busy, busy + idle + iowait + steal, mine


def _own_ticks(root: Path, process: int) -> int:
    try:
        text = (root / f"proc/{process}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return 0


def sysfs_busy_percent(
    facts: DeviceFacts,
    *,
    root: Path = Path("/"),
    window_s: float = WINDOW_S,
    sleep: Callable[[float], None] = time.sleep,
) -> int | None:
    """The kernel driver's ``gpu_busy_percent`` of the device (amdgpu), the least of three readings.

    It does not say whose work it was, so this is read before we submit any. The device is the one
    whose identity stands in the facts' uuid; on ROCm, where only such devices are, the busiest
    stands for one that none names, which at worst leaves a choice unstored.
    """
    folders = [
        f.parent for f in sorted(root.glob("sys/class/drm/card[0-9]*/device/gpu_busy_percent"))
    ]
    uuid = (facts.uuid or "").lower().replace("-", "")
    mine = [f for f in folders if any(i in uuid for i in _identities(f))]
    if not mine and facts.backend == "rocm":
        mine = folders
    least: int | None = None
    for turn in range(SAMPLES if mine else 0):
        if turn:
            sleep(window_s)
        readings = [r for f in mine if (r := _percentage(f)) is not None]
        if not readings:
            return None
        least = max(readings) if least is None else min(least, max(readings))
    return least


def _identities(folder: Path) -> list[str]:
    """How uuids name a device: its unique id, as it stands or as bytes of text, and its PCI place.

    Mesa's deviceUUID of such a device is domain, bus, device and function as little-endian words.
    """
    found = []
    try:
        unique = (folder / "unique_id").read_text().strip().lower().removeprefix("0x")
        found += [unique, unique.encode().hex()] if unique else []
    except (OSError, ValueError):
        pass
    place = _PCI.fullmatch(folder.resolve().name)
    if place is not None:
        found.append(b"".join(int(n, 16).to_bytes(4, "little") for n in place.groups()).hex())
    return found


def _percentage(folder: Path) -> int | None:
    try:
        value = int((folder / "gpu_busy_percent").read_text())
    except (OSError, ValueError):
        return None
    return value if 0 <= value <= 100 else None


def _cuda_foreign_percent(facts: DeviceFacts, own: Sequence[int]) -> int | None:
    from .cuda.load import nvml_foreign_percent  # other devices never load it

    return nvml_foreign_percent(facts, own)


READERS: Mapping[str, Reader] = {
    "cpu": lambda facts, own: cpu_foreign_percent(own),
    "cuda": _cuda_foreign_percent,
    "rocm": lambda facts, own: sysfs_busy_percent(facts),
    "vulkan": lambda facts, own: sysfs_busy_percent(facts),
}


class LoadMeter:
    """The foreign load of one device, read anew when the last reading is 5 s old."""

    def __init__(
        self,
        facts: DeviceFacts,
        readers: Mapping[str, Reader] = READERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts, self._clock = facts, clock
        self._reader = readers.get(facts.backend)
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._percent: int | None = None

    def percent(self, own: Sequence[int] = ()) -> int | None:
        """The percentage that others hold; None where nobody says, which counts as not busy."""
        if self._reader is None:
            return None
        with self._lock:
            now = self._clock()
            if self._read_at is None or now - self._read_at >= KEPT_S:
                self._percent = self._reader(self._facts, own)
                self._read_at = self._clock()
            return self._percent
