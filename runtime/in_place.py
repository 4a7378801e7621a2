"""A trial in place: the application times candidates inside its own work, sample by sample."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .choice import Rounds, Trial
from .timer import TimerTier

if TYPE_CHECKING:
    from .family import Choice


class InPlaceTrial:
    """Which candidate to run next, and what it took; any number of threads may feed it.

    ::

        trial = session.trial("matmul_f16", 512, 4096, 4096)
        while (name := trial.turn) is not None:
            call = session.candidate("matmul_f16", name)
            ...                               # run it where the work is, and time it
            trial.feed(name, microseconds)
        choice = trial.finish()
    """

    def __init__(
        self, rounds: Rounds, timer: TimerTier, conclude: Callable[[Trial], Choice]
    ) -> None:
        self._rounds, self._timer, self._conclude = rounds, timer, conclude
        self._choice: Choice | None = None
        self._finished: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def turn(self) -> str | None:
        """The full name of the candidate to run next; None when every one has its rounds."""
        with self._lock:
            return self._rounds.turn

    def feed(self, name: str, microseconds: float) -> bool:
        """What one bracket of a candidate took, a launch; whether it counts.

        Raises:
            UsageError: a name that is not in the trial, or a time that is none.
        """
        with self._lock:
            return self._rounds.feed(name, microseconds)

    def fail(self, name: str, reason: str) -> None:
        """Leave a candidate out.

        Raises:
            UsageError: a name that is not in the trial.
        """
        with self._lock:
            self._rounds.fail(name, reason)

    def on_finish(self, call: Callable[[], None]) -> None:
        """Have something called once the choice is made."""
        self._finished.append(call)

    def finish(self) -> Choice:
        """Decide. Later calls use the winner, and it is remembered when the trial is complete.

        Raises:
            DeviceError: every candidate failed.
        """
        with self._lock:
            if self._choice is None:
                trial = replace(self._rounds.result(), timer=self._timer)
                self._choice = self._conclude(trial)
                for call in self._finished:
                    call()
            return self._choice
