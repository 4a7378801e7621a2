"""How much of a device other processes hold: a choice measured beside them is used, not stored."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dialects.facts import DeviceFacts

LIMIT_PERCENT = 25
WINDOW_S = 0.1


def foreign_load(facts: DeviceFacts, workers: Callable[[], list[int]]) -> Callable[[], int | None]:
    """A reader of the share of a GPU, in per cent, that others hold; it gives None if unknown.

    ``workers`` gives process ids of ours, beside this one.
    """
    if facts.backend == "cuda" and facts.uuid:
        from .cuda.load import CudaLoad  # other devices never load it

        return CudaLoad(facts.uuid, workers)
    return lambda: None


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
