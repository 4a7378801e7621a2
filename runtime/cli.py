"""``python -m runtime``: facts, explain, run, tune, bench, store."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dialects.errors import UsageError
from dialects.facts import DeviceFacts, facts_from_json, facts_to_json
from dialects.manifest import KernelEntry
from dialects.member import problem
from dialects.rules import refuse_all

from .bench import PEERS, run_problem
from .bench_cli import add_bench_options
from .console import FAILED, OK, Parser, Streams, add_json, parse_shape, run_command
from .facts import read_facts
from .family import Choice
from .filter import filter_candidates
from .pack import Pack, open_pack
from .report import Explanation, RunReport, verdict_table
from .run_options import add_run_options, kernel_name, peer_names, session_for
from .session import Session
from .store_cli import add_store_commands, default_store
from .tables import facts_table
from .tune import has_dispatch_clock, tune_by_dispatches


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    return run_command(build_parser(), arguments, Streams(out=sys.stdout, err=sys.stderr))


def build_parser() -> Parser:
    """All sub-commands."""
    parser = Parser(prog="python -m runtime", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    facts = commands.add_parser("facts", help="what the driver reports of a device")
    facts.add_argument("--device", default="local-task", metavar="URI")
    add_json(facts, _facts)
    explain = commands.add_parser("explain", help="every candidate and its verdict at a shape")
    _pack_and_shape(explain)
    explain.add_argument("--device", default="local-task", metavar="URI")
    explain.add_argument("--facts", metavar="FILE", help="explain for a machine that is not here")
    add_json(explain, _explain)
    for name, command, text in (
        ("run", _run, "choose, check, and time beside peers"),
        ("tune", _tune, "measure a shape and remember the winner"),
    ):
        sub = commands.add_parser(name, help=text)
        _pack_and_shape(sub)
        add_run_options(sub)
        add_json(sub, command)
    bench = commands.add_parser("bench", help="time candidates beside peers, as benchmark data")
    add_run_options(bench)
    add_bench_options(bench)
    add_store_commands(commands.add_parser("store", help="what choices are remembered"))
    return parser


def _pack_and_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pack", metavar="PACK")
    parser.add_argument("--shape", required=True, metavar="MxNxK")
    parser.add_argument("--kernel", metavar="NAME", help="needed when the pack has several")


def _facts(args: argparse.Namespace, streams: Streams) -> int:
    facts = read_facts(args.device)
    if args.json:
        streams.json(facts_to_json(facts))
    else:
        streams.table(facts_table(facts, args.device))
    return OK


def facts_file(path: str) -> DeviceFacts:
    """Read a facts file.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return facts_from_json(Path(path).read_bytes(), where=path)
    except OSError as error:
        raise UsageError(f"cannot read facts file: {error.strerror}", where=path) from None


def _entry(pack: Pack, asked: str | None) -> KernelEntry:
    return pack.kernel(kernel_name([k.kernel for k in pack.manifest.kernels], asked))


def _explain(args: argparse.Namespace, streams: Streams) -> int:
    pack = open_pack(args.pack)
    pack.verify()
    entry = _entry(pack, args.kernel)
    at = problem(entry.kernel, entry.dims, parse_shape(args.shape))
    facts = facts_file(args.facts) if args.facts else read_facts(args.device)
    verdicts = filter_candidates(entry, facts, at)
    explanation = Explanation(
        kernel=entry.kernel,
        problem=at,
        device=args.facts or args.device,
        verdicts=tuple(verdicts),
    )
    refusal = None if any(v.ok for v in verdicts) else refuse_all(entry, at.text, verdicts)
    if args.json:
        failures = {"failures": refusal.failures()} if refusal else {}
        streams.json({**explanation.to_json(), **failures})
    elif verdicts:
        streams.table(explanation.table())
    if refusal is not None:
        streams.note(f"error: {refusal.message}")
        return FAILED
    return OK


def run_and_report(
    pack: Path | str, kernel: str | None, args: argparse.Namespace, streams: Streams
) -> tuple[Session, RunReport]:
    """Choose and run one problem with a progress bar on the terminal."""
    peers = peer_names(args, PEERS)
    sizes = parse_shape(args.shape)
    entry = _entry(open_pack(pack), kernel)
    name = entry.kernel
    problem(name, entry.dims, sizes)
    with session_for(pack, args, default_store) as session:
        if args.member:
            session.override(name, args.member)
        with streams.progress("measuring", None):
            report = run_problem(session, name, sizes, peers)
    return session, report


def print_run(
    session: Session, report: RunReport, args: argparse.Namespace, streams: Streams
) -> None:
    """A run as JSON, or for a person: facts, candidates, winner, error, speed."""
    if args.json:
        streams.json(report.to_json())
        return
    choice = report.choice
    title = f"{choice.kernel} at {choice.problem.text} on {report.device}"
    streams.table(facts_table(session.facts, report.device), verdict_table(title, report))
    streams.table(choice_line(choice), *speed_lines(report))
    if choice.note:
        streams.note(f"note: {choice.note}")


def choice_line(choice: Choice) -> str:
    """The winner with its margin and where it came from."""
    told = {
        "store": "from the store, nothing was timed",
        "timed": "timed now",
        "only": "the only candidate that can run",
        "override": "forced",
        "default": "the untimed default",
    }[choice.source]
    margin = ""
    if choice.margin_permille is not None:
        margin = f", {choice.margin_permille / 10:.1f} % ahead of the next"
        margin += " (a tie, the first in family order wins)" if choice.tie else ""
    timer = ""
    if choice.source == "timed":
        timer = f"; {choice.timer} timer{'' if choice.ceiling_known else ', no ceiling known'}"
    return f"winner: {choice.record.name}, {told}{margin}{timer}"


def speed_lines(report: RunReport) -> list[str]:
    """Error against float64, and the rate beside the peers."""
    lines = []
    if report.max_abs is not None:
        lines.append(
            f"error against float64: {report.max_abs:.3g} (relative {report.relative:.3g})"
        )
    if report.gflops is not None:
        lines.append(f"{report.gflops:.1f} GFLOP/s ({report.gflops_timer} timer)")
        for name, rate in report.peers.items():
            ratio = f"{rate:.1f} GFLOP/s, ratio {report.gflops / rate:.2f}" if rate else "not run"
            lines.append(f"  {name}: {ratio}")
    return lines


def _run(args: argparse.Namespace, streams: Streams) -> int:
    session, report = run_and_report(args.pack, args.kernel, args, streams)
    print_run(session, report, args, streams)
    return OK


def _tune(args: argparse.Namespace, streams: Streams) -> int:
    name = _entry(open_pack(args.pack), args.kernel).kernel
    sizes = parse_shape(args.shape)
    with (
        session_for(args.pack, args, default_store) as session,
        streams.progress("measuring", None),
    ):
        if args.member:
            session.override(name, args.member)
        if has_dispatch_clock(session):
            choice = tune_by_dispatches(session, name, sizes, args.budget_ms)
        else:
            choice = session.choose(name, *sizes)
    report = RunReport(
        choice=choice,
        device=args.device,
        settled=session.settled,
        max_abs=None,
        relative=None,
        gflops=None,
    )
    if args.json:
        streams.json(report.to_json())
    else:
        title = f"{name} at {choice.problem.text} on {args.device}"
        streams.table(verdict_table(title, report), choice_line(choice))
    if choice.note:
        streams.note(f"note: {choice.note}")
    return OK
