"""From a problem to a member: override, sole survivor, store, trial (design section 7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from dialects.errors import DeviceError, PackError
from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Record, Refusal
from dialects.member import Problem
from dialects.rules import Verdict, dense_strides, refuse_all

from .choice import decide, upper_median
from .filter import candidates, filter_candidates
from .load import LIMIT_PERCENT
from .measure import Measurer
from .pack import Pack, family_id
from .store import Store, StoredChoice, build_id, choice_key, location

Tuning = Literal["off", "store", "first_use"]
Source = Literal["override", "only", "store", "timed", "default"]
TUNINGS: tuple[Tuning, ...] = ("off", "store", "first_use")


@dataclass(frozen=True, kw_only=True)
class KernelRef:
    """A kernel and the pack it came from."""

    pack: Pack
    entry: KernelEntry


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which record serves a problem and why.

    ``medians`` are microseconds by candidate, of this trial only. ``settled`` is False while a
    later call could still choose another one. ``note`` says why something was not stored.
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

    @property
    def splits(self) -> int:
        """Slices of K that the launch uses (R5), 1 where it does not split."""
        return splits_of(self.verdicts).get(self.record.full_name, 1)


def splits_of(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """The split-K of each record that is launched with one, by name."""
    return {v.record.full_name: v.splits for v in verdicts if v.splits > 1}


@dataclass(frozen=True, kw_only=True)
class PlannerOptions:
    """How a planner may choose."""

    tuning: Tuning = "store"
    budget_ms: float = 1000.0
    observe: Callable[[str, str], None] = lambda step, name: None
    on_choice: Callable[[Choice], None] = lambda choice: None


class Planner:
    """Remembers choices of this process; one trial at a time."""

    def __init__(
        self,
        facts: DeviceFacts,
        store: Store,
        measurer: Measurer,
        foreign_percent: Callable[[], int | None],
        options: PlannerOptions,
    ) -> None:
        self.facts, self.options = facts, options
        self._store, self._measurer, self._foreign_percent = store, measurer, foreign_percent
        self._overrides: dict[str, str] = {}
        self._denied: dict[str, str] = {}
        self._choices: dict[tuple[str, str, str], Choice] = {}
        self._lock = threading.RLock()

    def override(self, kernel: KernelRef, name: str | None) -> None:
        """Force a candidate, a pruned one too; None lifts it.

        ``name`` is ``member``, ``member/body`` or ``member/body@target``; of several candidates the
        first in family order is taken.

        Raises:
            PackError: no candidate of this device has that name.
        """
        with self._lock:
            if name is None:
                self._overrides.pop(kernel.entry.kernel, None)
            else:
                self._overrides[kernel.entry.kernel] = self._find(kernel, name).full_name
            self._choices = {k: c for k, c in self._choices.items() if k[0] != kernel.entry.kernel}

    @property
    def settled(self) -> bool:
        """Whether every problem met so far has a choice that will stay."""
        with self._lock:
            return all(c.settled for c in self._choices.values())

    def verdicts(
        self, kernel: KernelRef, problem: Problem, strides: Mapping[str, int] | None = None
    ) -> list[Verdict]:
        """Every candidate judged at the problem."""
        return filter_candidates(kernel.entry, self.facts, problem, strides)

    def known(self, kernel: KernelRef, problem: Problem, layout: str) -> Choice | None:
        """The choice for a problem, if one was made."""
        with self._lock:
            return self._choices.get(_key(kernel, problem, layout, None))

    def choose(
        self,
        kernel: KernelRef,
        problem: Problem,
        layout: str,
        strides: Mapping[str, int] | None = None,
    ) -> Choice:
        """The record for a problem, measured when the options allow it and nothing is known.

        Raises:
            LaunchRefused: no candidate can run, naming each with its rule and amounts.
        """
        key = _key(kernel, problem, layout, strides)
        with self._lock:
            known = self._choices.get(key)
            if known is not None:
                return known
            choice = self._decide(kernel, problem, layout, strides)
            self._choices[key] = choice
        self.options.on_choice(choice)
        return choice

    def _find(self, kernel: KernelRef, name: str) -> Record:
        records = candidates(kernel.entry, self.facts.backend)
        for record in records:
            names = (record.full_name, record.name, record.identity.member)
            if name in names and record.files is not None:
                return record
        names = ", ".join(r.name for r in records if r.files is not None)
        raise PackError(f"kernel '{kernel.entry.kernel}' has no candidate '{name}', has: {names}")

    def _decide(
        self,
        kernel: KernelRef,
        problem: Problem,
        layout: str,
        strides: Mapping[str, int] | None,
    ) -> Choice:
        verdicts = self.verdicts(kernel, problem, strides)
        name = kernel.entry.kernel
        if name in self._overrides:
            record = self._find(kernel, self._overrides[name])
            self._survives(kernel, record, problem, verdicts)
            return Choice(
                kernel=name,
                problem=problem,
                record=record,
                source="override",
                verdicts=tuple(verdicts),
            )
        denied = self._denials(verdicts)
        survivors = [v.record for v in verdicts if v.ok and v.record.full_name not in denied]
        if not survivors:
            raise refuse_all(kernel.entry, problem.text, [_judged(v, denied) for v in verdicts])
        base = Choice(
            kernel=name,
            problem=problem,
            record=survivors[0],
            source="only",
            verdicts=tuple(verdicts),
            failures=denied,
        )
        if len(survivors) == 1:
            return base
        if self.options.tuning == "off" or 0 in problem.sizes[:-1]:
            return replace(base, source="default")
        return self._recall_or_time(kernel, base, survivors, layout)

    def _survives(
        self, kernel: KernelRef, record: Record, problem: Problem, verdicts: list[Verdict]
    ) -> None:
        """Let the worker run a forced candidate that the rules pruned: it may trap.

        Raises:
            DeviceError: it failed there, with the rule that had pruned it.
        """
        verdict = next(v for v in verdicts if v.record.full_name == record.full_name)
        if verdict.refusal is None or 0 in problem.sizes:
            return
        measured = self._measurer.trial(kernel.pack, kernel.entry, [record], problem, 0.0)
        if record.full_name in measured.failures:
            raise DeviceError(
                f"forced member {record.name} failed: {measured.failures[record.full_name]}; "
                f"it was pruned: {verdict.refusal.message}"
            )

    def _denials(self, verdicts: list[Verdict]) -> dict[str, str]:
        """Feasible candidates whose code has failed in this process, with the reason."""
        return {
            v.record.full_name: self._denied[v.record.identity.code_hash or ""]
            for v in verdicts
            if v.ok and (v.record.identity.code_hash or "") in self._denied
        }

    def _recall_or_time(
        self, kernel: KernelRef, base: Choice, survivors: list[Record], layout: str
    ) -> Choice:
        key = choice_key(family_id(kernel.entry), base.kernel, base.problem, layout)
        place = location(self.facts, key)
        build = build_id(self.facts, [r.identity.code_hash or "" for r in survivors])
        found = self._store.recall(place, build)
        value = found.value
        known = next((r for r in survivors if value and _is_stored(r, value)), None)
        if value is not None and known is not None:
            return replace(
                base,
                record=known,
                source="store",
                margin_permille=value.margin_permille,
                tie=value.tie,
                timer=value.timer,
            )
        if self.options.tuning != "first_use":
            return replace(base, source="default", settled=False, note=found.reason)
        choice, samples = self._time(kernel, base, survivors)
        if choice.settled and samples:
            warning = self._store.remember(place, build, _stored(choice, samples))
            choice = replace(choice, note=warning) if warning else choice
        return choice

    def _time(
        self, kernel: KernelRef, base: Choice, survivors: list[Record]
    ) -> tuple[Choice, dict[str, tuple[float, ...]]]:
        busy = self._foreign_percent()
        measured = self._measurer.trial(
            kernel.pack,
            kernel.entry,
            survivors,
            base.problem,
            self.options.budget_ms,
            self.options.observe,
            splits_of(base.verdicts),
        )
        for record in survivors:
            if record.full_name in measured.failures:
                reason = measured.failures[record.full_name]
                self._denied[record.identity.code_hash or ""] = reason
        alive = [r for r in survivors if r.full_name not in measured.failures]
        if not alive:
            reasons = "; ".join(f"{n}: {r}" for n, r in measured.failures.items())
            raise DeviceError(
                f"kernel '{base.kernel}' at {base.problem.text}: every candidate failed: {reasons}"
            )
        decision = decide(measured.samples, [r.full_name for r in survivors])
        winner = next((r for r in alive if decision and r.full_name == decision.winner), alive[0])
        note = None
        if not measured.complete:
            note = f"budget of {self.options.budget_ms:g} ms ran out: used, not stored"
        elif busy is not None and busy >= LIMIT_PERCENT:
            note = f"other processes held {busy} % of the device: used, not stored"
        choice = replace(
            base,
            record=winner,
            source="timed" if decision else "default",
            margin_permille=decision.margin_permille if decision else None,
            tie=decision.tie if decision else None,
            settled=note is None and decision is not None,
            note=note,
            medians={n: upper_median(s) for n, s in measured.samples.items()},
            failures={**base.failures, **measured.failures},
            timer=measured.timer,
        )
        return choice, measured.samples


def _key(
    kernel: KernelRef, problem: Problem, layout: str, strides: Mapping[str, int] | None
) -> tuple[str, str, str]:
    """What a choice of this process holds for: all that a verdict may depend on."""
    if strides is None:
        strides = dense_strides(kernel.entry, problem)
    exact = " ".join(f"{name}={stride}" for name, stride in sorted(strides.items()))
    return kernel.entry.kernel, problem.text, f"{layout} {exact}"


def _judged(verdict: Verdict, denied: Mapping[str, str]) -> Verdict:
    """The verdict, with a failure as its refusal."""
    reason = denied.get(verdict.record.full_name)
    if reason is None:
        return verdict
    refusal = Refusal(rule="failed", need=None, limit=None, message=f"failed, {reason}")
    return replace(verdict, refusal=refusal)


def _is_stored(record: Record, value: StoredChoice) -> bool:
    identity = record.identity
    found = (identity.member, identity.body, identity.code_hash or "")
    return found == (value.member, value.body, value.code_hash)


def _stored(choice: Choice, samples: dict[str, tuple[float, ...]]) -> StoredChoice:
    identity = choice.record.identity
    return StoredChoice(
        kernel=choice.kernel,
        member=identity.member,
        body=identity.body,
        code_hash=identity.code_hash or "",
        margin_permille=choice.margin_permille or 0,
        tie=bool(choice.tie),
        samples=samples,
        clocks=None,
        timer=choice.timer,
    )
