"""ShapeChoice: which of several named candidates serves one place of the store.

Store, then time (design section 7); what is chosen among is the caller's: a family of members is
one client, see :mod:`.planner`. The first candidate in order is the untimed default. It is always
timed with the others and first, so that tuning never makes a call slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

from dialects.errors import DeviceError, UsageError
from dialects.facts import DeviceFacts

from .choice import Candidate, Trial, decide
from .keys import Location, build_id, location
from .load import LIMIT_PERCENT
from .store import Store, StoredChoice

Tuning = Literal["off", "store", "first_use"]
TUNINGS: tuple[Tuning, ...] = ("off", "store", "first_use")
Source = Literal["override", "only", "store", "timed", "default"]
HELD = "the trial is held: the untimed default"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One candidate as the store knows it; ``name`` is unique within a question."""

    name: str
    member: str
    body: str = ""
    code_hash: str = ""

    def is_stored(self, value: StoredChoice) -> bool:
        """Whether a stored value names this candidate."""
        return (self.member, self.body, self.code_hash) == (
            value.member,
            value.body,
            value.code_hash,
        )


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is chosen, where the answer is kept and which build may believe it.

    ``options`` stand in family order; ``what`` is the text that messages call it by.
    """

    kernel: str
    what: str
    place: Location
    build: str
    options: tuple[Option, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The candidates by name."""
        return tuple(o.name for o in self.options)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The candidate that serves, and why. The fields are those of :class:`.planner.Choice`."""

    name: str
    source: Source
    margin_permille: int | None = None
    tie: bool | None = None
    settled: bool = True
    note: str | None = None
    medians: Mapping[str, float] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    timer: str = "host"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What else happens on the device.

    ``foreign_percent`` is what other processes hold of it; ``lock`` keeps other processes from
    measuring meanwhile; ``clocks`` are its clocks in kHz by name, as far as they can be read.
    """

    foreign_percent: Callable[[], int | None] = lambda: None
    lock: Callable[[Location], AbstractContextManager[object]] = lambda place: nullcontext()
    clocks: Callable[[], dict[str, int] | None] = lambda: None


class ShapeChoice:
    """Answers questions from the store, or by measuring; any number of threads may ask."""

    def __init__(self, store: Store, surroundings: Surroundings, *, budget_ms: float) -> None:
        self.store, self.budget_ms = store, budget_ms
        self._around = surroundings
        self._holds = 0
        self._lock = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether nothing is recalled or timed at present."""
        return self._holds > 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the block every question gets its untimed default; holds may nest."""
        with self._lock:
            self._holds += 1
        try:
            yield
        finally:
            with self._lock:
                self._holds -= 1

    def answer(self, question: Question, tuning: Tuning, measure: Callable[[], Trial]) -> Answer:
        """The stored answer, or a measured one where ``tuning`` allows it, or the default.

        ``measure`` times every option, in this process's turn on the device.

        Raises:
            DeviceError: every candidate failed, with each reason.
        """
        default = Answer(name=question.options[0].name, source="default")
        if self.held:
            return Answer(name=default.name, source="default", settled=False, note=HELD)
        if tuning == "off":
            return default
        recalled, reason = self.recall(question)
        if recalled is not None:
            return recalled
        if tuning == "store":
            return Answer(name=default.name, source="default", settled=False, note=reason)
        with self._around.lock(question.place):
            recalled, _ = self.recall(question)  # another process may have measured it meanwhile
            if recalled is not None:
                return recalled
            busy = self._around.foreign_percent()
            return self.conclude(question, measure(), busy)

    def recall(self, question: Question) -> tuple[Answer | None, str]:
        """The stored answer, or None and why there is none."""
        found = self.store.recall(question.place, question.build)
        value = found.value
        if value is None:
            return None, found.reason
        option = next((o for o in question.options if o.is_stored(value)), None)
        if option is None:
            return None, f"the stored candidate {value.member}/{value.body} is not one of these"
        answer = Answer(
            name=option.name,
            source="store",
            margin_permille=value.margin_permille,
            tie=value.tie,
            timer=value.timer,
        )
        return answer, found.reason

    def foreign_percent(self) -> int | None:
        """What other processes hold of the device now, or held up to five seconds ago."""
        return self._around.foreign_percent()

    def conclude(
        self, question: Question, trial: Trial, busy: int | None, *, early: str | None = None
    ) -> Answer:
        """Decide a trial, and remember the winner unless something disturbed it.

        ``early`` says why a trial that is not complete ended, when it was not the budget.

        Raises:
            DeviceError: every candidate failed, with each reason.
        """
        alive = [o for o in question.options if o.name not in trial.failures]
        if not alive:
            reasons = "; ".join(f"{n}: {r}" for n, r in trial.failures.items())
            raise DeviceError(f"{question.what}: every candidate failed: {reasons}")
        decision = decide(trial.samples, question.names, taken=trial.taken)
        if decision is None:
            note = "nothing was timed: used, not stored"
            return Answer(
                name=alive[0].name,
                source="default",
                settled=False,
                note=note,
                failures=trial.failures,
                timer=trial.timer,
            )
        note = None
        if not trial.complete:
            early = early or f"budget of {self.budget_ms:g} ms ran out"
            note = f"{early}: used, not stored"
        elif busy is not None and busy >= LIMIT_PERCENT:
            note = f"other processes held {busy} % of the device: used, not stored"
        settled = note is None
        if settled:
            winner = next(o for o in question.options if o.name == decision.winner)
            value = StoredChoice(
                kernel=question.kernel,
                member=winner.member,
                body=winner.body,
                code_hash=winner.code_hash,
                margin_permille=decision.margin_permille,
                tie=decision.tie,
                samples=_in_order(trial, question.names),
                taken=trial.taken,
                clocks=self._around.clocks(),
                timer=trial.timer,
            )
            note = self.store.remember(question.place, question.build, value)
        return Answer(
            name=decision.winner,
            source="timed",
            margin_permille=decision.margin_permille,
            tie=decision.tie,
            settled=settled,
            note=note,
            medians=decision.medians,
            failures=trial.failures,
            timer=trial.timer,
        )


def question_of(
    facts: DeviceFacts, name: str, key: str, candidates: Sequence[Candidate]
) -> Question:
    """The question which of an application's own candidates serves; its build is their code.

    Raises:
        UsageError: no candidate, or two of one name.
    """
    names = [c.name for c in candidates]
    if not names or len(set(names)) != len(names):
        raise UsageError(f"'{name}' needs candidates of different names, found: {names}")
    return Question(
        kernel=name,
        what=f"'{name}' at {key}",
        place=location(facts, f"{name}.{key}"),
        build=build_id(facts, [f"{c.name} {c.code_hash}" for c in candidates]),
        options=tuple(
            Option(name=c.name, member=c.name, code_hash=c.code_hash) for c in candidates
        ),
    )


def _in_order(trial: Trial, names: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    """The samples in family order, which is what breaks ties when they decide again."""
    return {name: trial.samples[name] for name in names if name in trial.samples}


def checked_tuning(tuning: str) -> Tuning:
    """The tuning of that name.

    Raises:
        UsageError: none is called so, with those that are.
    """
    for known in TUNINGS:
        if tuning == known:
            return known
    raise UsageError(f"tuning '{tuning}' is not one of {', '.join(TUNINGS)}")
