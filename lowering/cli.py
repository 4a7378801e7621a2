"""``python -m lowering``: compile, opt, run, passes, inspect; without a sub-command, compile."""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from platformdirs import user_cache_path

from dialects.codec import encode
from dialects.errors import Error, ParseError, UsageError
from runtime.cli import print_run, run_and_report
from runtime.console import OK, Parser, Streams, add_json, run_command
from runtime.facts import read_facts
from runtime.run_options import add_run_options
from runtime.surroundings import APP

from .build import Build, BuildOptions, Source, build_sources
from .cli_inspect import add_inspect
from .compile import DEADLINE_S, CompileOptions
from .ir import context, parse_module, split_input
from .pack import write_pack
from .passes import PASSES
from .pipeline import Printing, Report, option_fields, parse_pipeline, run_pipeline
from .table import manifest_tables
from .target import Target, parse_target, target_from_facts
from .tier_table import tier_json, tier_table
from .tools import find_tool

LONGEST_DEADLINE_S = 1e6
COMMANDS = ("compile", "opt", "run", "passes", "inspect", "tiers")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    first = next((a for a in arguments if a == "-" or not a.startswith("-")), None)
    if first is not None and first not in COMMANDS and "-h" not in arguments:
        arguments = ["compile", *arguments]
    return run_command(build_parser(), arguments, Streams(out=sys.stdout, err=sys.stderr))


def build_parser() -> Parser:
    """All sub-commands."""
    parser = Parser(prog="python -m lowering", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    compile_ = commands.add_parser("compile", help="compile kernels into a pack")
    compile_.add_argument(
        "source", metavar="SOURCE", nargs="+", help="kernels, and who launches them"
    )
    compile_.add_argument("--target", action="append", metavar="TARGET", help="repeatable")
    compile_.add_argument("-o", "--out", metavar="DIR", help="write the pack here")
    compile_.add_argument("--peer", action="append", default=[], metavar="NAME")
    _build_options(compile_)
    add_json(compile_, _compile)
    run = commands.add_parser("run", help="compile, filter, choose, check, and time beside peers")
    run.add_argument("source", metavar="SOURCE", nargs="+")
    run.add_argument("--shape", required=True, metavar="MxNxK")
    run.add_argument("--kernel", metavar="NAME", help="needed when the source has several")
    _build_options(run)
    add_run_options(run)
    add_json(run, _run)
    opt = commands.add_parser("opt", help="run passes: IR in, IR out")
    opt.add_argument("source", metavar="SOURCE", help="a file, or - for standard input")
    opt.add_argument("--pass-pipeline", "-p", required=True, metavar="TEXT")
    opt.add_argument("--split-input-file", action="store_true")
    _printing_options(opt)
    add_json(opt, _opt)
    passes = commands.add_parser("passes", help="every pass with its options")
    add_json(passes, _passes)
    tiers = commands.add_parser("tiers", help="element types by tier on a target")
    tiers.add_argument("--target", default="cpu", metavar="TARGET")
    add_json(tiers, _tiers)
    add_inspect(commands.add_parser("inspect", help="what a pack holds, and what changed in it"))
    return parser


def _build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tier", choices=("native", "software"), default="")
    parser.add_argument("--body", default="", metavar="NAME")
    parser.add_argument("--gates", choices=("fail", "warn"), default="fail")
    parser.add_argument("--deadline", type=float, default=DEADLINE_S, metavar="S")
    parser.add_argument("--jobs", type=int, metavar="N", help="compilers at a time")
    parser.add_argument("--cache", metavar="DIR", help="compile cache, not the user's own")
    parser.add_argument("--no-cache", action="store_true", help="compile afresh")
    _printing_options(parser)


def _printing_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mlir-print-ir-after-all", action="store_true")
    parser.add_argument("--mlir-print-ir-tree-dir", metavar="DIR")


def _printing(args: argparse.Namespace) -> Printing:
    return Printing(after_all=args.mlir_print_ir_after_all, tree_dir=args.mlir_print_ir_tree_dir)


def _options(args: argparse.Namespace, peers: Sequence[str]) -> BuildOptions:
    if not 0 < args.deadline <= LONGEST_DEADLINE_S:
        raise UsageError(f"--deadline must be within 0 and {LONGEST_DEADLINE_S:g} seconds")
    if args.jobs is not None and args.jobs < 1:
        raise UsageError("--jobs must be positive")
    cache = Path(args.cache) if args.cache else user_cache_path(APP, appauthor=False) / "compile"
    return BuildOptions(
        tier=args.tier,
        body=args.body,
        warn=args.gates == "warn",
        peers=tuple(peers),
        assembler=find_tool("ptxas"),
        compile=CompileOptions(
            deadline_s=args.deadline, jobs=args.jobs, cache=None if args.no_cache else cache
        ),
        printing=_printing(args),
    )


def read_source(path: str) -> str:
    """The text of a source file, ``-`` for standard input.

    Raises:
        ParseError: it cannot be read, or is no text.
    """
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ParseError(f"cannot read: {error.strerror}", where=path) from None
    except UnicodeDecodeError:
        raise ParseError("is no UTF-8 text", where=path) from None


def _build(
    args: argparse.Namespace, targets: Sequence[Target], peers: Sequence[str], streams: Streams
) -> Build:
    for source in args.source:
        if args.source.count(source) > 1:
            raise UsageError(f"source '{source}' is given twice")
    sources = [Source(text=read_source(name), name=name) for name in args.source]
    options = _options(args, peers)
    with streams.progress("compiling", None) as step:
        return build_sources(sources, targets, options, step)


def _compile(args: argparse.Namespace, streams: Streams) -> int:
    if args.out == "":
        raise UsageError("--out must name a directory")
    targets = [parse_target(t, read_facts) for t in args.target or ["cpu"]]
    result = _build(args, targets, args.peer, streams)
    if args.out:
        write_pack(result, Path(args.out))
    for note in result.notes:
        streams.note(f"note: {note}")
    if args.json:
        streams.json(encode(result.manifest))
    else:
        streams.table(*manifest_tables(result.manifest))
    return OK


def _run(args: argparse.Namespace, streams: Streams) -> int:
    facts = read_facts(args.device)
    target = target_from_facts(facts)
    peers = [p for p in args.against.split(",") if p == "iree_default"]
    result = _build(args, [target], peers, streams)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        pack = Path(folder) / "pack"
        write_pack(result, pack)
        session, report = run_and_report(pack, args.kernel, args, streams)
        for note in result.notes:
            streams.note(f"note: {note}")
        print_run(session, report, args, streams)
    return OK


def _opt(args: argparse.Namespace, streams: Streams) -> int:
    text = read_source(args.source)
    items = parse_pipeline(args.pass_pipeline, PASSES)
    parts = split_input(text) if args.split_input_file else [text]
    outputs: list[str] = []
    failures: list[Error] = []
    for part in parts:
        report = Report(source=args.source)
        try:
            with context() as ctx:
                module = parse_module(part, args.source, ctx)
                run_pipeline(module, items, report, _printing(args))
                outputs.append(str(module))
        except Error as error:
            failures.append(error)
        for note in report.notes:
            streams.note(f"note: {note}")
    streams.out.write("\n// -----\n".join(outputs))
    if failures:
        for failure in failures[:-1]:
            for line in failure.lines():
                streams.note(line)
        raise failures[-1]
    return OK


def _passes(args: argparse.Namespace, streams: Streams) -> int:
    entries = [
        {
            "name": p.name,
            "options": {name: str(f.default) for name, f in option_fields(p).items()},
            "description": inspect.cleandoc(p.__doc__ or ""),
        }
        for p in PASSES
    ]
    if args.json:
        streams.json({"passes": entries})
        return OK
    for entry in entries:
        options = " ".join(f"{k}={v or chr(39) * 2}" for k, v in entry["options"].items())
        streams.out.write(f"{entry['name']}{' {' + options + '}' if options else ''}\n")
        for line in entry["description"].splitlines():
            streams.out.write(f"    {line}".rstrip() + "\n")
        streams.out.write("\n")
    return OK


def _tiers(args: argparse.Namespace, streams: Streams) -> int:
    target = parse_target(args.target, read_facts)
    if args.json:
        streams.json(tier_json(target))
    else:
        streams.table(tier_table(target))
    return OK
