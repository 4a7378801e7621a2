"""Whole choices on simulated devices: noisy, drifting, slow to start, interrupted. All seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import exp

import pytest

from runtime.choice import ROUNDS, Decision, Rounds, decide, run_rounds
from runtime.drift import without_drift

Clock = Callable[[float], float]  # slowness of the device at a moment of the trial in [0, 1)
steady: Clock = lambda moment: 1.0  # noqa: E731


class Simulation:
    """Candidates a, b, c, ... of these costs on a device with this clock."""

    def __init__(
        self,
        costs: Sequence[float],
        *,
        seed: int = 1,
        noise: float = 0.03,
        launches: int = 20,
        clock: Clock = steady,
    ) -> None:
        self.cost = dict(zip("abcdefgh", costs, strict=False))
        self.names = list(self.cost)
        self._chance, self._noise, self._launches = random.Random(seed), noise, launches
        self._clock, self._asked = clock, 0
        self.odd: dict[tuple[str, int], float] = {}  # (candidate, its n-th bracket) -> factor
        self._brackets = dict.fromkeys(self.names, 0)

    def probe(self, name: str) -> float:
        """One bracket: the mean of its launches."""
        moment = self._asked / (ROUNDS * len(self.names))
        self._asked += 1
        self._brackets[name] += 1
        jitter = [self._chance.uniform(-self._noise, self._noise) for _ in range(self._launches)]
        odd = self.odd.get((name, self._brackets[name]), 1.0)
        return self.cost[name] * self._clock(moment) * odd * (1 + sum(jitter) / len(jitter))

    def choose(self) -> Decision:
        """One whole choice."""
        self._asked = 0
        self._brackets = dict.fromkeys(self.names, 0)
        trial = run_rounds(self.names, self.probe, lambda: False)
        decision = decide(trial.samples, self.names, taken=trial.taken)
        assert decision is not None
        return decision


def wins(simulation: Simulation, choices: int) -> dict[str, int]:
    """How often each candidate won."""
    found = dict.fromkeys(simulation.names, 0)
    for _ in range(choices):
        found[simulation.choose().winner] += 1
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_equals_never_flip_under_noise_of_each_launch(seed: int) -> None:
    assert wins(Simulation([100, 100], seed=seed), 1000) == {"a": 1000, "b": 0}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_equals_rarely_flip_under_noise_of_each_bracket(seed: int) -> None:
    """Noise that twenty launches do not average out, such as a clock that steps."""
    assert wins(Simulation([100, 100], seed=seed, launches=1), 1000)["a"] >= 960


def ramp(size: float) -> Clock:
    """Linear over the whole trial."""
    return lambda moment: 1 + size * moment


FAMILIES = {
    "two equals": [100, 100],
    "eight, one is 4 % ahead": [100, 110, 104, 100, 100, 104, 96, 100],
    "eight, the first of the tied": [106, 100, 100, 104, 100, 100, 104, 100],
    "three far apart": [100, 90, 80],
}


@pytest.mark.parametrize("costs", FAMILIES.values(), ids=FAMILIES.keys())
@pytest.mark.parametrize("size", [0.2, -0.2])
def test_a_clock_that_ramps_by_a_fifth_changes_no_winner(
    costs: Sequence[float], size: float
) -> None:
    """The medians of a ramp lie in the middle round, in which the last one is 3.5 % off."""
    without = wins(Simulation(costs, noise=0.01), 50)
    assert max(without.values()) == 50
    assert wins(Simulation(costs, noise=0.01, clock=ramp(size)), 50) == without


@pytest.mark.parametrize(
    "clock",
    [lambda moment: 1 + 0.3 * exp(-5 * moment), lambda moment: 1.2 if moment >= 0.6 else 1.0],
    ids=["warms up", "throttles once"],
)
def test_other_drifts_change_no_winner(clock: Clock) -> None:
    costs = FAMILIES["eight, one is 4 % ahead"]
    assert wins(Simulation(costs, noise=0.01, clock=clock), 50)["g"] == 50


@pytest.mark.parametrize("factor", [3.0, 9.0])
@pytest.mark.parametrize("brackets", [(1,), (1, 2)])
def test_a_slow_start_loses_nothing(factor: float, brackets: Sequence[int]) -> None:
    """Pages, caches and code of the better one are touched for the first time in its trial."""
    simulation = Simulation([100, 70, 110])
    simulation.odd = {("b", n): factor if n == 1 else 1.9 for n in brackets}
    assert wins(simulation, 50)["b"] == 50


@pytest.mark.parametrize("factor", [0.1, 0.45, 4.0, 50.0])
@pytest.mark.parametrize("bracket", range(2, ROUNDS + 1))
@pytest.mark.parametrize("victim", "abc")
def test_one_odd_bracket_changes_no_winner(victim: str, bracket: int, factor: float) -> None:
    """Whoever it is, too long or too short: it drops nobody from the trial, and no median moves."""
    simulation = Simulation([100, 70, 110])
    simulation.odd = {(victim, bracket): factor}
    assert wins(simulation, 20)["b"] == 20


def test_drift_is_taken_out_of_the_medians() -> None:
    decision = Simulation([100, 110], noise=0.0, clock=ramp(0.2)).choose()
    assert decision.medians == {
        "a": pytest.approx(109, rel=0.01),
        "b": pytest.approx(120, rel=0.01),
    }
    assert decision.margin_permille == pytest.approx(91, abs=3)


def test_samples_without_an_order_are_taken_as_they_are() -> None:
    samples = {"a": (1.0, 2.0, 3.0), "b": (2.0, 4.0, 6.0)}
    for taken in ((), ("a", "b"), ("a", "b", "a", "b", "a")):
        assert without_drift(samples, taken) == samples
    assert without_drift({"a": (0.0, 1.0)}, ("a", "a")) == {"a": (0.0, 1.0)}
    assert without_drift(samples, ("a", "b") * 3) != samples


def test_a_replay_decides_the_same_and_another_band_otherwise() -> None:
    """The samples are all that is needed: no device."""
    simulation = Simulation([100, 98, 90, 60], clock=ramp(0.1))
    trial = run_rounds(simulation.names[:3], simulation.probe, lambda: False)

    def winner(band: int) -> str:
        decision = decide(trial.samples, list(trial.samples), taken=trial.taken, band=band)
        assert decision is not None
        return decision.winner

    assert [winner(band) for band in (0, 30, 60, 95, 150)] == ["c", "c", "c", "b", "a"]


def test_a_trial_that_is_fed_from_outside_is_the_same_trial() -> None:
    simulation = Simulation([100, 90, 300, 95])
    rounds, order = Rounds(simulation.names), []
    while (name := rounds.turn) is not None:
        order.append(name)
        assert rounds.feed(name, simulation.probe(name))
    again = Simulation([100, 90, 300, 95])
    assert rounds.complete
    assert rounds.result() == run_rounds(again.names, again.probe, lambda: False)
    assert rounds.result().taken == tuple(order)
