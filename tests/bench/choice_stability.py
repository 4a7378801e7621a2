"""Whether fresh processes choose alike: ``python tests/bench/choice_stability.py PACK --kernel K``.

Each process opens a session that remembers in memory only, chooses one shape as a first call would,
and ends; counted is the winner that most processes of a shape had. The first ``--warm`` processes
do not count: on a fresh machine the driver compiles what later ones find in its own cache.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from choice_bench import add_options, asked_of, device_json, opened, parse_shapes

from dialects.codec import dumps

SHAPES = "1x4096x4096,512x4096x4096"
PROCESSES = 30
DEADLINE_S = 120.0


def choose_once(args: argparse.Namespace) -> dict[str, Any]:
    """The choice of this process, and what it took."""
    asked = asked_of(args)
    (sizes,) = parse_shapes(args.shape)
    begin = time.perf_counter()
    with opened(args.pack, asked) as session:
        session.reference(args.kernel)
        ready = time.perf_counter()
        session._measurer.start()
        started = time.perf_counter()
        choice = session.choose(args.kernel, *sizes)
        end = time.perf_counter()
        return {
            "who": device_json(session, asked),
            "winner": choice.record.full_name,
            "source": choice.source,
            "settled": choice.settled,
            "note": choice.note,
            "tie": choice.tie,
            "margin_permille": choice.margin_permille,
            "timer": choice.timer,
            "open_ms": round((ready - begin) * 1e3, 1),
            "worker_start_ms": round((started - ready) * 1e3, 1),
            "tune_ms": round((end - started) * 1e3, 1),
            "medians": {n: round(t, 3) for n, t in choice.medians.items()},
            "failures": dict(choice.failures),
        }


def in_a_process(arguments: list[str], shape: str) -> dict[str, Any]:
    """The choice of a fresh process."""
    command = [sys.executable, __file__, *arguments, "--shape", shape, "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    if done.returncode:
        sys.exit(f"{shape}: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout)


def row(shape: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What the processes of a shape chose."""
    winners = Counter(run["winner"] for run in runs)
    return {
        "shape": [int(s) for s in shape.split("x")],
        "processes": len(runs),
        "same": winners.most_common(1)[0][1],
        "winners": dict(winners.most_common()),
        "settled": sum(run["settled"] for run in runs),
        "notes": dict(Counter(run["note"] for run in runs if run["note"])),
        "tune_ms": sorted(run["tune_ms"] for run in runs),
        "runs": runs,
    }


def main(arguments: list[str]) -> int:
    """Run the processes, print a line a shape, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--shape", default=SHAPES, metavar="MxNxK,…")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--warm", type=int, default=1)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.once:
        print(json.dumps(choose_once(args)))
        return 0
    passed = [args.pack, "--kernel", args.kernel, "--device", args.device]
    passed += ["--executor", args.executor, "--caches", args.caches]
    passed += ["--budget-ms", str(args.budget_ms)]
    rows: list[dict[str, Any]] = []
    who: dict[str, Any] = {}
    for shape in args.shape.split(","):
        runs = [in_a_process(passed, shape) for _ in range(args.warm + args.processes)][args.warm :]
        who = runs[0]["who"]
        for run in runs:
            del run["who"]
        rows.append(row(shape, runs))
        print(summary(shape, rows[-1]), flush=True)
    same, count = (sum(r[key] for r in rows) for key in ("same", "processes"))
    print(f"{same} of {count} the same winner")
    if args.out:
        Path(args.out).write_text(dumps({**who, "choices": rows}))
    return 0


def summary(shape: str, row: dict[str, Any]) -> str:
    """A row in a line."""
    times = row["tune_ms"]
    return (
        f"{shape}: {row['same']} of {row['processes']} chose alike, {row['settled']} settled, "
        f"winners {row['winners']}, tuned in {times[0]} to {times[-1]} ms"
        f"{', notes ' + str(row['notes']) if row['notes'] else ''}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
