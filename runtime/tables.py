"""Tables of facts and of stored choices for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from dialects.facts import DeviceFacts, facts_to_json

from .store import Entry

LONGEST = 12  # items of a list that a person reads; the JSON has all


def facts_table(facts: DeviceFacts, device: str) -> Table:
    """Known fields with their values and sources."""
    table = Table(title=f"facts of {device}", title_justify="left")
    for column in ("field", "value", "source"):
        table.add_column(column, overflow="fold")
    known = facts_to_json(facts)
    sources = known.pop("sources", {})
    known.pop("schema_version", None)
    for name, value in known.items():
        table.add_row(name, _text(value), str(sources.get(name, "")))
    return table


def _text(value: object) -> str:
    if not isinstance(value, list):
        return str(value)
    if len(value) > LONGEST:
        return f"{len(value)} of them: {', '.join(str(v) for v in value[:LONGEST])} ..."
    return ", ".join(_config(v) if isinstance(v, dict) else str(v) for v in value) or "none"


def _config(row: dict[str, object]) -> str:
    return "{m}x{n}x{k} {a}*{b}->{acc}".format(**row)


def store_table(entries: Sequence[Entry]) -> Table:
    """Stored choices, one a line."""
    table = Table(title=f"{len(entries)} stored choices", title_justify="left")
    for column in ("device", "key", "winner", "margin", "timer"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        choice = entry.choice
        margin = f"{choice.margin_permille / 10:.1f} %" + (" tie" if choice.tie else "")
        table.add_row(
            entry.location.device,
            entry.location.key,
            f"{choice.member}/{choice.body}",
            margin,
            choice.timer,
        )
    return table
