"""From source text to records: the default pipeline, preflight, compilation, reading, gates."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dialects.codec import decode
from dialects.errors import CompileError, Error, UsageError
from dialects.manifest import (
    Access,
    Argument,
    Files,
    Identity,
    KernelEntry,
    Manifest,
    Mode,
    Peer,
    Record,
    Refusal,
)
from dialects.occupancy import feasible_blocks, residency
from dialects.operands import Contraction
from dialects.rules import Case, judge

from .artifacts import read_artifact
from .attributes import is_kernel
from .candidate import Candidate, CandidateInfo
from .compile import Artifact, CompileOptions, Job, compile_all, compiler_version
from .gates import UNBUILT, apply_gates
from .instructions import macs_per_clock
from .ir import attribute_names, attribute_value, context, mlir, parse_module, symbol
from .passes import EmitBody, GroupOperands, Instantiate, SelectTier, VerifyDeclarations
from .pipeline import Item, Printing, Report, run_pipeline
from .target import Target, compiler_flags, module_attributes

PEER_NAMES = ("iree_default",)
GENERALIZE = "func.func(linalg-generalize-named-ops)"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a build may be asked. ``warn`` turns failed gates into notes, for sweeps."""

    tier: str = ""
    body: str = ""
    warn: bool = False
    peers: tuple[str, ...] = ()
    compile: CompileOptions = field(default_factory=CompileOptions)
    printing: Printing = field(default_factory=Printing)


@dataclass(frozen=True, kw_only=True)
class Build:
    """A finished build: the manifest, the content of every file by its path, and notes."""

    manifest: Manifest
    files: dict[str, bytes]
    notes: tuple[str, ...]


def default_pipeline(target: Target, options: BuildOptions) -> list[Item]:
    """The passes from authored IR to one module a candidate."""
    return [
        VerifyDeclarations(),
        GENERALIZE,
        GroupOperands(),
        SelectTier(target=target.name, resolved=target),
        Instantiate(target=target.name, tier=options.tier, body=options.body, resolved=target),
        EmitBody(target=target.name, resolved=target),
    ]


def lower(
    text: str, name: str, target: Target, options: BuildOptions
) -> tuple[list[Candidate], list[str]]:
    """Run the default pipeline for one target; the candidates in family order, and its notes.

    Raises:
        Error: the source does not parse, a declaration is wrong, no body serves a kernel.
    """
    report = Report(source=name)
    with context() as ctx:
        module = parse_module(text, name, ctx)
        run_pipeline(module, default_pipeline(target, options), report, options.printing)
        return [_candidate(op) for op in _modules(module.operation)], report.notes


def _modules(module: mlir.Operation) -> list[mlir.Operation]:
    ops = [o.operation for o in module.regions[0].blocks[0].operations]
    return [o for o in ops if "xpu.candidate" in o.attributes]


def _candidate(module: mlir.Operation) -> Candidate:
    value: dict[str, Any] = attribute_value(module.attributes["xpu.candidate"])
    info = decode(CandidateInfo, value, where="xpu.candidate")
    # names and records stay out of the compiled text: they must not change the code
    del module.attributes["xpu.candidate"]
    del module.attributes["sym_name"]
    return Candidate(info=info, text=str(module))


def build(
    text: str,
    name: str,
    targets: Sequence[Target],
    options: BuildOptions,
    progress: Callable[[str], None] = lambda _: None,
) -> Build:
    """Compile every candidate of every kernel for every target; ``progress`` is told each one done.

    Raises:
        Error: one failure, or :class:`Failures` with all of them.
    """
    _check_targets(targets)
    notes: list[str] = []
    work: list[tuple[Target, Candidate, Record]] = []
    for target in targets:
        candidates, said = lower(text, name, target, options)
        notes += [n for n in said if n not in notes]
        work += [(target, c, _planned(c, target)) for c in candidates]
    jobs = [
        Job(
            name=f"{c.info.kernel} {r.name} {t.name}",
            text=c.text,
            flags=compiler_flags(t),
            # the compiler's own kernels stand in no executable of ours that could be relinked
            amend=t.backend == "vulkan" and c.info.compilation_info is None,
            compilation_info=c.info.compilation_info,
        )
        for t, c, r in work
        if r.refused is None
    ]
    peer_jobs = _peer_jobs(text, name, targets, options.peers)
    artifacts = compile_all([*jobs, *peer_jobs.values()], options.compile, progress)
    made = iter(artifacts)
    results = [(t, c, r, next(made) if r.refused is None else None) for t, c, r in work]
    files: dict[str, bytes] = {}
    records, failures = _finish(results, files)
    peers = _peers(peer_jobs, list(made), files, notes)
    kernels = [c.info.kernel for _, c, _ in work]
    records, gate_notes = apply_gates(records, kernels, failures, warn=options.warn)
    manifest = Manifest(kernels=_kernels(work, records, peers))
    return Build(manifest=manifest, files=files, notes=(*notes, *gate_notes))


def _check_targets(targets: Sequence[Target]) -> None:
    """Records and files are told apart by the target's name."""
    if not targets:
        raise UsageError("a build needs at least one target")
    names = [t.name for t in targets]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two targets are called '{name}', build them into packs of their own")


def _planned(candidate: Candidate, target: Target) -> Record:
    """The record before compilation, refused when the rules already say so."""
    info = candidate.info
    record = Record(
        identity=Identity(
            member=info.tile.name,
            body=info.body,
            target=target.name,
            code_hash=None,
            compiler=compiler_version(),
        ),
        tile=info.tile,
        launch=info.launch,
        files=None,
        workspace=info.workspace,
        prepared=info.prepared,
        needs=info.needs,
        footprint=info.footprint,
        access=_access(info.contraction),
        groups=info.groups,
        gates=(),
        refused=None,
        compilation_info=info.compilation_info,
    )
    case = Case(kernel=_entry(info, (), ()), record=record, facts=target.facts, problem=None)
    refusal = judge(case).refusal
    return replace(record, refused=refusal, launch=None) if refusal else record


def _access(contraction: Contraction) -> tuple[Access, ...]:
    *inputs, result = contraction.operands
    mode: Mode = "readwrite" if contraction.accumulate else "write"
    return (
        *(Access(param=o.name, mode="read", origin="contraction") for o in inputs),
        Access(param=result.name, mode=mode, origin="contraction"),
    )


def _finish(
    results: Sequence[tuple[Target, Candidate, Record, Artifact | CompileError | None]],
    files: dict[str, bytes],
) -> tuple[list[Record], list[Error]]:
    """Read every artifact into its record; a failure keeps its place, as one that cannot run."""
    records: list[Record] = []
    failures: list[Error] = []
    for target, candidate, record, artifact in results:
        where = f"{candidate.info.kernel} {record.name} {target.name}"
        try:
            if isinstance(artifact, CompileError):
                raise artifact
            if artifact is not None:
                record = _read(target, candidate, record, artifact, files, where)
        except Error as error:
            failures.append(error)
            refused = Refusal(rule=UNBUILT, need=None, limit=None, message=error.message)
            record = replace(record, launch=None, refused=refused)
        records.append(record)
    return records, failures


def _read(
    target: Target,
    candidate: Candidate,
    record: Record,
    artifact: Artifact,
    files: dict[str, bytes],
    where: str,
) -> Record:
    if artifact.code is None:
        raise CompileError("the compiler made no device code", where=where)
    reading = read_artifact(target, artifact.code, record.footprint, where=where)
    if reading.isa is not None and reading.isa != target.isa:
        raise CompileError(
            f"the artifact is for {reading.isa}, required {target.isa}: the back end does not "
            "know that target",
            where=where,
        )
    stem = "__".join((record.identity.member, record.identity.body, _safe(target.name)))
    paths = {
        f"{candidate.info.kernel}/{stem}.vmfb": artifact.vmfb,
        f"{candidate.info.kernel}/{stem}{artifact.code_suffix}": artifact.code,
    }
    files.update(paths)
    vmfb, code = paths
    used = reading.footprint
    resident = residency(used.usage, target.facts)
    return replace(
        record,
        identity=replace(record.identity, code_hash=reading.code_hash),
        files=Files(vmfb=vmfb, code_object=code, sha256={p: _sha256(b) for p, b in paths.items()}),
        footprint=replace(
            used,
            resident_groups=resident.groups if resident else None,
            occupancy_limiter=resident.limiter if resident else None,
            feasible_blocks=feasible_blocks(used.usage, target.facts)
            if used.threads_per_group
            else None,
        ),
        groups=tuple(
            replace(g, count=reading.matrix_instructions, macs_per_clock=macs_per_clock(target, g))
            for g in record.groups
        ),
    )


def _safe(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entry(
    info: CandidateInfo, members: tuple[Record, ...], peers: tuple[Peer, ...]
) -> KernelEntry:
    contraction = info.contraction
    modes: dict[str, Mode] = {a.param: a.mode for a in _access(contraction)}
    sizes = list(dict.fromkeys(r.workspace for r in members if r.workspace))
    workspace = sizes[0] if len(sizes) == 1 else f"max({', '.join(sizes)})" if sizes else None
    return KernelEntry(
        family=info.kernel,
        kernel=info.kernel,
        dims=info.dims,
        args=tuple(
            Argument(name=o.name, type=o.type, dims=o.dims, mode=modes[o.name])
            for o in contraction.operands
        ),
        contraction=contraction,
        workspace=workspace,
        members=members,
        peers=peers,
    )


def _kernels(
    work: Sequence[tuple[Target, Candidate, Record]],
    records: Sequence[Record],
    peers: dict[str, tuple[Peer, ...]],
) -> tuple[KernelEntry, ...]:
    infos: dict[str, CandidateInfo] = {}
    members: dict[str, list[Record]] = {}
    for (_, candidate, _), record in zip(work, records, strict=True):
        kernel = candidate.info.kernel
        infos.setdefault(kernel, candidate.info)
        members.setdefault(kernel, []).append(record)
    return tuple(
        _entry(info, tuple(members[kernel]), peers.get(kernel, ()))
        for kernel, info in infos.items()
    )


def _peer_jobs(
    text: str, name: str, targets: Sequence[Target], peers: Sequence[str]
) -> dict[tuple[str, str, tuple[str, ...]], Job]:
    """One job a peer and target, over all kernels of the source without our attributes."""
    jobs = {}
    for peer in peers:
        if peer not in PEER_NAMES:
            raise UsageError(f"peer '{peer}' is not one of {', '.join(PEER_NAMES)}")
        for target in targets:
            plain, kernels = _plain_source(text, name, target)
            flags = tuple(f for f in compiler_flags(target) if "ukernels" not in f)
            jobs[(peer, target.name, kernels)] = Job(
                name=f"peer {peer} {target.name}", text=plain, flags=flags, in_place=False
            )
    return jobs


def _plain_source(text: str, name: str, target: Target) -> tuple[str, tuple[str, ...]]:
    kernels = []
    with context() as ctx:
        module = parse_module(text, name, ctx)
        for op in module.body.operations:
            if is_kernel(op.operation):
                kernels.append(symbol(op.operation))
            for key in attribute_names(op.operation):
                if key.startswith("xpu.") or key == "arg_attrs":
                    del op.attributes[key]
        attributes = module_attributes(target, matrix=False)
        if attributes:
            wrapper = parse_module(f"module attributes {{{attributes}}} {{}}", name, ctx)
            key = "hal.device.targets"
            module.operation.attributes[key] = wrapper.operation.attributes[key]
        return str(module), tuple(kernels)


def _peers(
    jobs: dict[tuple[str, str, tuple[str, ...]], Job],
    artifacts: Sequence[Artifact | CompileError],
    files: dict[str, bytes],
    notes: list[str],
) -> dict[str, tuple[Peer, ...]]:
    """A peer that does not compile is a note: it is only there to be compared with."""
    result: dict[str, tuple[Peer, ...]] = {}
    for (peer, target, kernels), artifact in zip(jobs, artifacts, strict=True):
        if isinstance(artifact, CompileError):
            notes.append(f"peer {peer} on {target}: {artifact.message}")
            continue
        path = f"peers/{peer}__{_safe(target)}.vmfb"
        files[path] = artifact.vmfb
        entry = Peer(name=peer, target=target, vmfb=path, sha256=_sha256(artifact.vmfb))
        for kernel in kernels:
            result[kernel] = (*result.get(kernel, ()), entry)
    return result
