"""Deciding between named candidates by measured time; pure, so that a replay decides the same.

Five rounds, round r starting at candidate r; upper medians; every candidate within 3 % of the best
ties, and the first of the tied in family order wins, so that near-ties never flip (seed section 3;
design section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dialects.errors import UsageError

from .drift import without_drift

ROUNDS = 5
TIE_PERMILLE = 30
HOPELESS = 2.0  # a candidate this many times slower than the leader is not timed again
HOPELESS_AT_ONCE = 10.0  # after one sample, which may be a slow start or an interruption


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The winner, its lead per mille of the second's median, and whether it tied.

    ``medians`` are what decided, in microseconds, the device's drift taken out.
    """

    winner: str
    margin_permille: int
    tie: bool
    medians: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One way to do the same thing.

    ``check`` gives the reason why it is wrong, or None; ``probe`` the microseconds of one bracket,
    or the reason why it failed. ``code_hash`` states its build, where it has one.
    """

    name: str
    code_hash: str = ""
    check: Callable[[], str | None]
    probe: Callable[[], float | str]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the rounds gave: samples in microseconds by name, failures by name, and how it ended.

    ``taken`` names the candidate of each bracket in the order in which they were taken. ``timer``
    is the tier of the clock.
    """

    samples: dict[str, tuple[float, ...]]
    failures: dict[str, str]
    complete: bool
    taken: tuple[str, ...] = ()
    timer: str = "host"


def upper_median(samples: Sequence[float]) -> float:
    """The middle sample, the later of the two middle ones for an even count."""
    return sorted(samples)[len(samples) // 2]


def decide(
    samples: Mapping[str, Sequence[float]],
    order: Sequence[str],
    *,
    taken: Sequence[str] = (),
    band: int = TIE_PERMILLE,
) -> Decision | None:
    """Choose among the candidates that have samples; None when none has.

    ``order`` is the family order, which breaks ties; ``taken`` as in :class:`Trial`. The same
    samples decide the same, now and when a stored trial is read again under another ``band``.
    """
    steady = without_drift({n: samples[n] for n in order if samples.get(n)}, taken)
    medians = {name: upper_median(times) for name, times in steady.items()}
    if not medians:
        return None
    best = min(medians.values())
    tied = [n for n, m in medians.items() if m == best or (m - best) * 1000 // m < band]
    winner = tied[0]
    others = sorted(m for n, m in medians.items() if n != winner)
    margin = 0
    if others:
        second = max(others[0], medians[winner])
        margin = int((second - medians[winner]) * 1000 // second) if second else 0
    return Decision(
        winner=winner, margin_permille=max(margin, 0), tie=len(tied) > 1, medians=medians
    )


class Rounds:
    """A trial in progress, fed sample by sample, by a loop of ours or from outside.

    Each candidate is due once a round, in rotating order. One that failed is not due again. After
    a round, one whose fastest sample is :data:`HOPELESS` times the leader's median is dropped with
    the samples it has.
    """

    def __init__(self, names: Sequence[str], *, rounds: int = ROUNDS) -> None:
        self._rounds = rounds
        self._samples: dict[str, list[float]] = {name: [] for name in names}
        self._failures: dict[str, str] = {}
        self._taken: list[str] = []
        self._active = list(names)
        self._due: list[str] = []
        self._turn = 0
        self._advance()

    @property
    def turn(self) -> str | None:
        """The candidate to measure next; None when the trial is over."""
        return self._due[0] if self._due else None

    @property
    def complete(self) -> bool:
        """Whether every candidate has its rounds."""
        return not self._due

    @property
    def sampled(self) -> bool:
        """Whether a candidate that has not failed has a sample."""
        return any(s and n not in self._failures for n, s in self._samples.items())

    def feed(self, name: str, microseconds: float) -> bool:
        """One bracket of a candidate; whether it counts.

        It does where the candidate is still due in this round, whoever's turn it is: calls from
        outside may overlap.

        Raises:
            UsageError: a name that is not in the trial, or a time that is none.
        """
        self._check(name)
        if not 0 < microseconds < float("inf"):
            raise UsageError(f"candidate '{name}': {microseconds!r} us is no time")
        if name not in self._due:
            return False
        self._samples[name].append(microseconds)
        self._taken.append(name)
        self._done(name)
        return True

    def fail(self, name: str, reason: str) -> None:
        """A candidate that is wrong or failed: it loses its samples and is not due again.

        Raises:
            UsageError: a name that is not in the trial.
        """
        self._check(name)
        self._failures.setdefault(name, reason)
        self._active = [n for n in self._active if n != name]
        self._done(name)

    def result(self) -> Trial:
        """What was found so far."""
        kept = {n: tuple(s) for n, s in self._samples.items() if s and n not in self._failures}
        return Trial(
            samples=kept,
            failures=dict(self._failures),
            complete=self.complete,
            taken=tuple(self._taken),
        )

    def _check(self, name: str) -> None:
        if name not in self._samples:
            names = ", ".join(self._samples)
            raise UsageError(f"'{name}' is not a candidate of this trial, which has: {names}")

    def _done(self, name: str) -> None:
        if name in self._due:
            self._due.remove(name)
            if not self._due:
                self._drop_hopeless()
                self._advance()

    def _advance(self) -> None:
        if self._turn < self._rounds and self._active:
            shift = self._turn % len(self._active)
            self._due = self._active[shift:] + self._active[:shift]
        self._turn += 1

    def _drop_hopeless(self) -> None:
        if not self._active:
            return
        # The median of the leader: a single reading that is too low drops nobody.
        leader = min(upper_median(self._samples[n]) for n in self._active)
        factor = HOPELESS if self._turn > 1 else HOPELESS_AT_ONCE
        self._active = [n for n in self._active if min(self._samples[n]) <= factor * leader]


def run_rounds(
    names: Sequence[str],
    probe: Callable[[str], float | str],
    out_of_time: Callable[[], bool],
    *,
    rounds: int = ROUNDS,
) -> Trial:
    """Time every candidate ``rounds`` times in rotating order.

    ``probe`` gives microseconds, or the reason why the candidate failed. The rounds end early when
    ``out_of_time`` says so, but never without any sample.
    """
    trial = Rounds(names, rounds=rounds)
    sampled = False
    while (name := trial.turn) is not None:
        if sampled and out_of_time():
            break
        outcome = probe(name)
        if isinstance(outcome, str):
            trial.fail(name, outcome)
        else:
            trial.feed(name, outcome)
        sampled = trial.sampled
    return trial.result()


def try_candidates(
    candidates: Sequence[Candidate],
    out_of_time: Callable[[], bool],
    *,
    rounds: int = ROUNDS,
) -> Trial:
    """Check every candidate, then time those that are right; the first is checked and timed first.

    Within the time there is, so that an early end still knows the default.
    """
    by_name = {c.name: c for c in candidates}
    failures: dict[str, str] = {}
    right: list[str] = []
    checked = True
    for candidate in candidates:
        if right and out_of_time():
            checked = False
            break
        reason = candidate.check()
        if reason is None:
            right.append(candidate.name)
        else:
            failures[candidate.name] = reason
    trial = run_rounds(right, lambda name: by_name[name].probe(), out_of_time, rounds=rounds)
    return Trial(
        samples=trial.samples,
        failures={**failures, **trial.failures},
        complete=trial.complete and checked,
        taken=trial.taken,
    )
