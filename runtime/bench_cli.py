"""``python -m runtime bench``: candidates beside peers, as a table and as benchmark data."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from dialects.codec import dumps
from dialects.errors import UsageError
from dialects.manifest import Record

from .benchmark import PEERS, Row, benchmark, benchmark_json
from .console import FAILED, OK, Streams, add_json, parse_shape
from .dispatch_events import DEADLINE_S
from .files import describe, write_product
from .run_options import peer_names, session_for
from .session import Session


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``bench`` alone; shapes and kernels may be several, separated by commas."""
    parser.add_argument("pack", metavar="PACK")
    parser.add_argument(
        "--shape", required=True, action="append", metavar="MxNxK", help="may be given again"
    )
    parser.add_argument("--kernel", metavar="NAMES", help="left out, all that have such shapes")
    parser.add_argument("--all", action="store_true", help="every candidate, not the winner only")
    parser.add_argument("--body", metavar="NAMES", help="with --all, only these bodies")
    parser.add_argument(
        "--write", "--out", dest="write", metavar="FILE", help="write the benchmark data here"
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE_S,
        metavar="S",
        help="seconds that a peer, or a candidate where a profiler times it, may take",
    )
    add_json(parser, _bench)


def _bench(args: argparse.Namespace, streams: Streams) -> int:
    if args.write and not Path(args.write).parent.is_dir():
        raise UsageError("no such directory", where=str(Path(args.write).parent))
    if not args.deadline > 0:
        raise UsageError(f"--deadline must be positive, found {args.deadline:g}")
    if args.body and not args.all:
        raise UsageError("--body chooses among all candidates: give --all too")
    peers = peer_names(args, PEERS)
    if args.executor is None and args.device.partition(":")[0] == "cuda":
        args.executor = "direct"  # whose launches the device's own clock can time
    rows: list[Row] = []
    wrong: list[str] = []
    tuning = "off" if args.all else "first_use"
    with session_for(args.pack, args, None, tuning) as session:
        cases = _cases(session, args)
        with streams.progress("measuring", None) as step:
            for name, sizes in cases:
                records = _records(session, name, sizes, args)
                rows += benchmark(
                    session,
                    name,
                    sizes,
                    peers,
                    records,
                    step,
                    streams.note,
                    wrong,
                    args.deadline,
                    args.caches,
                )
        data = benchmark_json(session, rows)
    if args.write:
        try:
            write_product(Path(args.write), dumps(data).encode())
        except OSError as error:
            raise UsageError(f"cannot write: {describe(error)}", where=args.write) from None
    if args.json:
        streams.json(data)
    else:
        streams.table(_table(rows))
    for text in wrong:
        streams.note(f"error: {text}")
    return FAILED if wrong else OK


def _cases(session: Session, args: argparse.Namespace) -> list[tuple[str, tuple[int, ...]]]:
    """Every kernel at every shape that has as many sizes, checked before anything is timed."""
    shapes = [parse_shape(text) for texts in args.shape for text in texts.split(",")]
    names = args.kernel.split(",") if args.kernel else list(session.kernels)
    cases = []
    for sizes in shapes:
        fitting = [n for n in names if len(session.dims(n)) == len(sizes)]
        for name in fitting or names[:1]:
            session.problem_of(name, *sizes)
            cases.append((name, sizes))
    for name in dict.fromkeys(name for name, _ in cases):
        if args.member:
            session.override(name, args.member)
    return cases


def _records(
    session: Session, kernel: str, sizes: tuple[int, ...], args: argparse.Namespace
) -> list[Record]:
    """The chosen candidate, or every one that can run; choosing refuses when none can.

    Raises:
        UsageError: no candidate that can run is of a body that was asked for.
    """
    chosen = session.choose(kernel, *sizes)
    if not args.all:
        return [chosen.record]
    bodies = args.body.split(",") if args.body else None
    found = [
        v.record
        for v in chosen.verdicts
        if v.ok and (bodies is None or v.record.identity.body in bodies)
    ]
    if not found:
        there = sorted({v.record.identity.body for v in chosen.verdicts if v.ok})
        raise UsageError(f"kernel '{kernel}' has no body {args.body} here, has {', '.join(there)}")
    return found


def _table(rows: list[Row]) -> Table:
    table = Table(title="benchmark", title_justify="left")
    for column in ("kernel", "shape", "member", "body", "us", "TFLOP/s", "peer", "ratio", "timer"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(
            row.kernel,
            "x".join(str(s) for s in row.shape),
            row.member,
            row.body,
            f"{row.kernel_us:.1f} ({row.spread:.0%})",
            f"{row.tflops:.3g}",
            f"{row.peer} {row.peer_us:.1f} us" if row.peer else "-",
            f"{row.ratio:.3f}" if row.ratio else "-",
            row.timer,
        )
    return table
