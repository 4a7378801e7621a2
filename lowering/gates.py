"""Build gates: what must hold of the artifacts, checked after the back end has produced them.

All offenders are listed, then the build fails once (seed section 1; design section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dialects.errors import Error, Failures
from dialects.manifest import GateRecord, GateStatus, Record


class GateError(Error):
    """A record that a gate refuses."""

    kind = "gate"


UNBUILT = "code"  # the rule of a record whose code could not be made: a failure of its own
Gate = Callable[[Record], str | None]


def _spill(record: Record) -> str | None:
    if record.footprint.spill_bytes:
        return f"spills {record.footprint.spill_bytes} B"
    return None


def _tier(record: Record) -> str | None:
    """Matrix instructions must be there for a native group and absent for a software one."""
    for group in record.groups:
        if group.count is None:
            continue
        types = f"{group.a}*{group.b}->{group.acc}"
        if group.tier == "native" and group.count == 0:
            return f"{types} is native, the artifact has no {group.instruction}"
        if group.tier == "software" and group.count:
            return f"{types} is software, the artifact has {group.count} matrix instructions"
    return None


GATES: tuple[tuple[str, Gate], ...] = (("spill", _spill), ("tier", _tier))


def apply_gates(
    records: Sequence[Record], kernels: Sequence[str], failures: Sequence[Error], *, warn: bool
) -> tuple[list[Record], list[str]]:
    """Judge every record that has code; ``failures`` are those of compiling and reading.

    ``kernels`` names the kernel of each record. With ``warn`` a failed gate becomes a note, and a
    record without code is dropped from none: it stays in the manifest with no files.

    Raises:
        Error: everything that failed, at once, unless ``warn``.
    """
    errors: list[Error] = list(failures)
    judged: list[Record] = []
    for kernel, record in zip(kernels, records, strict=True):
        entries: list[GateRecord] = []
        if record.files is not None:
            for name, gate in GATES:
                message = gate(record)
                status: GateStatus = "ok" if message is None else "warned" if warn else "failed"
                entries.append(GateRecord(gate=name, status=status, message=message))
                if message is not None:
                    where = f"{kernel} {record.name} {record.identity.target}"
                    errors.append(GateError(f"gate {name}: {message}", where=where))
        judged.append(replace(record, gates=tuple(entries)))
    errors += _without_code(records, kernels)
    if errors and not warn:
        raise errors[0] if len(errors) == 1 else Failures(errors)
    return judged, [str(e) for e in errors]


def _without_code(records: Sequence[Record], kernels: Sequence[str]) -> list[Error]:
    """A kernel without any code for a target; a refused member alone is no failure."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for kernel, record in zip(kernels, records, strict=True):
        groups.setdefault((kernel, record.identity.target), []).append(record)
    errors: list[Error] = []
    for (kernel, target), mine in groups.items():
        refused = [r for r in mine if r.refused is not None and r.refused.rule != UNBUILT]
        if len(refused) == len(mine):
            reasons = "; ".join(f"{r.name}: {r.refused.message}" for r in refused if r.refused)
            what = f"gate code: no device code of kernel '{kernel}' for {target}: {reasons}"
            errors.append(GateError(what))
    return errors
