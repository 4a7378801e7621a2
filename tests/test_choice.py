"""Deciding between timed candidates: rounds, medians, ties, and what must never change a winner."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.errors import UsageError
from runtime.choice import (
    ROUNDS,
    Candidate,
    Decision,
    Rounds,
    decide,
    run_rounds,
    try_candidates,
    upper_median,
)

never_late: Callable[[], bool] = lambda: False  # noqa: E731


def steady(**medians: float) -> dict[str, list[float]]:
    """Five equal samples for each."""
    return {name: [value] * ROUNDS for name, value in medians.items()}


@pytest.mark.parametrize(
    ("samples", "median"),
    [([5.0], 5), ([1, 2], 2), ([3, 1, 2], 2), ([4, 1, 3, 2], 3), ([9, 1, 9, 1, 5], 5)],
)
def test_the_upper_median(samples: Sequence[float], median: float) -> None:
    assert upper_median(samples) == median


@pytest.mark.parametrize(
    ("medians", "decision"),
    [
        ({"a": 10}, Decision(winner="a", margin_permille=0, tie=False)),
        ({"a": 10, "b": 20}, Decision(winner="a", margin_permille=500, tie=False)),
        ({"a": 20, "b": 10}, Decision(winner="b", margin_permille=500, tie=False)),
        ({"a": 10, "b": 10}, Decision(winner="a", margin_permille=0, tie=True)),
        # the first of the tied wins although the second is faster, and has no lead
        ({"a": 10, "b": 9.8}, Decision(winner="a", margin_permille=0, tie=True)),
        # 30 per mille is no tie any more, 29 is one
        ({"a": 1000, "b": 970}, Decision(winner="b", margin_permille=30, tie=False)),
        ({"a": 1000, "b": 971}, Decision(winner="a", margin_permille=0, tie=True)),
        ({"a": 970, "b": 1000}, Decision(winner="a", margin_permille=30, tie=False)),
        # ties are measured from the best, not from neighbour to neighbour
        ({"a": 1050, "b": 1025, "c": 1000}, Decision(winner="b", margin_permille=0, tie=True)),
        ({"a": 10, "b": 30, "c": 20}, Decision(winner="a", margin_permille=500, tie=False)),
        ({"a": 0, "b": 10}, Decision(winner="a", margin_permille=1000, tie=False)),
        ({"a": 0, "b": 0}, Decision(winner="a", margin_permille=0, tie=True)),
    ],
)
def test_decisions(medians: dict[str, float], decision: Decision) -> None:
    assert decide(steady(**medians), sorted(medians)) == decision


def test_only_candidates_with_samples_count() -> None:
    assert decide({}, ["a"]) is None
    assert decide({"a": []}, ["a", "b"]) is None
    found = decide({"a": [], "b": [3.0], "z": [1.0]}, ["a", "b"])
    assert found == Decision(winner="b", margin_permille=0, tie=False)


def test_one_interruption_changes_nothing() -> None:
    samples = {"a": [10, 10, 90, 10, 10], "b": [20, 20, 20, 20, 20.0]}
    assert decide(samples, ["b", "a"]) == Decision(winner="a", margin_permille=500, tie=False)


def test_near_ties_never_flip() -> None:
    """A thousand choices between two equals with 3 % noise a launch, averaged over twenty."""
    chance = random.Random(1)

    def bracket() -> float:
        return sum(100 * (1 + chance.uniform(-0.03, 0.03)) for _ in range(20)) / 20

    for _ in range(1000):
        trial = run_rounds(["a", "b"], lambda name: bracket(), never_late)
        decision = decide(trial.samples, ["a", "b"])
        assert decision is not None
        assert (decision.winner, decision.tie) == ("a", True)


@pytest.mark.parametrize("order", list(itertools.permutations(["a", "b", "c"])))
@pytest.mark.parametrize("ramp", [0.2, -0.2])
def test_a_drifting_clock_changes_no_winner(order: Sequence[str], ramp: float) -> None:
    """Every candidate has its turn early and late, so a clock that ramps by 20 % hits all alike."""
    cost, asked = {"a": 100.0, "b": 108.0, "c": 120.0}, itertools.count()

    def probe(name: str) -> float:
        return cost[name] * (1 + ramp * next(asked) / (ROUNDS * len(cost)))

    trial = run_rounds(order, probe, never_late)
    decision = decide(trial.samples, order)
    assert decision is not None
    assert (decision.winner, decision.tie) == ("a", False)


medians = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.floats(0.1, 1e6), min_size=1, max_size=8
)


@given(medians, st.randoms())
def test_the_winner_does_not_depend_on_the_order_of_the_samples(
    costs: Mapping[str, float], chance: random.Random
) -> None:
    order, shuffled = sorted(costs), list(costs)
    chance.shuffle(shuffled)
    expected = decide(steady(**costs), order)
    assert decide({name: [costs[name]] * ROUNDS for name in shuffled}, order) == expected


@given(medians)
def test_the_winner_is_the_first_within_the_band(costs: Mapping[str, float]) -> None:
    order = sorted(costs)
    decision = decide(steady(**costs), order)
    assert decision is not None
    best = min(costs.values())
    tied = [n for n in order if costs[n] == best or (costs[n] - best) * 1000 // costs[n] < 30]
    assert (decision.winner, decision.tie) == (tied[0], len(tied) > 1)
    assert 0 <= decision.margin_permille <= 1000


def asked_in(names: Sequence[str], probe: Callable[[str], float | str]) -> list[str]:
    """The names in the order in which the rounds ask for them."""
    asked: list[str] = []

    def noting(name: str) -> float | str:
        asked.append(name)
        return probe(name)

    run_rounds(names, noting, never_late)
    return asked


def test_each_round_starts_one_candidate_later() -> None:
    assert "".join(asked_in("abc", lambda name: 1.0)) == "abcbcacababcbca"
    assert asked_in(["a"], lambda name: 1.0) == ["a"] * ROUNDS
    assert asked_in([], lambda name: 1.0) == []


def test_a_failed_candidate_is_not_asked_again() -> None:
    trial = run_rounds("abc", lambda name: "it hung" if name == "b" else 1.0, never_late)
    assert trial.failures == {"b": "it hung"}
    assert trial.samples == {"a": (1.0,) * ROUNDS, "c": (1.0,) * ROUNDS}
    assert trial.complete
    assert asked_in("abc", lambda name: "it hung" if name == "b" else 1.0).count("b") == 1


def test_a_candidate_that_fails_later_has_no_samples() -> None:
    left = iter([1.0, 1.0, "it trapped"])
    trial = run_rounds("ab", lambda name: next(left) if name == "b" else 1.0, never_late)
    assert trial.samples == {"a": (1.0,) * ROUNDS}
    assert trial.failures == {"b": "it trapped"}
    trial = run_rounds("ab", lambda name: "no", never_late)
    assert (trial.samples, trial.complete) == ({}, True)


def test_hopeless_candidates_are_dropped_with_the_samples_they_have() -> None:
    cost = {"a": 1.0, "b": 1.9, "c": 3.0, "d": 11.0}
    trial = run_rounds("abcd", cost.__getitem__, never_late)
    assert {name: len(samples) for name, samples in trial.samples.items()} == {
        "a": ROUNDS,
        "b": ROUNDS,
        "c": 2,
        "d": 1,
    }
    assert trial.complete


def test_an_interruption_makes_nobody_hopeless() -> None:
    """The first sample of the better one is thrice what it should be."""
    readings = iter([3.0, *[1.0] * ROUNDS])
    trial = run_rounds("ab", lambda name: next(readings) if name == "a" else 1.2, never_late)
    assert len(trial.samples["a"]) == ROUNDS
    decision = decide(trial.samples, "ba")
    assert decision is not None
    assert decision.winner == "a"


@pytest.mark.parametrize("limit", range(12))
def test_out_of_time(limit: int) -> None:
    """The rounds stop at once, but never without any sample."""
    asked: list[str] = []

    def probe(name: str) -> float:
        asked.append(name)
        return 1.0

    trial = run_rounds("ab", probe, lambda: len(asked) >= limit)
    assert len(asked) == min(max(limit, 1), 2 * ROUNDS)
    assert trial.complete == (limit >= 2 * ROUNDS)
    assert sum(len(s) for s in trial.samples.values()) == len(asked)


def test_samples_from_outside_may_overlap() -> None:
    """One out of turn counts where the candidate is still due in the round, once."""
    rounds = Rounds(["a", "b"], rounds=2)
    assert rounds.turn == "a"
    assert rounds.feed("b", 2.0)
    assert not rounds.feed("b", 2.1)
    assert rounds.turn == "a"
    assert rounds.feed("a", 1.0)
    assert (rounds.turn, rounds.complete) == ("b", False)
    rounds.fail("b", "it is wrong")
    assert rounds.feed("a", 1.1)
    assert (rounds.turn, rounds.complete) == (None, True)
    assert not rounds.feed("a", 9.9)
    trial = rounds.result()
    assert (trial.samples, trial.failures) == ({"a": (1.0, 1.1)}, {"b": "it is wrong"})


@pytest.mark.parametrize("microseconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_sample_from_outside_must_be_a_time(microseconds: float) -> None:
    rounds = Rounds(["a"])
    with pytest.raises(UsageError, match="us is no time"):
        rounds.feed("a", microseconds)
    for call in (lambda: rounds.feed("c", 1.0), lambda: rounds.fail("c", "")):
        with pytest.raises(UsageError, match="'c' is not a candidate of this trial, which has: a"):
            call()
    assert rounds.turn == "a"


def named(name: str, log: list[str], wrong: str | None = None) -> Candidate:
    """A candidate that notes what is asked of it."""

    def check() -> str | None:
        log.append(f"check {name}")
        return wrong

    def probe() -> float:
        log.append(f"time {name}")
        return 1.0

    return Candidate(name=name, check=check, probe=probe)


def test_candidates_are_checked_before_any_is_timed() -> None:
    log: list[str] = []
    trial = try_candidates([named("a", log), named("b", log, "wrong"), named("c", log)], never_late)
    assert log[:3] == ["check a", "check b", "check c"]
    assert set(log[3:]) == {"time a", "time c"}
    assert trial.failures == {"b": "wrong"}
    assert (list(trial.samples), trial.complete) == (["a", "c"], True)


def test_an_early_end_still_knows_the_default() -> None:
    log: list[str] = []
    late = iter([True] * 9)
    trial = try_candidates([named(n, log) for n in "abc"], lambda: next(late))
    assert log == ["check a", "time a"]
    assert (trial.samples, trial.complete) == ({"a": (1.0,)}, False)
