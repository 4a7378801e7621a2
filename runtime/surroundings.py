"""What a session's measurements must know of the machine around them: load, lock, clocks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dialects.facts import DeviceFacts

from .files import SYSTEM
from .load import LoadMeter
from .measuring_lock import lock_path, measuring_lock
from .shape_choice import Surroundings

APP = "tilewright"
_CPU = Path("/sys/devices/system/cpu/cpufreq")


def surroundings_of(
    facts: DeviceFacts, store: Path | None, own: Callable[[], Sequence[int]]
) -> Surroundings:
    """For a device and the directory of its store; ``own`` gives process ids beside this one.

    Without a store the lock lies in the user's runtime directory.
    """
    meter = LoadMeter(facts)
    return Surroundings(
        foreign_percent=lambda: meter.percent(own()),
        lock=lambda place: measuring_lock(SYSTEM, lock_path(_lock_folder(store), place)),
        clocks=lambda: cpu_clocks() if facts.backend == "cpu" else None,
    )


def _lock_folder(store: Path | None) -> Path:
    if store is not None:
        return store
    user = os.getuid()
    runtime = Path(f"/run/user/{user}")
    return runtime / APP if runtime.is_dir() else Path(tempfile.gettempdir()) / f"{APP}-{user}"


def cpu_clocks(root: Path = _CPU) -> dict[str, int] | None:
    """The clocks of the processor's frequency domains in kHz, or None where none is reported."""
    clocks = {}
    for policy in sorted(root.glob("policy[0-9]*")):
        try:
            clocks[policy.name] = int((policy / "scaling_cur_freq").read_text())
        except (OSError, ValueError):
            continue
    return clocks or None
