"""The process that proves and times candidates, so that a trap or a hang costs nobody else.

``python -m runtime.worker URI`` reads one JSON request a line and answers with JSON events, one a
line, until its input ends. It is started once and stays warm; it is never forked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from dialects.errors import Error, PackError
from dialects.expressions import Expression
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem

from .choice import run_rounds
from .clocks import clock_of
from .device import Device
from .execute import Executable
from .pack import Pack, open_pack
from .proof import Case, awkward_problem, make_case, prove

Say = Callable[[dict[str, Any]], None]


class Worker:
    """Keeps the device open, packs read and candidates proven between requests."""

    def __init__(self, uri: str, say: Say) -> None:
        self._device = Device(uri)
        self._clock = clock_of(self._device)
        self._say = say
        self._packs: dict[str, Pack] = {}
        self._loaded: dict[tuple[str, str, str], Executable] = {}
        self._proven: set[str] = set()

    def trial(self, request: dict[str, Any]) -> None:
        """Prove the named candidates, then time those that are right, within the budget.

        Events: ``{"step": "prove"|"time", "name"}`` before each, so that whoever reads knows what
        was running when they stop; ``{"failed", "reason"}``; at last ``{"end", "samples"}``.
        """
        begin = time.perf_counter()
        pack = self._pack(request["pack"])
        kernel = pack.kernel(request["kernel"])
        problem = Problem(dims=kernel.dims, sizes=tuple(request["sizes"]))
        budget = request["budget_ms"] / 1000
        records = {r.full_name: r for r in kernel.members}
        missing = [n for n in request["names"] if n not in records]
        if missing:
            raise PackError(f"the pack has changed, it lacks {', '.join(missing)}")
        wanted = [records[n] for n in request["names"]]
        case = make_case(self._device, kernel, problem)
        workspace = self._workspace(wanted, problem)

        def late() -> bool:
            return time.perf_counter() - begin > budget

        right: list[str] = []
        complete = True
        for record in wanted:
            if right and late():
                complete = False
                break
            self._say({"step": "prove", "name": record.full_name})
            reason = self._prove(pack, kernel, record, case)
            if reason is None:
                right.append(record.full_name)
            else:
                self._say({"failed": record.full_name, "reason": reason})

        def probe(name: str) -> float | str:
            self._say({"step": "time", "name": name})
            record = records[name]
            executable = self._executable(pack, kernel, record)
            space = workspace if record.workspace else None
            try:
                readings = self._clock.readings(executable, [case.buffers(space)], case.constants)
                return self._clock.timer.bracket(readings).microseconds
            except Error as error:
                return error.message

        trial = run_rounds(right, probe, late)
        for name, reason in trial.failures.items():
            self._say({"failed": name, "reason": reason})
        complete = complete and trial.complete
        self._say({"end": "complete" if complete else "budget", "samples": trial.samples})

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
        try:
            executable = self._executable(pack, kernel, record)
            # Of the module: what the host does around the device's code is proven too.
            code = record.files.sha256[record.files.vmfb] if record.files else ""
            if code not in self._proven:
                small = make_case(self._device, kernel, awkward_problem(kernel, record))
                reason = prove(self._device, executable, small, whole=True)
                if reason is not None:
                    return f"{reason} at {small.problem.text}"
                self._proven.add(code)
            reason = prove(self._device, executable, case, whole=False)
            return None if reason is None else f"{reason} at {case.problem.text}"
        except Error as error:
            return error.message


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
