"""From a problem to a member: override, sole survivor, store, trial (design section 7)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dialects.errors import DeviceError, PackError
from dialects.facts import DeviceFacts
from dialects.manifest import Record
from dialects.member import Problem
from dialects.rules import Verdict, dense_strides, refuse_all

from .choice import Candidate, Rounds, Trial, try_candidates
from .family import Choice, Family, KernelRef, family_question, judged, splits_of
from .filter import candidates, filter_candidates
from .in_place import InPlaceTrial
from .measure import Measurer, TrialOptions
from .measure_plan import cold_sets, floors
from .shape_choice import Answer, Question, ShapeChoice, Surroundings, Tuning
from .store import Store
from .timer import CachePolicy, TimerTier

UNBOUNDED_MS = 1e9


@dataclass(frozen=True, kw_only=True)
class PlannerOptions:
    """How a planner may choose; ``cache`` is the state of the caches that it times with."""

    tuning: Tuning = "store"
    budget_ms: float = 1000.0
    cache: CachePolicy = "hot"
    observe: Callable[[str, str], None] = lambda step, name: None
    on_choice: Callable[[Choice], None] = lambda choice: None


class Planner:
    """Remembers choices of this process; one trial at a time."""

    def __init__(
        self,
        facts: DeviceFacts,
        store: Store,
        measurer: Measurer,
        surroundings: Surroundings,
        options: PlannerOptions,
    ) -> None:
        self.facts, self.options = facts, options
        self.shapes = ShapeChoice(store, surroundings, budget_ms=options.budget_ms)
        self._measurer = measurer
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
                self._overrides[kernel.entry.kernel] = self.find(kernel, name).full_name
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

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the block problems without a choice get the untimed default, for that call."""
        with self.shapes.hold():
            yield

    def choose(
        self,
        kernel: KernelRef,
        problem: Problem,
        layout: str,
        strides: Mapping[str, int] | None = None,
        *,
        again: bool = False,
    ) -> Choice:
        """The record for a problem, measured when the options allow it and nothing is known.

        ``again`` reconsiders a choice that is not settled.

        Raises:
            LaunchRefused: no candidate can run, naming each with its rule and amounts.
        """
        key = _key(kernel, problem, layout, strides)
        with self._lock:
            known = self._choices.get(key)
            if known is not None and (known.settled or not again):
                return known
            found = self._consider(kernel, problem, layout, strides)
            choice = found if isinstance(found, Choice) else self._answer(found)
            self._remember(key, choice)
        self.options.on_choice(choice)
        return choice

    def open_trial(
        self,
        kernel: KernelRef,
        problem: Problem,
        layout: str,
        *,
        timer: TimerTier,
        strides: Mapping[str, int] | None = None,
    ) -> InPlaceTrial:
        """A trial that the caller feeds; what is decided already leaves it nothing to do.

        The candidates are proven here, before the first is timed.

        Raises:
            LaunchRefused: no candidate can run, naming each with its rule and amounts.
            DeviceError: no candidate is right.
        """
        with self._lock:
            found = self._consider(kernel, problem, layout, strides)
            if isinstance(found, Family):
                known = self.shapes.held or self.shapes.recall(found.question)[0]
                if not known and self.options.tuning == "first_use":
                    return self._opened(found, timer, _key(kernel, problem, layout, strides))
        choice = self.choose(kernel, problem, layout, strides)
        return InPlaceTrial(Rounds([]), timer, lambda trial: choice)

    def _opened(self, family: Family, timer: TimerTier, key: tuple[str, str, str]) -> InPlaceTrial:
        proven = self._measure(family, only_prove=True)
        right = [r.full_name for r in family.survivors if r.full_name not in proven.failures]
        busy = self.shapes.foreign_percent()

        def conclude(trial: Trial) -> Choice:
            failures = {**proven.failures, **trial.failures}
            answer = self.shapes.conclude(
                family.question,
                replace(trial, failures=failures),
                busy,
                early="the trial was ended early",
            )
            choice = self._from_answer(family, answer)
            with self._lock:
                self._remember(key, choice)
            self.options.on_choice(choice)
            return choice

        return InPlaceTrial(Rounds(right), timer, conclude)

    def _remember(self, key: tuple[str, str, str], choice: Choice) -> None:
        if choice.lasting:
            self._choices[key] = choice

    def find(self, kernel: KernelRef, name: str) -> Record:
        """The candidate called ``member``, ``member/body`` or ``member/body@target``.

        Raises:
            PackError: no candidate of this device has that name.
        """
        records = candidates(kernel.entry, self.facts.backend)
        for record in records:
            names = (record.full_name, record.name, record.identity.member)
            if name in names and record.files is not None:
                return record
        names = ", ".join(r.name for r in records if r.files is not None)
        raise PackError(f"kernel '{kernel.entry.kernel}' has no candidate '{name}', has: {names}")

    def _consider(
        self,
        kernel: KernelRef,
        problem: Problem,
        layout: str,
        strides: Mapping[str, int] | None,
    ) -> Choice | Family:
        """What needs no store and no clock, or the survivors to choose among."""
        verdicts = self.verdicts(kernel, problem, strides)
        name = kernel.entry.kernel
        if name in self._overrides:
            return self._forced(kernel, self.find(kernel, self._overrides[name]), problem, verdicts)
        denied = self._denials(verdicts)
        survivors = [v.record for v in verdicts if v.ok and v.record.full_name not in denied]
        if not survivors:
            raise refuse_all(kernel.entry, problem.text, [judged(v, denied) for v in verdicts])
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
        if 0 in problem.sizes[:-1]:
            return replace(base, source="default")
        return Family(
            kernel=kernel,
            base=base,
            survivors=tuple(survivors),
            question=family_question(
                self.facts,
                kernel,
                problem,
                feasible=[v.record for v in verdicts if v.ok],
                survivors=survivors,
                layout=layout,
                cache=self.options.cache,
            ),
        )

    def forced(
        self,
        kernel: KernelRef,
        record: Record,
        problem: Problem,
        strides: Mapping[str, int] | None = None,
    ) -> Choice:
        """A candidate as it is asked for, pruned or not.

        Raises:
            DeviceError: it was pruned, and failed when the measuring process tried it.
        """
        return self._forced(kernel, record, problem, self.verdicts(kernel, problem, strides))

    def _forced(
        self, kernel: KernelRef, record: Record, problem: Problem, verdicts: list[Verdict]
    ) -> Choice:
        self._survives(kernel, record, problem, verdicts)
        return Choice(
            kernel=kernel.entry.kernel,
            problem=problem,
            record=record,
            source="override",
            verdicts=tuple(verdicts),
        )

    def choose_among(self, question: Question, candidates: Sequence[Candidate]) -> Answer:
        """Choose among an application's own candidates; only one is taken untimed.

        Raises:
            DeviceError: every candidate failed, with each reason.
        """
        if len(candidates) == 1:
            return Answer(name=candidates[0].name, source="only")

        def measure() -> Trial:
            end = time.perf_counter() + self.options.budget_ms / 1000
            return try_candidates(candidates, lambda: time.perf_counter() > end)

        return self.shapes.answer(question, self.options.tuning, measure)

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
        options = TrialOptions(budget_ms=UNBOUNDED_MS, rounds=0)
        measured = self._measurer.trial(kernel.pack, kernel.entry, [record], problem, options)
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

    def _answer(self, family: Family) -> Choice:
        answer = self.shapes.answer(
            family.question, self.options.tuning, lambda: self._measure(family)
        )
        return self._from_answer(family, answer)

    def _measure(self, family: Family, *, only_prove: bool = False) -> Trial:
        """Prove and time the survivors; one that failed is not tried again in this process."""
        base, records = family.base, family.survivors
        entry = family.kernel.entry
        sets = cold_sets(self.facts, entry, base.problem) if self.options.cache == "cold" else 1
        options = TrialOptions(
            budget_ms=self.options.budget_ms,
            least_us=floors(self.facts, entry, records, base.problem, sets),
            sets=sets,
        )
        if only_prove:
            options = TrialOptions(budget_ms=UNBOUNDED_MS, rounds=0)
        measured = self._measurer.trial(
            family.kernel.pack,
            entry,
            records,
            base.problem,
            options,
            self.options.observe,
            splits_of(base.verdicts),
        )
        for record in records:
            if record.full_name in measured.failures:
                reason = measured.failures[record.full_name]
                self._denied[record.identity.code_hash or ""] = reason
        return measured

    def _from_answer(self, family: Family, answer: Answer) -> Choice:
        base = family.base
        ceiling_known = None
        if answer.medians:
            known = floors(self.facts, family.kernel.entry, family.survivors, base.problem, 1)
            ceiling_known = set(answer.medians) <= set(known)
        return replace(
            base,
            record=next(r for r in family.survivors if r.full_name == answer.name),
            source=answer.source,
            margin_permille=answer.margin_permille,
            tie=answer.tie,
            settled=answer.settled,
            note=answer.note,
            medians=answer.medians,
            failures={**base.failures, **answer.failures},
            timer=answer.timer,
            ceiling_known=ceiling_known,
        )


def _key(
    kernel: KernelRef, problem: Problem, layout: str, strides: Mapping[str, int] | None
) -> tuple[str, str, str]:
    """What a choice of this process holds for: all that a verdict may depend on."""
    if strides is None:
        strides = dense_strides(kernel.entry, problem)
    exact = " ".join(f"{name}={stride}" for name, stride in sorted(strides.items()))
    return kernel.entry.kernel, problem.text, f"{layout} {exact}"
