"""Deciding between named candidates by measured time; pure, so that a replay decides the same.

Five rounds, round r starting at candidate r; upper medians; every candidate within 3 % of the best
ties, and the first of the tied in family order wins, so that near-ties never flip (seed section 3;
design section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROUNDS = 5
TIE_PERMILLE = 30
HOPELESS = 2.0  # a candidate this many times slower than the leader is not timed again


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The winner, its lead per mille of the second's median, and whether it tied."""

    winner: str
    margin_permille: int
    tie: bool


def upper_median(samples: Sequence[float]) -> float:
    """The middle sample, the later of the two middle ones for an even count."""
    return sorted(samples)[len(samples) // 2]


def decide(
    samples: Mapping[str, Sequence[float]], order: Sequence[str], *, band: int = TIE_PERMILLE
) -> Decision | None:
    """Choose among the candidates that have samples; None when none has.

    ``order`` is the family order, which breaks ties.
    """
    medians = {name: upper_median(samples[name]) for name in order if samples.get(name)}
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
    return Decision(winner=winner, margin_permille=max(margin, 0), tie=len(tied) > 1)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the rounds gave: samples in microseconds by name, failures by name, and how it ended.

    ``timer`` is the tier of the timer that took the samples.
    """

    samples: dict[str, tuple[float, ...]]
    failures: dict[str, str]
    complete: bool
    timer: str = "host"


def run_rounds(
    names: Sequence[str],
    probe: Callable[[str], float | str],
    out_of_time: Callable[[], bool],
    *,
    rounds: int = ROUNDS,
) -> Trial:
    """Time every candidate ``rounds`` times in rotating order.

    ``probe`` gives microseconds, or the reason why the candidate failed; a failed one is not asked
    again. A candidate whose fastest sample is :data:`HOPELESS` times the leader's is dropped with
    the samples it has. The rounds end early when ``out_of_time`` says so.
    """
    samples: dict[str, list[float]] = {name: [] for name in names}
    failures: dict[str, str] = {}
    active = list(names)
    for turn in range(rounds):
        shift = turn % len(active) if active else 0
        for name in active[shift:] + active[:shift]:
            if out_of_time() and any(samples.values()):
                return _trial(samples, failures, complete=False)
            outcome = probe(name)
            if isinstance(outcome, str):
                failures[name] = outcome
            else:
                samples[name].append(outcome)
        active = [n for n in active if n not in failures]
        fastest = {n: min(samples[n]) for n in active}
        # A single sample may be an interruption: after it only the far slower ones go.
        factor = HOPELESS if turn else HOPELESS**2
        active = [n for n in active if fastest[n] <= factor * min(fastest.values())]
    return _trial(samples, failures, complete=True)


def _trial(
    samples: Mapping[str, Sequence[float]], failures: Mapping[str, str], *, complete: bool
) -> Trial:
    kept = {n: tuple(s) for n, s in samples.items() if s and n not in failures}
    return Trial(samples=kept, failures=dict(failures), complete=complete)
