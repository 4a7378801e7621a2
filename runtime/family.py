"""A family of members at a problem: what is chosen among, and what the choice says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dialects.errors import PackError
from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Record, Refusal
from dialects.member import Problem
from dialects.rules import Verdict

from .filter import candidates
from .keys import build_id, choice_key, location
from .pack import Pack, family_id, open_pack
from .shape_choice import HELD, Option, Question, Source
from .timer import CachePolicy


@dataclass(frozen=True, kw_only=True)
class KernelRef:
    """A kernel and the pack it came from."""

    pack: Pack
    entry: KernelEntry


def open_kernels(packs: str | Path | Iterable[str | Path]) -> dict[str, KernelRef]:
    """The kernels of one or more packs by name.

    Raises:
        PackError: a pack that is damaged, two kernels of one name, or none at all.
    """
    kernels: dict[str, KernelRef] = {}
    for path in [packs] if isinstance(packs, str | Path) else packs:
        pack = open_pack(path)
        pack.verify()
        for entry in pack.manifest.kernels:
            if entry.kernel in kernels:
                raise PackError(
                    f"kernel '{entry.kernel}' is in {kernels[entry.kernel].pack.path} too",
                    where=str(path),
                )
            kernels[entry.kernel] = KernelRef(pack=pack, entry=entry)
    if not kernels:
        raise PackError("a session needs at least one pack with a kernel")
    return kernels


def check_code(kernels: Iterable[KernelRef], backend: str) -> None:
    """Every kernel must have code for the backend.

    Raises:
        PackError: one has none, with the targets that it was built for.
    """
    for ref in kernels:
        if not candidates(ref.entry, backend):
            built = sorted({r.identity.target for r in ref.entry.members})
            raise PackError(
                f"kernel '{ref.entry.kernel}' has no code for {backend}, "
                f"only for {', '.join(built)}",
                where=str(ref.pack.path),
            )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which record serves a problem and why.

    ``medians`` are microseconds by candidate, of this trial only. ``settled`` is False while a
    later call could still choose another one. ``note`` says why something was not stored.
    ``ceiling_known`` says whether every time was checked against what the hardware can do.
    """

    kernel: str
    problem: Problem
    record: Record
    source: Source
    margin_permille: int | None = None
    tie: bool | None = None
    settled: bool = True
    note: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    medians: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    timer: str = "host"
    ceiling_known: bool | None = None

    @property
    def splits(self) -> int:
        """Slices of K that the launch uses (R5), 1 where it does not split."""
        return splits_of(self.verdicts).get(self.record.full_name, 1)

    @property
    def lasting(self) -> bool:
        """Whether it may serve later calls: not one that was made while trials are held."""
        return self.note != HELD


def splits_of(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The split-K of each record that is launched with one, by name."""
    return {v.record.full_name: v.splits for v in verdicts if v.splits > 1}


@dataclass(frozen=True, kw_only=True)
class Family:
    """Several survivors at a problem, and the question which of them serves.

    ``base`` is the choice of the first, from which the others are made.
    """

    kernel: KernelRef
    base: Choice
    survivors: tuple[Record, ...]
    question: Question


def family_question(
    facts: DeviceFacts,
    kernel: KernelRef,
    problem: Problem,
    *,
    feasible: Sequence[Record],
    survivors: Sequence[Record],
    layout: str,
    cache: CachePolicy,
) -> Question:
    """The question which of the survivors serves; the state of the caches is part of its key.

    The build is that of all that the rules let through, ``feasible``: one that failed in this
    process alone must not make another build of it.
    """
    name = kernel.entry.kernel
    layout += "-cold" if cache == "cold" else ""
    key = choice_key(family_id(kernel.entry), name, problem, layout)
    return Question(
        kernel=name,
        what=f"kernel '{name}' at {problem.text}",
        place=location(facts, key),
        build=build_id(facts, [r.identity.code_hash or "" for r in feasible]),
        options=tuple(
            Option(
                name=r.full_name,
                member=r.identity.member,
                body=r.identity.body,
                code_hash=r.identity.code_hash or "",
            )
            for r in survivors
        ),
    )


def judged(verdict: Verdict, denied: Mapping[str, str]) -> Verdict:
    """The verdict, with a failure as its refusal."""
    reason = denied.get(verdict.record.full_name)
    if reason is None:
        return verdict
    refusal = Refusal(rule="failed", need=None, limit=None, message=f"failed, {reason}")
    return replace(verdict, refusal=refusal)
