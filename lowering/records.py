"""Records of a manifest: planned from what was emitted, completed from what the artifact says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dialects.errors import CompileError, Error
from dialects.facts import DeviceFacts
from dialects.manifest import (
    Access,
    Argument,
    Files,
    Footprint,
    Identity,
    KernelEntry,
    Launch,
    Mode,
    Peer,
    Record,
    Step,
)
from dialects.manifest import Refusal as Refused
from dialects.occupancy import feasible_blocks, residency
from dialects.operands import Contraction
from dialects.rules import Case, judge

from .artifacts.matrix_sums import count_groups, sums_by_type
from .artifacts.reading import Reader, Reading, read_artifact
from .candidate import Candidate, CandidateInfo
from .compile import LISTING_SUFFIX, Artifact, compiler_version
from .gates import Subject
from .instructions import macs_per_clock
from .target import Target

UNBUILT = "code"  # the rule of a record whose code could not be made: a failure of its own
CEILING = "occupancy"  # the rule of a record whose block is larger than its author allows


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One candidate for one target, and its record before there is any code."""

    target: Target
    candidate: Candidate
    record: Record

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"{self.candidate.info.kernel} {self.record.name} {self.target.name}"


def plan(candidate: Candidate, target: Target) -> Plan:
    """The record before compilation, refused when declarations or rules already say so."""
    info = candidate.info
    record = Record(
        identity=Identity(
            member=info.tile.name,
            body=info.body,
            target=target.name,
            code_hash=None,
            compiler=compiler_version(),
            isa=target.baseline,
        ),
        tile=info.tile,
        launch=info.launch,
        files=None,
        workspace=info.workspace,
        prepared=info.prepared,
        split=info.split,
        needs=info.needs,
        footprint=info.footprint,
        access=info.access or _contracted(info.contraction),
        groups=info.groups,
        gates=(),
        refused=None,
        compilation_info=info.compilation_info,
    )
    case = Case(kernel=entry(info, (), ()), record=record, facts=target.facts, problem=None)
    refused = _above_ceiling(info) or judge(case).refusal
    if refused is not None:
        record = replace(record, refused=refused, launch=None, split=None)
    return Plan(target=target, candidate=candidate, record=record)


def _above_ceiling(info: CandidateInfo) -> Refused | None:
    """A block that is larger than what the author or the launch sites allow."""
    threads, ceiling = info.footprint.threads_per_group, info.max_threads
    if threads is None or ceiling is None or threads <= ceiling:
        return None
    by = "max_threads" if info.limits.max_threads else "the largest block of a launch site"
    text = f"block of {threads} threads > {ceiling}, {by} ({CEILING})"
    return Refused(rule=CEILING, need=threads, limit=ceiling, message=text)


def _contracted(contraction: Contraction) -> tuple[Access, ...]:
    *inputs, result = contraction.operands
    mode: Mode = "readwrite" if contraction.accumulate else "write"
    return (
        *(Access(param=o.name, mode="read", origin="contraction") for o in inputs),
        Access(param=result.name, mode=mode, origin="contraction"),
    )


def finish(
    planned: Plan, artifact: Artifact | CompileError | None, reader: Reader, files: dict[str, bytes]
) -> Subject:
    """Read the artifact into the record; a failure keeps its place, as one that cannot run.

    ``files`` receives the content of every file by its path in the pack.
    """
    info, record = planned.candidate.info, planned.record
    try:
        if isinstance(artifact, CompileError):
            raise artifact
        if artifact is None:
            return Subject(target=planned.target, info=info, record=record)
        reading = _read(planned, artifact, reader)
    except Error as error:
        refused = Refused(rule=UNBUILT, need=None, limit=None, message=error.message)
        record = replace(record, launch=None, split=None, refused=refused)
        return Subject(target=planned.target, info=info, record=record, failure=error)
    record = _completed(planned, artifact, reading, files)
    return Subject(target=planned.target, info=info, record=record, reading=reading)


def _read(planned: Plan, artifact: Artifact, reader: Reader) -> Reading:
    target, where = planned.target, planned.where
    if artifact.code is None:
        raise CompileError("the compiler made no device code", where=where)
    launch = planned.record.launch
    reading = read_artifact(
        target,
        artifact,
        planned.record.footprint,
        reader,
        where=where,
        entry=launch.entry if launch else None,
    )
    if reading.isa is not None and reading.isa != target.isa:
        raise CompileError(
            f"the artifact is for {reading.isa}, required {target.isa}: the back end does not "
            "know that target",
            where=where,
        )
    return reading


def _completed(
    planned: Plan, artifact: Artifact, reading: Reading, files: dict[str, bytes]
) -> Record:
    record, split = planned.record, planned.record.split
    mine = _files(planned, artifact, files)
    assert artifact.code is not None
    sums = sums_by_type(planned.target.backend, artifact.codes, where=planned.where)
    return replace(
        record,
        identity=replace(record.identity, code_hash=reading.code_hash),
        files=mine,
        launch=_placed(record.launch, mine) if record.launch else None,
        split=replace(split, launch=_placed(split.launch, mine)) if split else None,
        footprint=with_occupancy(reading.footprint, planned.target.facts),
        groups=tuple(
            replace(group, macs_per_clock=macs_per_clock(planned.target, group))
            for group in count_groups(record.groups, reading.matrix_instructions, sums)
        ),
    )


def with_occupancy(used: Footprint, facts: DeviceFacts) -> Footprint:
    """The footprint with how many workgroups are resident, and why no more, where limits say so."""
    resident = residency(used.usage, facts)
    return replace(
        used,
        resident_groups=resident.groups if resident else None,
        occupancy_limiter=resident.limiter if resident else None,
        feasible_blocks=feasible_blocks(used.usage, facts) if used.threads_per_group else None,
    )


def _files(planned: Plan, artifact: Artifact, files: dict[str, bytes]) -> Files:
    assert artifact.code is not None
    identity = planned.record.identity
    name = "__".join((identity.member, identity.body, safe_name(planned.target.name)))
    stem = f"{planned.candidate.info.kernel}/{name}"
    vmfb, code = f"{stem}.vmfb", f"{stem}{artifact.code_suffix}"
    mine = {vmfb: artifact.vmfb, code: artifact.code}
    mine |= {f"{stem}{name}": content for name, content in artifact.more}
    listing = None
    if artifact.listing is not None:
        listing = f"{stem}{LISTING_SUFFIX}"
        mine[listing] = artifact.listing
    files.update(mine)
    digests = {path: sha256(content) for path, content in mine.items()}
    return Files(vmfb=vmfb, code_object=code, assembly=listing, sha256=digests)


def _placed(launch: Launch, files: Files) -> Launch:
    """The launch with the file of each step whose entry has a code object of its own."""

    def file_of(step: Step) -> str | None:
        ending = f"_{step.entry}"
        more = (f for f in files.sha256 if f not in (files.vmfb, files.code_object))
        return next((f for f in more if f.rpartition(".")[0].endswith(ending)), None)

    then = tuple(replace(step, code_object=file_of(step)) for step in launch.then)
    return replace(launch, code_object=file_of(launch), then=then)


def safe_name(text: str) -> str:
    """A target's name as a part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def sha256(content: bytes) -> str:
    """The digest that a manifest states of a file."""
    return hashlib.sha256(content).hexdigest()


def entry(info: CandidateInfo, members: tuple[Record, ...], peers: tuple[Peer, ...]) -> KernelEntry:
    """The kernel that a candidate belongs to, with these records."""
    contraction = info.contraction
    modes: dict[str, Mode] = {o.name: "read" for o in contraction.operands}
    modes[contraction.c.name] = "readwrite" if contraction.accumulate else "write"
    sizes = list(dict.fromkeys(r.workspace for r in members if r.workspace))
    workspace = sizes[0] if len(sizes) == 1 else f"max({', '.join(sizes)})" if sizes else None
    return KernelEntry(
        family=info.kernel,
        kernel=info.kernel,
        dims=info.dims,
        args=tuple(
            Argument(
                name=o.name, type=o.stored_type, dims=o.dims, mode=modes[o.name], source=o.source
            )
            for o in contraction.operands
        ),
        contraction=contraction,
        workspace=workspace,
        members=members,
        peers=peers,
    )


def kernel_entries(
    subjects: Sequence[Subject],
    records: Sequence[Record],
    peers: Mapping[str, tuple[Peer, ...]],
) -> tuple[KernelEntry, ...]:
    """The kernels of a manifest, each with its records in order."""
    infos: dict[str, CandidateInfo] = {}
    members: dict[str, list[Record]] = {}
    for subject, record in zip(subjects, records, strict=True):
        kernel = subject.info.kernel
        infos.setdefault(kernel, subject.info)
        members.setdefault(kernel, []).append(record)
    return tuple(
        entry(info, tuple(members[kernel]), peers.get(kernel, ())) for kernel, info in infos.items()
    )
