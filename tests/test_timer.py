"""Brackets of launches on a clock of our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from runtime.execute import Executable
from runtime.timer import BRACKET_LAUNCHES, Bracket, host_bracket, launches_in


class Clock:
    """Time that only the device's work moves."""

    def __init__(self, launch_s: float, entry_s: float, interruptions: dict[int, float]) -> None:
        self.now, self.calls = 0.0, []
        self._launch_s, self._entry_s, self._interruptions = launch_s, entry_s, interruptions

    def __call__(self) -> float:
        return self.now

    def repeat(self, buffers: Sequence[Any], constants: Sequence[int], count: int) -> None:
        """Entering costs too; the n-th call may be interrupted."""
        self.now += self._entry_s + count * self._launch_s
        self.now += self._interruptions.get(len(self.calls), 0.0)
        self.calls.append(count)


def bracket(
    launch_s: float, entry_s: float = 1e-3, **interruptions: float
) -> tuple[Bracket, Clock]:
    """Time a bracket; ``call_N`` interrupts the N-th call by that many seconds."""
    delays = {int(name.removeprefix("call_")): s for name, s in interruptions.items()}
    clock = Clock(launch_s, entry_s, delays)
    return host_bracket(cast("Executable", clock), [], [], clock), clock


@pytest.mark.parametrize(
    ("seconds", "launches"),
    [(-1, 20), (0, 20), (1e-9, 20), (2.4e-4, 20), (2.6e-4, 19), (2e-3, 2), (5e-3, 1), (9, 1)],
)
def test_how_many_launches_make_a_bracket(seconds: float, launches: int) -> None:
    assert launches_in(seconds) == launches
    assert launches <= BRACKET_LAUNCHES


@pytest.mark.parametrize(("launch_s", "count"), [(1e-6, 20), (1e-4, 20), (2e-3, 2), (0.3, 1)])
def test_entering_the_function_is_not_counted(launch_s: float, count: int) -> None:
    measured, clock = bracket(launch_s)
    assert measured.launches == count
    assert measured.microseconds == pytest.approx(launch_s * 1e6)
    assert clock.calls == [1, 0, count]


def test_an_interrupted_empty_call_does_not_make_launches_free() -> None:
    """The reading is then too long by an entry, and never 0."""
    measured, _ = bracket(1e-6, call_1=0.5)
    assert measured.microseconds == pytest.approx((1e-3 + 20e-6) / 20 * 1e6)


def test_an_interrupted_warm_call_only_shortens_the_bracket() -> None:
    measured, _ = bracket(1e-4, call_0=0.5)
    assert measured.launches == 1
    assert measured.microseconds == pytest.approx(100)
