"""What changed between two packs: records that came or went, and fields that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from rich.table import Table

from dialects.codec import encode
from dialects.manifest import Manifest, Record

from .disassemble import Listing

_NOT_COMPARED = ("files",)  # digests of whole files: the code hash says what they mean


@dataclass(frozen=True, kw_only=True)
class Change:
    """One field of one record; ``before`` None and ``field`` empty: it is new, ``after``: gone."""

    kernel: str
    record: str
    field: str
    before: Any
    after: Any


def changes(before: Manifest, after: Manifest) -> list[Change]:
    """Every difference, by kernel and ``member/body@target``, in the order of the first pack."""
    old, new = _records(before), _records(after)
    found: list[Change] = []
    for key in dict.fromkeys([*old, *new]):
        kernel, record = key
        a, b = old.get(key), new.get(key)
        if a is None or b is None:
            there = ("there" if a else None, "there" if b else None)
            found.append(
                Change(kernel=kernel, record=record, field="", before=there[0], after=there[1])
            )
            continue
        for field, was, now in _fields(a, b):
            found.append(Change(kernel=kernel, record=record, field=field, before=was, after=now))
    return found


def _records(manifest: Manifest) -> dict[tuple[str, str], Record]:
    return {(k.kernel, r.full_name): r for k in manifest.kernels for r in k.members}


def _fields(a: Record, b: Record) -> Iterator[tuple[str, Any, Any]]:
    old, new = (dict(_flat(encode(r))) for r in (a, b))
    for field in dict.fromkeys([*old, *new]):
        if old.get(field) != new.get(field) and field.partition(".")[0] not in _NOT_COMPARED:
            yield field, old.get(field), new.get(field)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested objects by their path; a list is one leaf, but for lists of objects."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, value


def changes_table(found: list[Change]) -> Table:
    """One row a difference."""
    table = Table(title="changes", title_justify="left")
    for column in ("kernel", "record", "field", "before", "after"):
        table.add_column(column, overflow="fold")
    for change in found:
        cells = (_shown(change.before), _shown(change.after))
        table.add_row(change.kernel, change.record, change.field or "record", *cells)
    return table


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


def code_diff(before: list[Listing], after: list[Listing], name: str) -> list[str]:
    """A unified diff of each level that both sides have."""
    lines: list[str] = []
    theirs = {listing.level: listing for listing in after}
    for listing in before:
        other = theirs.get(listing.level)
        if listing.text is None or other is None or other.text is None:
            continue
        lines += unified_diff(
            listing.text.splitlines(),
            other.text.splitlines(),
            f"before/{name}.{listing.level}",
            f"after/{name}.{listing.level}",
            lineterm="",
        )
    return lines


Texts = Callable[[Record], list[Listing]]


def diffs_of_code(before: Manifest, after: Manifest, old: Texts, new: Texts) -> dict[str, str]:
    """The diff of each record whose code differs, by kernel and record."""
    theirs = _records(after)
    result: dict[str, str] = {}
    for key, record in _records(before).items():
        other = theirs.get(key)
        if other is None or record.identity.code_hash == other.identity.code_hash:
            continue
        name = "/".join(key)
        result[name] = "\n".join(code_diff(old(record), new(other), name))
    return result
