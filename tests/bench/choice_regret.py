"""How good and how dear choices are: ``PYTHONPATH=.:tests python tests/bench/choice_regret.py``.

For each shape a session with an empty store chooses as a first call would; then every survivor is
timed at length, all in the same rounds, by the same clock in the same state of the caches. Regret
is the chosen candidate's time over the best one's. Also: what the choice took, what opening and
the measuring process took before it, and what a call costs the host that finds the choice made.
The operands of the second measurement are normal floats, those of a trial small integers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from choice_bench import Asked, add_options, asked_of, device_json, opened, parse_shapes

from dialects.codec import dumps
from runtime import Session
from runtime.clocks import LaunchClock, clock_of
from runtime.compare import Timing, interleave_readings
from runtime.executors import load
from runtime.family import Choice, splits_of
from runtime.measure_plan import cold_sets, floors
from runtime.proof import make_case

SHAPES = (
    "512x1024x4096,512x4096x4096,512x28672x4096,512x4096x14336,"
    "4096x4096x4096,1x4096x4096,16x4096x4096"
)
MOST_ON_CPU = 1 << 31  # products of the sizes
WARM_CALLS = 300
LONGEST_S, MOST_ROUNDS = 20.0, 45


def exhaustive(
    clock: LaunchClock, session: Session, kernel: str, choice: Choice, asked: Asked
) -> dict[str, Timing]:
    """Every survivor at a problem, in rounds of rotating order."""
    ref, problem = session.reference(kernel), choice.problem
    splits = splits_of(choice.verdicts)
    records = [v.record for v in choice.verdicts if v.ok]
    records = [r for r in records if r.full_name not in choice.failures]
    cold = asked.cache == "cold"
    sets = cold_sets(session.facts, ref.entry, problem) if cold else 1
    least = floors(session.facts, ref.entry, records, problem, sets)
    cases = [make_case(clock.device, ref.entry, problem, integers=False) for _ in range(sets)]
    nbytes = max(r.workspace_bytes(problem.values(), splits.get(r.full_name, 1)) for r in records)
    spaces = [clock.device.allocate(nbytes) if nbytes else None for _ in range(sets)]

    def reading(record: Any) -> Callable[[], float]:
        slices = splits.get(record.full_name, 1)
        mine = [replace(case, splits=slices) for case in cases]
        scratch = record.workspace_bytes(problem.values(), slices)
        buffers = [
            case.buffers(space if scratch else None)
            for case, space in zip(mine, spaces, strict=True)
        ]
        code = load(clock.device, ref.pack, kernel, record, split=slices > 1)
        seconds = clock.readings(code, buffers, mine[0].constants)
        return lambda: clock.timer.bracket(seconds, least.get(record.full_name)).microseconds

    readings = {record.full_name: reading(record) for record in records}
    return interleave_readings(readings, total_s=asked.thorough_s, most=MOST_ROUNDS)


def median_us(call: Callable[[], object], between: Callable[[], object] = lambda: None) -> float:
    """The median of single calls in microseconds; what is done between them is not timed."""
    times = []
    for _ in range(WARM_CALLS):
        begin = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - begin)
        between()
    return sorted(times)[WARM_CALLS // 2] / 1000


def ready_us(session: Session, kernel: str, sizes: Sequence[int]) -> float:
    """What a call with device arrays costs the host up to a ready launch.

    With the direct executor the launch is in it, since it returns at once.
    """
    values = session.problem_of(kernel, *sizes).values()
    entry = session.reference(kernel).entry
    arrays = [session.empty(a.stored_shape(values), a.type) for a in entry.args]
    call, device = session[kernel], session.device
    for _ in range(2):
        call(*arrays[:-1], out=arrays[-1])
    if session.device.backend == "cuda" and hasattr(device, "synchronize"):
        stream: Any = device
        wait = lambda: stream.synchronize(stream.stream)  # noqa: E731
        return median_us(lambda: call(*arrays[:-1], out=arrays[-1]), wait)
    call._launch = lambda *arguments: None  # type: ignore[method-assign]
    return median_us(lambda: call(*arrays[:-1], out=arrays[-1]))


def stored_us(
    pack: str, kernel: str, sizes: Sequence[int], asked: Asked, facts: Any
) -> float | None:
    """The first choice of a fresh session that finds it in the store's file, if it is there."""
    with opened(pack, asked, tuning="store", facts=facts) as session:
        session.reference(kernel)
        begin = time.perf_counter_ns()
        choice = session.choose(kernel, *sizes)
        spent = time.perf_counter_ns() - begin
    return round(spent / 1000, 1) if choice.source == "store" else None


@dataclass(frozen=True, kw_only=True)
class Start:
    """Seconds from nothing to a session whose kernel is loaded, and of the measuring process."""

    session: Session
    open_s: float
    worker_s: float


@contextmanager
def started(pack: str, kernel: str, asked: Asked) -> Iterator[Start]:
    """A session that has its measuring process, each timed."""
    begin = time.perf_counter()
    with opened(pack, asked) as session:
        session.reference(kernel)
        ready = time.perf_counter()
        session._measurer.start()
        end = time.perf_counter()
        yield Start(session=session, open_s=ready - begin, worker_s=end - ready)


def row(
    start: Start, clock: LaunchClock, kernel: str, sizes: Sequence[int], asked: Asked
) -> dict[str, Any]:
    """Choose, then see what would have been best."""
    session = start.session
    begin = time.perf_counter()
    choice = session.choose(kernel, *sizes)
    spent = time.perf_counter() - begin
    found = exhaustive(clock, session, kernel, choice, asked)
    chosen = choice.record.full_name
    best = min(found, key=lambda name: found[name].microseconds)
    pack = str(session.reference(kernel).pack.path)
    return {
        "kernel": kernel,
        "shape": list(sizes),
        "budget_ms": asked.budget_ms,
        "candidates": len(found),
        "chosen": chosen,
        "best": best,
        "chosen_us": round(found[chosen].microseconds, 2),
        "best_us": round(found[best].microseconds, 2),
        "regret": round(found[chosen].microseconds / found[best].microseconds, 4),
        "spread": round(max(found[chosen].spread, found[best].spread), 4),
        "timer": clock.timer.tier,
        "tune_ms": round(spent * 1e3, 1),
        "settled": choice.settled,
        "note": choice.note,
        "tie": choice.tie,
        "failures": dict(choice.failures),
        "trial_us": {n: round(t, 2) for n, t in choice.medians.items()},
        "thorough_us": {n: round(t.microseconds, 2) for n, t in found.items()},
        "choose_us": round(median_us(lambda: session.choose(kernel, *sizes)), 2),
        "ready_us": round(ready_us(session, kernel, sizes), 2),
        "stored_us": stored_us(pack, kernel, sizes, asked, session.facts),
    }


def main(arguments: list[str]) -> int:
    """Measure, print a line a shape, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--shape", default=SHAPES, metavar="MxNxK,…")
    parser.add_argument("--note", default="", help="what to say of the measurement")
    parser.add_argument("--thorough-s", type=float, default=LONGEST_S, metavar="S")
    args = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        asked = replace(asked_of(args), store=folder, thorough_s=args.thorough_s)
        with started(args.pack, args.kernel, asked) as start:
            session = start.session
            clock = clock_of(session.device)
            for sizes in parse_shapes(args.shape):
                if session.device.backend == "cpu" and prod(sizes) > MOST_ON_CPU:
                    continue
                rows.append(row(start, clock, args.kernel, sizes, asked))
                print(summary(rows[-1]), flush=True)
            data = {
                **device_json(session, asked),
                "note": args.note,
                "open_ms": round(start.open_s * 1e3, 1),
                "worker_start_ms": round(start.worker_s * 1e3, 1),
                "choices": rows,
            }
    print(f"open {data['open_ms']} ms, measuring process {data['worker_start_ms']} ms")
    if args.out:
        Path(args.out).write_text(dumps(data))
    return 0


def summary(row: dict[str, Any]) -> str:
    """A row in a line."""
    shape = "x".join(str(s) for s in row["shape"])
    note = f", {row['note']}" if row["note"] else ""
    return (
        f"{shape}: regret {row['regret']:.3f} (spread {row['spread']:.1%}) of {row['candidates']}, "
        f"{row['chosen']} {row['chosen_us']} us, best {row['best']} {row['best_us']} us; "
        f"tuned in {row['tune_ms']} ms; warm {row['choose_us']} + {row['ready_us']} us, "
        f"stored {row['stored_us']} us{note}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
