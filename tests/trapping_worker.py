"""The real measuring process with one bad candidate: ``trapping_worker.py URI WHEN VICTIM``.

WHEN is ``prove`` or ``time``: what is replaced, for that candidate alone, by a read of address 0.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runtime import prover, worker
from runtime.clocks import LaunchClock
from runtime.executors import Memory


def trapping(function: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function, which traps when its ``place``-th argument is the victim's code."""

    def wrapper(*arguments: Any, **options: Any) -> Any:
        if arguments[place].record.full_name == sys.argv[3]:
            ctypes.string_at(0)
        return function(*arguments, **options)

    return wrapper


if __name__ == "__main__":
    if sys.argv[2] == "prove":
        prover.prove = trapping(prover.prove, 1)
    else:
        clock = worker.clock_of

        def trapping_clock(device: Memory) -> LaunchClock:
            found = clock(device)
            return replace(found, readings=trapping(found.readings, 0))

        worker.clock_of = trapping_clock
    sys.exit(worker.serve(sys.argv[1], sys.stdin, sys.stdout))
