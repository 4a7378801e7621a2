"""The manifest as a table that a person reads."""

from __future__ import annotations

from rich.table import Table

from dialects.manifest import Manifest, Record

_COLUMNS = ("kernel", "member", "body", "target", "tier", "threads", "registers", "spill B")
_MORE = ("shared B", "resident", "matrix ‰", "code", "gates")


def manifest_table(manifest: Manifest) -> Table:
    """One row a record; a dash is a figure that nobody reports."""
    table = Table(title="members", title_justify="left")
    for column in (*_COLUMNS, *_MORE):
        table.add_column(column, overflow="fold")
    for kernel in manifest.kernels:
        for record in kernel.members:
            table.add_row(kernel.kernel, *_cells(record))
    return table


def _cells(record: Record) -> tuple[str, ...]:
    used, identity = record.footprint, record.identity
    if record.refused is not None:
        outcome = (f"refused: {record.refused.message}", "-")
    else:
        gates = ", ".join(f"{g.gate} {g.status}" for g in record.gates) or "-"
        outcome = ((identity.code_hash or "-")[:12], gates)
    return (
        identity.member,
        identity.body,
        identity.target,
        record.tier,
        _figure(used.threads_per_group),
        _figure(used.registers),
        _figure(used.spill_bytes),
        _figure(used.shared_bytes),
        _figure(used.resident_groups),
        _figure(used.matrix_permille),
        *outcome,
    )


def _figure(value: int | None) -> str:
    return "-" if value is None else str(value)
