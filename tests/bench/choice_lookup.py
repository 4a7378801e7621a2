"""What a warm choice costs: ``python tests/bench/choice_lookup.py PACK [MxNxK]``.

Prints microseconds, median of 2000: the choice of a problem that was met, the choice out of the
store's memory and out of its file, and a planned call up to its launch.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from runtime import Session
from runtime.store import Store
from stored_choices import PLACE, made

ROUNDS = 2000


def median_us(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of single calls, in microseconds."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
    return sorted(times)[rounds // 2] / 1000


def main() -> None:
    """Measure and print."""
    path = sys.argv[1]
    sizes = tuple(int(s) for s in (sys.argv[2] if len(sys.argv) > 2 else "37x45x130").split("x"))
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(path, store=folder, tuning="first_use", budget_ms=6e4) as session,
    ):
        (kernel,) = session.kernels
        session.choose(kernel, *sizes)
        print(
            f"choose, problem met before: {median_us(lambda: session.choose(kernel, *sizes)):.1f}"
        )
        call = session[kernel]
        arrays = [
            session.empty([session.problem_of(kernel, *sizes).values()[d] for d in a.dims], a.type)
            for a in session.reference(kernel).entry.args
        ]
        call(*arrays[:-1], out=arrays[-1])
        call._launch = lambda *arguments: None  # type: ignore[method-assign]
        plan = median_us(lambda: call(*arrays[:-1], out=arrays[-1]))
        print(f"warm call to a ready launch: {plan:.1f}")
        store = Store(Path(folder))
        store.remember(PLACE, "b", made())
        kept = median_us(lambda: store.recall(PLACE, "b"))
        disk = median_us(lambda: Store(Path(folder)).recall(PLACE, "b"))
        print(f"recall from memory: {kept:.1f}")
        print(f"recall from disk: {disk:.1f}")


if __name__ == "__main__":
    main()
