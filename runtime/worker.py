"""The process that proves and times candidates, so that a trap or a hang costs nobody else.

``python -m runtime.worker URI`` reads one JSON request a line and answers with JSON events, one a
line, until its input ends. It is started once and stays warm; it is never forked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from dialects.errors import DeviceError, Error, PackError
from dialects.expressions import Expression
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem

from .choice import Candidate, try_candidates
from .clocks import clock_of
from .device import Device
from .execute import Executable
from .pack import Pack, open_pack
from .proof import (
    REPEATS,
    REPEATS_AT_SIZE,
    Case,
    awkward_problem,
    make_case,
    operands_changed,
    padded_layouts,
    prove,
    repeatable,
)

Say = Callable[[dict[str, Any]], None]


class Worker:
    """Keeps the device open, packs read and candidates proven between requests."""

    def __init__(self, uri: str, say: Say) -> None:
        self._device = Device(uri, poison=True)
        self._clock = clock_of(self._device)
        self._say = say
        self._packs: dict[str, Pack] = {}
        self._loaded: dict[tuple[str, str, str], Executable] = {}
        self._proven: set[str] = set()

    def trial(self, request: dict[str, Any]) -> None:
        """Prove the named candidates, then time those that are right, within the budget.

        ``least_us`` of the request are the floors below which no time is believed, ``sets`` how
        many sets of buffers a bracket takes in turn, ``rounds`` 0 only proves.

        Events: ``{"step": "prove"|"time", "name"}`` before each, so that whoever reads knows what
        was running when they stop; ``{"failed", "reason"}``; at last ``{"end", "samples", "taken",
        "timer"}``.
        """
        begin = time.perf_counter()
        pack = self._pack(request["pack"])
        kernel = pack.kernel(request["kernel"])
        problem = Problem(dims=kernel.dims, sizes=tuple(request["sizes"]))
        budget, least_us = request["budget_ms"] / 1000, request["least_us"]
        records = {r.full_name: r for r in kernel.members}
        missing = [n for n in request["names"] if n not in records]
        if missing:
            raise PackError(f"the pack has changed, it lacks {', '.join(missing)}")
        wanted = [records[n] for n in request["names"]]
        cases = [make_case(self._device, kernel, problem) for _ in range(request["sets"])]
        case = cases[0]
        spaces = [self._workspace(wanted, problem) for _ in cases]

        def late() -> bool:
            return time.perf_counter() - begin > budget

        def check(record: Record) -> str | None:
            self._say({"step": "prove", "name": record.full_name})
            reason = self._prove(pack, kernel, record, case)
            if reason is not None:
                self._say({"failed": record.full_name, "reason": reason})
            return reason

        def probe(record: Record) -> float | str:
            self._say({"step": "time", "name": record.full_name})
            executable = self._executable(pack, kernel, record)
            buffers = [
                c.buffers(space if record.workspace else None)
                for c, space in zip(cases, spaces, strict=True)
            ]
            try:
                readings = self._clock.readings(executable, buffers, case.constants)
                least = least_us.get(record.full_name)
                return self._clock.timer.bracket(readings, least).microseconds
            except Error as error:
                self._say({"failed": record.full_name, "reason": error.message})
                return error.message

        candidates = [
            Candidate(name=r.full_name, check=partial(check, r), probe=partial(probe, r))
            for r in wanted
        ]
        trial = try_candidates(candidates, late, rounds=request["rounds"])
        changed = operands_changed(self._device, case)
        if changed is not None:
            timed = [records[n] for n in trial.samples]
            if not self._blame(pack, kernel, timed, problem):
                raise DeviceError(f"{changed} while candidates ran at {problem.text}")
        self._say(
            {
                "end": "complete" if trial.complete else "budget",
                "samples": trial.samples,
                "taken": trial.taken,
                "timer": self._clock.timer.tier,
            }
        )

    def _pack(self, path: str) -> Pack:
        """Packs may be rebuilt in place, so the manifest is read anew; it is small."""
        pack = open_pack(Path(path))
        old = self._packs.get(path)
        if old is None or old.manifest.digest != pack.manifest.digest:
            self._packs[path] = pack
            self._loaded = {k: e for k, e in self._loaded.items() if k[0] != path}
        return self._packs[path]

    def _executable(self, pack: Pack, kernel: KernelEntry, record: Record) -> Executable:
        key = (str(pack.path), kernel.kernel, record.full_name)
        if key not in self._loaded:
            self._loaded[key] = Executable(self._device, pack, kernel.kernel, record)
        return self._loaded[key]

    def _workspace(self, records: Iterable[Record], problem: Problem) -> Any | None:
        values = problem.values()
        sizes = [Expression(r.workspace).evaluate(values) for r in records if r.workspace]
        return self._device.allocate(max(sizes)) if sizes else None

    def _prove(self, pack: Pack, kernel: KernelEntry, record: Record, case: Case) -> str | None:
        """Why a candidate is wrong: in full on a small problem, once a build, then at the size.

        What is proven at the size is the program that is timed.
        """
        try:
            executable = self._executable(pack, kernel, record)
            # Of the module: what the host does around the device's code is proven too.
            code = record.files.sha256[record.files.vmfb] if record.files else ""
            if code not in self._proven:
                at = awkward_problem(kernel, record)
                layouts = padded_layouts(kernel, record, at)
                small = make_case(self._device, kernel, at, layouts=layouts)
                for launches in (0, REPEATS) if repeatable(case) else (0,):
                    reason = prove(self._device, executable, small, whole=True, launches=launches)
                    if reason is not None:
                        return f"{reason} at {small.problem.text}"
                self._proven.add(code)
            launches = REPEATS_AT_SIZE if repeatable(case) else 0
            reason = prove(self._device, executable, case, whole=False, launches=launches)
            return None if reason is None else f"{reason} at {case.problem.text}"
        except Error as error:
            return error.message

    def _blame(
        self, pack: Pack, kernel: KernelEntry, records: Iterable[Record], problem: Problem
    ) -> bool:
        """Say which candidates change their operands at this size; whether any does."""
        found = False
        for record in records:
            case = make_case(self._device, kernel, problem)
            self._say({"step": "prove", "name": record.full_name})
            executable = self._executable(pack, kernel, record)
            reason = prove(self._device, executable, case, whole=False)
            reason = reason or operands_changed(self._device, case)
            if reason is not None:
                self._say({"failed": record.full_name, "reason": f"{reason} at {problem.text}"})
                found = True
        return found


def serve(uri: str, lines: Iterable[str], out: TextIO) -> int:
    """Answer requests until the input ends; 1 when the device cannot be opened."""

    def say(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    try:
        worker = Worker(uri, say)
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
    sys.exit(serve(sys.argv[1], sys.stdin, sys.stdout))
