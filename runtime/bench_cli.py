"""``python -m runtime bench``: candidates beside peers, as a table and as benchmark data."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.table import Table

from dialects.codec import dumps
from dialects.errors import UsageError
from dialects.manifest import Record
from dialects.member import problem

from .benchmark import PEERS, Row, benchmark, benchmark_json
from .console import OK, Streams, add_json, parse_shape
from .files import describe, write_product
from .run_options import kernel_name, peer_names, session_for
from .session import Session


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Options of ``bench`` alone; ``--shape`` may list several, separated by commas."""
    parser.add_argument("--all", action="store_true", help="every candidate, not the winner only")
    parser.add_argument("--write", metavar="FILE", help="write the benchmark data here")
    add_json(parser, _bench)


def _bench(args: argparse.Namespace, streams: Streams) -> int:
    if args.write and not Path(args.write).parent.is_dir():
        raise UsageError("no such directory", where=str(Path(args.write).parent))
    peers = peer_names(args, PEERS)
    rows: list[Row] = []
    tuning = "off" if args.all else "first_use"
    with session_for(args.pack, args, None, tuning) as session:
        name = kernel_name(session.kernels, args.kernel)
        if args.member:
            session.override(name, args.member)
        shapes = [parse_shape(text) for text in args.shape.split(",")]
        for sizes in shapes:
            problem(name, session.reference(name).entry.dims, sizes)
        with streams.progress("measuring", None) as step:
            for sizes in shapes:
                records = _records(session, name, sizes, every=args.all)
                rows += benchmark(session, name, sizes, peers, records, step)
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
    return OK


def _records(session: Session, kernel: str, sizes: tuple[int, ...], *, every: bool) -> list[Record]:
    """The chosen candidate, or every one that can run; choosing refuses when none can."""
    chosen = session.choose(kernel, *sizes)
    if not every:
        return [chosen.record]
    return [v.record for v in chosen.verdicts if v.ok]


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
