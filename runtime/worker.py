"""The process that proves and times candidates, so that a trap or a hang costs nobody else.

``python -m runtime.worker URI [EXECUTOR]`` reads one JSON request a line and answers with JSON
events, one a line, until its input ends. It is started once and stays warm; it is never forked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from dialects.errors import DeviceError, Error, PackError
from dialects.manifest import Record
from dialects.member import Problem

from .choice import Candidate, try_candidates
from .clocks import clock_of
from .executors import ExecutorName, open_device
from .pack import Pack, open_pack
from .proof import case_again, make_case, operands_changed
from .prover import Prover

Say = Callable[[dict[str, Any]], None]


class Worker:
    """Keeps the device open, packs read and candidates proven between requests."""

    def __init__(self, uri: str, say: Say, executor: ExecutorName = "iree") -> None:
        device = open_device(uri, executor, poison=True)
        self._clock = clock_of(device)
        self._timed = Prover(self._clock.device)
        self._provers = [self._timed]
        if device is not self._clock.device:  # sessions launch by other means than the clock
            self._timed = Prover(self._clock.device, "launched directly: ")
            self._provers = [Prover(device), self._timed]
        self._say = say
        self._packs: dict[str, Pack] = {}

    def trial(self, request: dict[str, Any]) -> None:
        """Prove the named candidates, then time those that are right, within the budget.

        ``least_us`` of the request are the floors below which no time is believed, ``sets`` how
        many sets of buffers a bracket takes in turn, ``rounds`` 0 only proves; ``splits`` are the
        slices of K of those that are launched with several.

        Events: ``{"step": "prove"|"time", "name"}`` before each, so that whoever reads knows what
        was running when they stop; ``{"failed", "reason"}``; at last ``{"end", "samples", "taken",
        "timer"}``.
        """
        end = time.perf_counter() + request["budget_ms"] / 1000
        trial = _Trial(self._pack(request["pack"]), request, self._provers)
        candidates = [
            Candidate(
                name=record.full_name,
                check=partial(self._check, trial, record),
                probe=partial(self._probe, trial, record),
            )
            for record in trial.records
        ]
        found = try_candidates(
            candidates, lambda: time.perf_counter() > end, rounds=request["rounds"]
        )
        self._check_operands(trial, [r for r in trial.records if r.full_name in found.samples])
        self._say(
            {
                "end": "complete" if found.complete else "budget",
                "samples": found.samples,
                "taken": found.taken,
                "timer": self._clock.timer.tier,
            }
        )

    def _check(self, trial: _Trial, record: Record) -> str | None:
        self._say({"step": "prove", "name": record.full_name})
        for prover, cases, spaces in zip(self._provers, trial.cases, trial.spaces, strict=True):
            case = replace(cases[0], splits=trial.splits_of(record))
            reason = prover.wrong(trial.pack, trial.kernel, record, case, spaces[0])
            if reason is not None:
                self._say({"failed": record.full_name, "reason": reason})
                return reason
        return None

    def _probe(self, trial: _Trial, record: Record) -> float | str:
        self._say({"step": "time", "name": record.full_name})
        splits = trial.splits_of(record)
        cases = [replace(case, splits=splits) for case in trial.cases[-1]]
        scratch = bool(record.workspace_bytes(trial.problem.values(), splits))
        buffers = [
            case.buffers(space if scratch else None)
            for case, space in zip(cases, trial.spaces[-1], strict=True)
        ]
        try:
            executable = self._timed.executable(trial.pack, trial.kernel, record, splits)
            readings = self._clock.readings(executable, buffers, cases[0].constants)
            return self._clock.timer.bracket(readings, trial.least_us(record)).microseconds
        except Error as error:
            self._say({"failed": record.full_name, "reason": error.message})
            return error.message

    def _check_operands(self, trial: _Trial, timed: list[Record]) -> None:
        """Name whoever changed an operand while others ran.

        Raises:
            DeviceError: an operand was changed, and no candidate does it alone.
        """
        for prover, cases in zip(self._provers, trial.cases, strict=True):
            changed = operands_changed(prover.device, cases[0])
            if changed is None:
                continue
            guilty = [self._blamed(trial, prover, record) for record in timed]
            if not any(guilty):
                raise DeviceError(f"{changed} while candidates ran at {trial.problem.text}")

    def _blamed(self, trial: _Trial, prover: Prover, record: Record) -> bool:
        """Say of a candidate that changes its operands at this size; whether it does."""
        self._say({"step": "prove", "name": record.full_name})
        splits = trial.splits_of(record)
        reason = prover.changes(trial.pack, trial.kernel, record, trial.problem, splits)
        if reason is not None:
            self._say({"failed": record.full_name, "reason": reason})
        return reason is not None

    def _pack(self, path: str) -> Pack:
        """Packs may be rebuilt in place, so the manifest is read anew; it is small."""
        pack = open_pack(Path(path))
        old = self._packs.get(path)
        if old is None or old.manifest.digest != pack.manifest.digest:
            self._packs[path] = pack
            for prover in self._provers:
                prover.forget(path)
        return self._packs[path]


class _Trial:
    """A request with everything on the devices: operands and workspaces by prover."""

    def __init__(self, pack: Pack, request: dict[str, Any], provers: list[Prover]) -> None:
        """Put the operands there.

        Raises:
            PackError: the pack lacks the kernel or a candidate.
            DeviceError: too little memory.
        """
        self.pack, self.kernel = pack, pack.kernel(request["kernel"])
        self.problem = Problem(dims=self.kernel.dims, sizes=tuple(request["sizes"]))
        known = {r.full_name: r for r in self.kernel.members}
        missing = [n for n in request["names"] if n not in known]
        if missing:
            raise PackError(f"the pack has changed, it lacks {', '.join(missing)}")
        self.records = [known[n] for n in request["names"]]
        self._splits: dict[str, int] = request["splits"]
        self._least_us: dict[str, float] = request["least_us"]
        *others, timed = provers
        sets = range(request["sets"])
        self.cases = [[make_case(p.device, self.kernel, self.problem)] for p in others]
        first = make_case(timed.device, self.kernel, self.problem)
        self.cases.append([first, *(case_again(timed.device, first) for _ in sets[1:])])
        self.spaces = [
            [p.workspace(self.records, self.problem, self._splits) for _ in cases]
            for p, cases in zip(provers, self.cases, strict=True)
        ]

    def splits_of(self, record: Record) -> int:
        """Slices of K that the candidate is launched with."""
        return self._splits.get(record.full_name, 1)

    def least_us(self, record: Record) -> float | None:
        """The floor below which no time of the candidate is believed, where one is known."""
        return self._least_us.get(record.full_name)


def serve(uri: str, lines: Iterable[str], out: TextIO, executor: ExecutorName = "iree") -> int:
    """Answer requests until the input ends; 1 when the device cannot be opened."""

    def say(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    try:
        worker = Worker(uri, say, executor)
    except Error as error:
        say({"error": str(error)})
        return 1
    say({"ready": uri})
    for line in lines:
        try:
            worker.trial(json.loads(line))
        except Error as error:
            say({"error": str(error)})
        except Exception as error:  # such as too little memory: it costs one answer, and says so
            say({"error": f"{type(error).__name__}: {error}"})
    return 0


if __name__ == "__main__":
    asked: ExecutorName = "direct" if sys.argv[2:] == ["direct"] else "iree"
    sys.exit(serve(sys.argv[1], sys.stdin, sys.stdout, asked))
