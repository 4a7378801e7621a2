"""Tuning by the device's own clock where only a profiler can read it: a trial in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from dialects.errors import DeviceError

from .benchmark import DEVICE_CLOCK
from .dispatch_events import dispatch_times
from .family import Choice, splits_of
from .proof import make_case
from .session import Session


def has_dispatch_clock(session: Session) -> bool:
    """Whether IREE's driver of the session's device records the start and end of dispatches."""
    return session.device.uri.partition(":")[0] in DEVICE_CLOCK


def tune_by_dispatches(
    session: Session,
    kernel: str,
    sizes: Sequence[int],
    budget_ms: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Choice:
    """Choose by dispatch events: proven by the measuring process, timed by IREE's tools.

    A candidate that the profiler cannot time is left out with its reason. What the budget leaves
    undone ends the trial early.

    Raises:
        LaunchRefused: no candidate can run.
        DeviceError: no candidate could be proven and timed.
    """
    trial = session.trial(kernel, *sizes, timer="device")
    if trial.turn is None:
        return trial.finish()
    ref = session.reference(kernel)
    records = {r.full_name: r for r in ref.entry.members}
    at = session.problem_of(kernel, *sizes)
    case = make_case(session.device, ref.entry, at)
    splits = splits_of(session.explain(kernel, *sizes).verdicts)
    end, first = clock() + budget_ms / 1000, True
    while (name := trial.turn) is not None and (first or clock() < end):
        try:
            sliced = replace(case, splits=splits.get(name, 1))
            timing = dispatch_times(ref.pack, ref.entry, records[name], sliced, session.device.uri)
        except DeviceError as error:
            trial.fail(name, error.message)
        else:
            first = not trial.feed(name, timing.microseconds) and first
    return trial.finish()
