"""Build gates: what must hold of the artifacts, checked after the back end has produced them.

All offenders are listed, then the build fails once (seed section 1; design section 6). A hold keeps
a gate quiet where the author has said so, and fails the build as soon as it is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dialects.declarations import Hold, HoldCause
from dialects.errors import Error, Failures
from dialects.manifest import GateRecord, GateStatus, Record

from .artifacts.reading import Reading
from .candidate import CandidateInfo
from .target import Target


class GateError(Error):
    """A record or kernel that a gate refuses."""

    kind = "gate"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One candidate at the gates: what was declared and emitted, what was read, or why not.

    ``failure`` is that of compiling or reading; without one and without ``reading``, preflight has
    refused the record.
    """

    target: Target
    info: CandidateInfo
    record: Record
    reading: Reading | None = None
    failure: Error | None = None

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"{self.info.kernel} {self.record.name} {self.target.name}"


@dataclass(frozen=True, kw_only=True)
class Group:
    """All candidates of one kernel on all targets, and the author's holds.

    ``absent`` are the targets that no body serves, by name, with the reason.
    """

    kernel: str
    holds: tuple[Hold, ...]
    subjects: tuple[Subject, ...]
    absent: Mapping[str, tuple[Target, str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one gate found wrong, and the candidates that it is about; none for a whole kernel."""

    target: Target | None
    subjects: tuple[Subject, ...]
    error: Error


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One check. ``cause`` is what a hold must name to keep it quiet; None: nothing does.

    ``check`` is given the group and the holds that other gates have needed. What it does not find
    fault with is recorded as ``ok`` unless it is ``silent``: about the source, not about a record.
    """

    name: str
    silent: bool = False
    cause: HoldCause | None = None
    check: Callable[[Group, Sequence[Hold]], list[Finding]]


def each(name: str, judge: Callable[[Subject], str | None]) -> Callable[..., list[Finding]]:
    """The check of a gate that judges candidate by candidate; only those with code come to it."""

    def check(group: Group, needed: Sequence[Hold]) -> list[Finding]:
        found = []
        for subject in group.subjects:
            message = judge(subject) if subject.reading is not None else None
            if message is not None:
                error = GateError(f"gate {name}: {message}", where=subject.where)
                found.append(Finding(target=subject.target, subjects=(subject,), error=error))
        return found

    return check


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The records with what every gate said of them, and notes on what was held or let go."""

    records: tuple[Record, ...]
    notes: tuple[str, ...]


def apply_gates(groups: Sequence[Group], gates: Sequence[Gate], *, warn: bool) -> Judged:
    """Put every group through every gate, in order; records come back in the groups' order.

    With ``warn`` a failed gate becomes a note, and a record without code stays in the manifest
    with no files.

    Raises:
        Error: everything that failed, at once, unless ``warn``.
    """
    errors: list[Error] = []
    notes: list[str] = []
    records: list[Record] = []
    for group in groups:
        run = _Run(group, warn)
        for gate in gates:
            run.apply(gate)
        errors += run.errors
        notes += run.notes
        records += run.records()
    if errors and not warn:
        raise errors[0] if len(errors) == 1 else Failures(errors)
    return Judged(records=tuple(records), notes=(*notes, *(str(e) for e in errors)))


class _Run:
    """One group on its way through the gates."""

    def __init__(self, group: Group, warn: bool) -> None:
        self.group, self.failed = group, "warned" if warn else "failed"
        self.errors: list[Error] = []
        self.notes: list[str] = [
            f"xpu.{h.cause} of kernel '{group.kernel}' lacks 'tracked' and holds nothing"
            for h in group.holds
            if not h.tracked
        ]
        self.needed: list[Hold] = []
        self.entries: list[list[GateRecord]] = [[] for _ in group.subjects]

    def apply(self, gate: Gate) -> None:
        said: dict[int, GateRecord] = {}
        for finding in gate.check(self.group, self.needed):
            hold = self._hold(gate, finding)
            message = finding.error.message
            status: GateStatus = "warned" if self.failed == "warned" else "failed"
            if hold is not None:
                status, message = "held", f"{message} [tracked: {hold.tracked}]"
                self.notes.append(str(type(finding.error)(message, where=finding.error.where)))
                self.needed.append(hold)
            else:
                self.errors.append(finding.error)
            for subject in finding.subjects:
                said[id(subject)] = GateRecord(gate=gate.name, status=status, message=message)
        for subject, entries in zip(self.group.subjects, self.entries, strict=True):
            if subject.reading is None or (gate.silent and id(subject) not in said):
                continue
            entries.append(said.get(id(subject), GateRecord(gate=gate.name, status="ok")))

    def _hold(self, gate: Gate, finding: Finding) -> Hold | None:
        """The hold that covers all of a finding; one without ``tracked`` holds nothing."""
        if gate.cause is None or finding.target is None:
            return None
        backend = finding.target.backend
        names = [(s.record.identity.member, s.record.name) for s in finding.subjects]
        for hold in self.group.holds:
            matches = hold.cause == gate.cause and hold.tracked
            if matches and all(hold.covers(backend, *n) for n in names or [()]):
                return hold
        return None

    def records(self) -> list[Record]:
        """The records with their gates, in order."""
        pairs = zip(self.group.subjects, self.entries, strict=True)
        return [replace(s.record, gates=tuple(e)) for s, e in pairs]
