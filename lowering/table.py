"""The manifest as tables that a person reads; a dash is a figure that nobody reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from rich.table import Table

from dialects.manifest import Footprint, Manifest, Record

FOOTPRINT = tuple(f.name for f in fields(Footprint) if f.name != "sources")
_MEMBERS = ("kernel", "member", "body", "target", "tier", "instructions", "access", "code", "gates")
_DRIVER = "the driver allocates them, no back end knows"
_HEADINGS = {
    "spill_bytes": "spill B",
    "spill_store_bytes": "spill stores B",
    "static_shared_bytes": "static shared B",
    "dynamic_shared_bytes": "dynamic shared B",
    "threads_per_group": "threads",
    "wave_width": "wave",
    "resident_groups": "resident",
    "feasible_blocks": "feasible blocks",
    "occupancy_limiter": "limiter",
    "matrix_permille": "matrix ‰",
}


def manifest_tables(manifest: Manifest) -> list[Table]:
    """Who the members are, what they take, and what is not known of them with the reason."""
    return [members_table(manifest), footprint_table(manifest), absent_table(manifest)]


def members_table(manifest: Manifest) -> Table:
    """One row a record: tier, matrix instructions, access modes, code, gates."""
    table = _table("members", _MEMBERS)
    for kernel in manifest.kernels:
        for record in kernel.members:
            table.add_row(kernel.kernel, *_cells(record))
    return table


def footprint_table(manifest: Manifest) -> Table:
    """One row a record with code, and every field of its footprint; then those of its peers."""
    columns = ("kernel", "member/body", "target", *(_HEADINGS.get(n, n) for n in FOOTPRINT))
    table = _table("footprint", columns)
    for kernel in manifest.kernels:
        for record in kernel.members:
            if record.files is not None:
                figures = _figures(record.footprint)
                table.add_row(kernel.kernel, record.name, record.identity.target, *figures)
        for peer in kernel.peers:
            if peer.footprint is not None:
                table.add_row(kernel.kernel, peer.name, peer.target, *_figures(peer.footprint))
    return table


def absent_table(manifest: Manifest) -> Table:
    """One row a target and reason: the fields that are null there."""
    table = _table("absent", ("target", "fields", "why"))
    found: dict[tuple[str, str], list[str]] = {}
    for kernel in manifest.kernels:
        for record in kernel.members:
            for field, why in absent_fields(record).items():
                names = found.setdefault((record.identity.target, why), [])
                if field not in names:
                    names.append(field)
    for (target, why), names in found.items():
        table.add_row(target, ", ".join(names), why)
    return table


def absent_fields(record: Record) -> dict[str, str]:
    """Why each field of a footprint is null; a record without code has none to speak of."""
    if record.files is None:
        return {}
    used, backend = record.footprint, record.identity.target.partition(":")[0]
    return {n: _why(n, backend, used) for n in FOOTPRINT if getattr(used, n) is None}


def _why(field: str, backend: str, used: Footprint) -> str:
    if backend == "cpu":
        return "a processor's code has no launch and no registers of its own"
    if field in ("registers", "spill_bytes", "spill_store_bytes", "static_shared_bytes"):
        if backend == "cuda":
            return "no assembler (ptxas) that knows this ISA was at hand"
        if field == "spill_store_bytes" and backend == "rocm":
            return "the notes of the code object count spilled registers, not stores"
        return _DRIVER
    if field == "sgprs":
        return "this ISA has no scalar registers of a wave" if backend == "cuda" else _DRIVER
    if field == "wave_width":
        return "the driver chooses the width, the code works with any"
    if field in ("resident_groups", "occupancy_limiter", "feasible_blocks"):
        return "the target's limits are not known, compile for a facts file or a device"
    return "the artifact does not say"


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _cells(record: Record) -> tuple[str, ...]:
    identity = record.identity
    if record.refused is not None:
        outcome = (f"refused: {record.refused.message}", "-")
    else:
        outcome = ((identity.code_hash or "-")[:12], gates_text(record))
    return (
        identity.member,
        identity.body,
        identity.target,
        record.tier,
        ", ".join(_instructions(record)) or "-",
        " ".join(f"{a.param}:{a.mode}" for a in record.access),
        *outcome,
    )


def _instructions(record: Record) -> list[str]:
    return [
        f"{g.count} x {g.instruction or 'matrix'}"
        for g in record.groups
        if g.count is not None and (g.count or g.instruction)
    ]


def gates_text(record: Record) -> str:
    """The gates that are not simply passed; ``ok`` when all are."""
    said = [f"{g.gate} {g.status}" for g in record.gates if g.status != "ok"]
    return ", ".join(said) or (f"{len(record.gates)} ok" if record.gates else "-")


def _figures(used: Footprint) -> Iterator[str]:
    return (_figure(getattr(used, name)) for name in FOOTPRINT)


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    return " ".join(str(v) for v in value) if isinstance(value, tuple) else str(value)
