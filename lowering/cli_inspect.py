"""``python -m lowering inspect``: a pack's manifest, its code, and what differs from another's."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict

from dialects.codec import encode
from dialects.errors import UsageError
from dialects.manifest import Record
from runtime.console import OK, Streams, add_json
from runtime.pack import Pack, open_pack

from .disassemble import Listing, listings
from .pack_diff import changes, changes_table, diffs_of_code
from .table import manifest_tables
from .tools import find_tool


def add_inspect(parser: argparse.ArgumentParser) -> None:
    """The arguments of the sub-command."""
    parser.add_argument("pack", metavar="PACK")
    parser.add_argument("--diff", metavar="OTHER", help="what changed from PACK to OTHER")
    parser.add_argument("--asm", action="store_true", help="the code, as far down as tools reach")
    parser.add_argument("--member", metavar="NAME", help="with --asm: MEMBER, MEMBER/BODY or more")
    add_json(parser, inspect_pack)


def inspect_pack(args: argparse.Namespace, streams: Streams) -> int:
    """Print what was asked for; every file of a pack is checked first."""
    pack = _checked(args.pack)
    if args.member and not args.asm:
        raise UsageError("--member restricts --asm, which was not asked for")
    if args.diff:
        return _diff(pack, _checked(args.diff), args, streams)
    if args.asm:
        return _asm(pack, args, streams)
    if args.json:
        streams.json(encode(pack.manifest))
    else:
        streams.table(*manifest_tables(pack.manifest))
    return OK


def _checked(path: str) -> Pack:
    pack = open_pack(path)
    pack.verify()
    return pack


def _texts(pack: Pack) -> Callable[[Record], list[Listing]]:
    def texts(record: Record) -> list[Listing]:
        digests = record.files.sha256 if record.files else {}
        return listings(record, lambda path: pack.read(path, digests[path]), find_tool)

    return texts


def _asm(pack: Pack, args: argparse.Namespace, streams: Streams) -> int:
    texts = _texts(pack)
    chosen = [
        (k.kernel, r)
        for k in pack.manifest.kernels
        for r in k.members
        if not args.member or args.member in (r.identity.member, r.name, r.full_name)
    ]
    if not chosen:
        names = ", ".join(r.full_name for k in pack.manifest.kernels for r in k.members)
        raise UsageError(f"no member '{args.member}', there is: {names}")
    found = [(kernel, record, texts(record)) for kernel, record in chosen]
    if args.json:
        codes = [
            {"kernel": k, "record": r.full_name, "code": [asdict(t) for t in ts]}
            for k, r, ts in found
        ]
        streams.json({"listings": codes})
        return OK
    for kernel, record, levels in found:
        for level in levels:
            streams.out.write(f"// {kernel} {record.full_name} {level.level}\n")
            streams.out.write(f"{level.text or f'// absent: {level.absent}'}\n\n")
    return OK


def _diff(pack: Pack, other: Pack, args: argparse.Namespace, streams: Streams) -> int:
    found = changes(pack.manifest, other.manifest)
    code: dict[str, str] = {}
    if args.asm:
        code = diffs_of_code(pack.manifest, other.manifest, _texts(pack), _texts(other))
    if args.json:
        result = {"changes": [asdict(c) for c in found]}
        streams.json({**result, "code": code} if args.asm else result)
        return OK
    streams.table(changes_table(found) if found else "no record differs")
    for text in code.values():
        streams.out.write(f"{text}\n")
    return OK
