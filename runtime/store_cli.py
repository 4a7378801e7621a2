"""``python -m runtime store``: what choices are remembered, and their upkeep."""

from __future__ import annotations

import argparse
from pathlib import Path

from dialects.codec import dumps, encode, loads
from dialects.errors import FormatError, StoreError, UsageError

from . import store
from .choice import TIE_PERMILLE
from .console import FAILED, OK, Streams, add_json
from .files import describe, write_product
from .pack import open_pack
from .surroundings import APP
from .tables import store_table
from .tuning_spec import tuning_spec


def default_store() -> Path:
    """Where the command lines remember choices."""
    # Here and not above: a benchmark on a bare machine asks for no such place.
    from platformdirs import user_cache_path

    return user_cache_path(APP, appauthor=False) / "store"


def add_store_commands(parser: argparse.ArgumentParser) -> None:
    """The actions of ``store``."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, command, text in (
        ("list", _list, "every entry"),
        ("show", _show, "entries that match a pattern, with their samples"),
        ("replay", _replay, "decide again from stored samples, under another tie band"),
        ("drop", _drop, "delete entries that match a pattern"),
        ("verify", _verify, "what is damaged, with the reason"),
        ("export", _export, "write every entry to one file"),
        ("import", _import, "take the entries of an exported file"),
    ):
        sub = actions.add_parser(name, help=text)
        sub.add_argument("--store", metavar="DIR", help="not the one in the user's cache")
        if name in ("show", "replay", "drop"):
            sub.add_argument("pattern", metavar="PATTERN", help="a shell pattern over keys")
        if name == "replay":
            sub.add_argument("--band", type=int, default=TIE_PERMILLE, metavar="PERMILLE")
        if name in ("export", "import"):
            sub.add_argument("file", metavar="FILE")
        if name == "export":
            sub.add_argument(
                "--iree-spec",
                action="store_true",
                help="write the winners of the body iree as an IREE tuning spec; needs --pack",
            )
            sub.add_argument(
                "--pack",
                action="append",
                default=[],
                metavar="PACK",
                help="the pack that was tuned, with --iree-spec; may be given several times",
            )
        add_json(sub, command)


def _directory(args: argparse.Namespace) -> Path:
    return Path(args.store) if args.store else default_store()


def _row(entry: store.Entry) -> dict[str, object]:
    choice = entry.choice
    return {
        "device": entry.location.device,
        "key": entry.location.key,
        "member": choice.member,
        "body": choice.body,
        "margin_permille": choice.margin_permille,
        "tie": choice.tie,
    }


def _list(args: argparse.Namespace, streams: Streams) -> int:
    found = store.entries(_directory(args))
    if args.json:
        streams.json({"entries": [_row(e) for e in found]})
    else:
        streams.table(store_table(found))
    return OK


def _show(args: argparse.Namespace, streams: Streams) -> int:
    found = store.show(_directory(args), args.pattern)
    if args.json:
        streams.json({"entries": [encode(e) for e in found]})
        return OK
    streams.table(store_table(found))
    for entry in found:
        for name, samples in entry.choice.samples.items():
            times = ", ".join(f"{s:.1f}" for s in samples)
            streams.table(f"{entry.location.key}: {name}: {times} us")
    return OK


def _replay(args: argparse.Namespace, streams: Streams) -> int:
    if args.band < 0:
        raise UsageError(f"--band must not be negative, found {args.band}")
    rows = []
    for entry in store.show(_directory(args), args.pattern):
        decision = store.replay(entry.choice, args.band)
        stored = f"{entry.choice.member}/{entry.choice.body}"
        rows.append(
            {
                "key": entry.location.key,
                "stored": stored,
                "winner": decision.winner if decision else None,
                "margin_permille": decision.margin_permille if decision else None,
                "tie": decision.tie if decision else None,
            }
        )
    if args.json:
        streams.json({"band_permille": args.band, "entries": rows})
    for row in () if args.json else rows:
        tie = ", a tie" if row["tie"] else ""
        streams.table(f"{row['key']}: stored {row['stored']}, now {row['winner']}{tie}")
    return OK


def _drop(args: argparse.Namespace, streams: Streams) -> int:
    dropped = store.drop(_directory(args), args.pattern)
    if args.json:
        streams.json({"dropped": [str(p) for p in dropped]})
    else:
        streams.table(*([f"dropped {p}" for p in dropped] or ["nothing matches"]))
    return OK


def _verify(args: argparse.Namespace, streams: Streams) -> int:
    odd = store.verify(_directory(args))
    if args.json:
        streams.json({"damaged": [{"path": str(p), "reason": r} for p, r in odd]})
    else:
        streams.table(*([f"{p}: {r}" for p, r in odd] or ["every entry is sound"]))
    return FAILED if odd else OK


def _export(args: argparse.Namespace, streams: Streams) -> int:
    if args.iree_spec or args.pack:
        return _export_spec(args, streams)
    data = store.export_all(_directory(args))
    _write(args.file, dumps(data))
    count = len(data.get("entries", ()))
    if args.json:
        streams.json({"exported": count})
    else:
        streams.table(f"exported {count} entries to {args.file}")
    return OK


def _export_spec(args: argparse.Namespace, streams: Streams) -> int:
    """The winners of the body ``iree``; a spec without any would silently do nothing."""
    if not args.iree_spec or not args.pack:
        raise UsageError("--iree-spec and --pack need each other: the pack holds the configs")
    packs = [open_pack(path) for path in args.pack]
    spec = tuning_spec(store.entries(_directory(args)), packs)
    for reason in spec.left_out:
        streams.note(f"note: left out: {reason}")
    if not spec.matchers:
        raise StoreError("no winner is of the body iree: no tuning spec was written")
    _write(args.file, spec.text)
    if args.json:
        streams.json({"exported": spec.matchers, "left_out": list(spec.left_out)})
    else:
        streams.table(f"exported {spec.matchers} matchers to {args.file}")
    return OK


def _write(file: str, text: str) -> None:
    try:
        write_product(Path(file), text.encode())
    except OSError as error:
        raise StoreError(f"cannot write: {describe(error)}", where=file) from None


def _import(args: argparse.Namespace, streams: Streams) -> int:
    try:
        text = Path(args.file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read: {error.strerror}", where=args.file) from None
    data = loads(text, where=args.file)
    try:
        count = store.import_all(_directory(args), data)
    except FormatError as error:
        where = ": ".join(filter(None, (args.file, error.where)))
        raise FormatError(error.message, where=where) from None
    if args.json:
        streams.json({"imported": count})
    else:
        streams.table(f"imported {count} entries")
    return OK
