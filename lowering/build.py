"""From source texts to a pack's content: the default pipeline, compilation, reading, gates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialects.codec import decode
from dialects.errors import DeclarationError, UsageError
from dialects.launches import LaunchSite
from dialects.manifest import Manifest, Record

from .artifacts.reading import Reader
from .attributes import is_kernel
from .candidate import Candidate, CandidateInfo
from .compile import CompileOptions, Job, compile_all
from .gate_table import GATES
from .gates import Gate, Group, Subject, apply_gates
from .ir import attribute_value, context, functions, mlir, parse_module, symbol
from .launches import launch_sites
from .passes import (
    ApplyDeclarations,
    EmitBody,
    GroupOperands,
    Instantiate,
    ScanLaunches,
    SelectTier,
    VerifyDeclarations,
)
from .peers import peer_entries, peer_jobs
from .pipeline import Item, Printing, Report, Unlowered, run_pipeline
from .records import Plan, finish, kernel_entries, plan
from .target import Target, compiler_flags

GENERALIZE = "func.func(linalg-generalize-named-ops)"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a build may be asked. ``warn`` turns failed gates into notes, for sweeps.

    ``assembler`` is NVIDIA's, which says what registers and spills a CUDA kernel has; without it
    they are unknown. ``gates`` is there for tests, which leave one out.
    """

    tier: str = ""
    body: str = ""
    warn: bool = False
    peers: tuple[str, ...] = ()
    assembler: Path | None = None
    compile: CompileOptions = field(default_factory=CompileOptions)
    printing: Printing = field(default_factory=Printing)
    gates: tuple[Gate, ...] = GATES


@dataclass(frozen=True, kw_only=True)
class Source:
    """One module's text, and what diagnostics call it."""

    text: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Build:
    """A finished build: the manifest, the content of every file by its path, and notes."""

    manifest: Manifest
    files: dict[str, bytes]
    notes: tuple[str, ...]


def default_pipeline(
    target: Target, options: BuildOptions, elsewhere: Sequence[LaunchSite] = ()
) -> list[Item]:
    """The passes from authored IR to one module a candidate; ``elsewhere`` are launch sites."""
    return [
        VerifyDeclarations(),
        ScanLaunches(elsewhere=tuple(elsewhere)),
        GENERALIZE,
        GroupOperands(),
        SelectTier(target=target.name, resolved=target),
        Instantiate(target=target.name, tier=options.tier, body=options.body, resolved=target),
        EmitBody(target=target.name, resolved=target),
        ApplyDeclarations(target=target.name, resolved=target),
    ]


def lower(
    text: str, name: str, target: Target, options: BuildOptions
) -> tuple[list[Candidate], list[str]]:
    """Run the default pipeline for one target; the candidates in family order, and its notes.

    Raises:
        Error: the source does not parse, a declaration is wrong, no body serves a kernel.
    """
    candidates, report = _lower(Source(text=text, name=name), target, options, ())
    return candidates, report.notes


def _lower(
    source: Source, target: Target, options: BuildOptions, elsewhere: Sequence[LaunchSite]
) -> tuple[list[Candidate], Report]:
    report = Report(source=source.name)
    with context() as ctx:
        module = parse_module(source.text, source.name, ctx)
        items = default_pipeline(target, options, elsewhere)
        run_pipeline(module, items, report, options.printing)
        return [_candidate(op) for op in _modules(module.operation)], report


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
    """:func:`build_sources` of one source."""
    return build_sources([Source(text=text, name=name)], targets, options, progress)


def build_sources(
    sources: Sequence[Source],
    targets: Sequence[Target],
    options: BuildOptions,
    progress: Callable[[str], None] = lambda _: None,
) -> Build:
    """Compile every candidate of every kernel for every target; ``progress`` is told each one done.

    A source may hold kernels, places that launch kernels of any source, or both.

    Raises:
        Error: one failure, or :class:`Failures` with all of them.
    """
    _check_targets(targets)
    scanned = _scan(sources)
    notes: list[str] = []
    plans: list[Plan] = []
    absent: list[tuple[Target, Unlowered]] = []
    for target in targets:
        for source, elsewhere in scanned:
            candidates, report = _lower(source, target, options, elsewhere)
            notes += [n for n in report.notes if n not in notes]
            plans += [plan(c, target) for c in candidates]
            absent += [(target, u) for u in report.unlowered]
        if target.baseline:
            notes.append(f"{target.name}: not known to the compiler, built for {target.baseline}")
    peers = {}
    for source, _ in scanned:
        peers.update(peer_jobs(source.text, source.name, targets, options.peers))
    wanted = [p for p in plans if p.record.refused is None]
    jobs = [*(_job(p) for p in wanted), *peers.values()]
    made = compile_all(jobs, options.compile, progress)
    artifacts = dict(zip(map(id, wanted), made, strict=False))
    files: dict[str, bytes] = {}
    reader = Reader(assembler=options.assembler, deadline_s=options.compile.deadline_s)
    with ThreadPoolExecutor(max_workers=options.compile.jobs) as pool:
        subjects = list(pool.map(lambda p: finish(p, artifacts.get(id(p)), reader, files), plans))
    entries = peer_entries(peers, made[len(wanted) :], targets, reader, files, notes)
    groups = _groups(subjects, absent)
    judged = apply_gates(groups, options.gates, warn=options.warn)
    records = _in_order(subjects, groups, judged.records)
    return Build(
        manifest=Manifest(kernels=kernel_entries(subjects, records, entries)),
        files=dict(sorted(files.items())),
        notes=(*notes, *judged.notes),
    )


def _check_targets(targets: Sequence[Target]) -> None:
    """Records and files are told apart by the target's name."""
    if not targets:
        raise UsageError("a build needs at least one target")
    names = [t.name for t in targets]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two targets are called '{name}', build them into packs of their own")


def _scan(sources: Sequence[Source]) -> list[tuple[Source, list[LaunchSite]]]:
    """The sources that hold kernels, each with the sites in all others that launch its kernels.

    Raises:
        DeclarationError: a kernel that two sources have.
    """
    if len(sources) == 1:
        return [(sources[0], [])]
    kernels: dict[str, Source] = {}
    with context() as ctx:
        modules = [parse_module(s.text, s.name, ctx).operation for s in sources]
        for source, module in zip(sources, modules, strict=True):
            for function in filter(is_kernel, functions(module)):
                first = kernels.setdefault(symbol(function), source)
                if first is not source:
                    raise DeclarationError(
                        f"kernel '{symbol(function)}' is in {first.name} too", where=source.name
                    )
        sites = [launch_sites(m, kernels, s.name) for s, m in zip(sources, modules, strict=True)]
    holders = [s for s in sources if s in kernels.values()]
    return [
        (
            s,
            [
                x
                for other, found in zip(sources, sites, strict=True)
                if other is not s
                for x in found
            ],
        )
        for s in holders or sources
    ]


def _job(planned: Plan) -> Job:
    info, target = planned.candidate.info, planned.target
    return Job(
        name=f"{info.kernel} {planned.record.name} {target.name}",
        text=planned.candidate.text,
        flags=compiler_flags(target),
        # the compiler's own kernels stand in no executable of ours that could be relinked
        amend=target.backend == "vulkan" and info.compilation_info is None,
        listing=target.backend == "rocm",
        compilation_info=info.compilation_info,
    )


def _groups(subjects: Sequence[Subject], absent: Sequence[tuple[Target, Unlowered]]) -> list[Group]:
    kernels = dict.fromkeys([*(s.info.kernel for s in subjects), *(u.kernel for _, u in absent)])
    groups = []
    for kernel in kernels:
        mine = tuple(s for s in subjects if s.info.kernel == kernel)
        missing = {t.name: (t, u.reason) for t, u in absent if u.kernel == kernel}
        holds = [u.holds for _, u in absent if u.kernel == kernel]
        declared = mine[0].info.holds if mine else holds[0]
        groups.append(Group(kernel=kernel, holds=declared, subjects=mine, absent=missing))
    return groups


def _in_order(
    subjects: Sequence[Subject], groups: Sequence[Group], records: Sequence[Record]
) -> list[Record]:
    """The judged records, which come by kernel, in the order of the subjects."""
    judged = dict(zip((id(s) for g in groups for s in g.subjects), records, strict=True))
    return [judged[id(s)] for s in subjects]
