"""The host's end of the worker: starts it, feeds it, outlives it."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dialects.errors import DeviceError
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem

from .choice import ROUNDS, Trial
from .executors import ExecutorName
from .pack import Pack

HANG_S = 60.0  # one proof or bracket; far above any launch that could win
START_S = 60.0
END_S = 3.0  # from a closed output to the end of the process, whose trap may dump memory
# The worker starts where this package lies: a folder of the caller's could hide it.
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How candidates are timed.

    ``least_us`` are the floors below which a time is refused, by candidate, where one is known.
    ``sets`` of buffers are taken in turn, more than one for cold caches. ``rounds`` 0 only proves.
    """

    budget_ms: float
    least_us: Mapping[str, float] = field(default_factory=dict)
    sets: int = 1
    rounds: int = ROUNDS


class _Died(Exception):
    """The worker ended or went silent; the text says how."""


class Measurer:
    """One warm worker process for one device. Trials are serialized; close it when done."""

    def __init__(
        self,
        uri: str,
        *,
        hang_s: float = HANG_S,
        start_s: float = START_S,
        command: Sequence[str] | None = None,
        executor: ExecutorName = "iree",
    ) -> None:
        default = [sys.executable, "-m", "runtime.worker", uri, executor]
        self._command = list(command or default)
        self._hang_s, self._start_s = hang_s, start_s
        self._process: subprocess.Popen[str] | None = None
        self._events: queue.Queue[str | None] = queue.Queue()
        self._lock = threading.Lock()

    @property
    def process_id(self) -> int | None:
        """The worker's process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the worker if it does not run.

        Raises:
            DeviceError: it does not come up, with its own reason.
        """
        with self._lock:
            self._start()

    def close(self) -> None:
        """End the worker."""
        with self._lock:
            self._stop()

    def trial(
        self,
        pack: Pack,
        kernel: KernelEntry,
        records: Sequence[Record],
        problem: Problem,
        options: TrialOptions,
        observe: Callable[[str, str], None] = lambda step, name: None,
        splits: Mapping[str, int] | None = None,
    ) -> Trial:
        """Prove and time the candidates. One that traps or hangs is named and left out.

        ``splits`` are the slices of K of those that are launched with several, by name.

        Raises:
            DeviceError: the worker cannot be started or reports an error of its own.
        """
        failures: dict[str, str] = {}
        with self._lock:
            while True:
                names = [r.full_name for r in records if r.full_name not in failures]
                if not names:
                    return Trial(samples={}, failures=failures, complete=True)
                request = {
                    "pack": str(pack.path.resolve()),
                    "kernel": kernel.kernel,
                    "names": names,
                    "sizes": list(problem.sizes),
                    "budget_ms": options.budget_ms,
                    "least_us": {n: u for n, u in options.least_us.items() if n in names},
                    "sets": options.sets,
                    "rounds": options.rounds,
                    "splits": dict(splits or {}),
                }
                self._start()
                running = ""

                def note(step: str, name: str) -> None:
                    nonlocal running
                    running = name
                    observe(step, name)

                try:
                    return self._exchange(request, failures, note)
                except _Died as end:
                    self._stop()
                    if running not in names:
                        raise DeviceError(f"the measuring process {end}") from None
                    failures[running] = str(end)
                except BaseException:
                    self._stop()  # what it still says must not be taken for the next answer
                    raise

    def _exchange(
        self,
        request: dict[str, Any],
        failures: dict[str, str],
        note: Callable[[str, str], None],
    ) -> Trial:
        self._send(request)
        while True:
            match self._receive(self._hang_s):
                case {"step": str(step), "name": str(name)}:
                    note(step, name)
                case {"failed": str(name), "reason": str(reason)}:
                    failures[name] = reason
                case {"error": str(reason)}:
                    raise DeviceError(reason)
                case {"end": end, "samples": dict(samples), **more} if _are_times(samples):
                    return Trial(
                        samples={n: tuple(t) for n, t in samples.items() if n not in failures},
                        failures=failures,
                        complete=end == "complete",
                        taken=tuple(str(name) for name in more.get("taken", ())),
                        timer=str(more.get("timer", "host")),
                    )
                case event:
                    raise _Died(f"said what is not understood: {event!r:.80}")

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                errors="replace",
                cwd=_ROOT,
            )
        except OSError as error:
            raise DeviceError(f"cannot start the measuring process: {error.strerror}") from None
        self._events = queue.Queue()
        threading.Thread(
            target=_read_lines, args=(self._process.stdout, self._events), daemon=True
        ).start()
        try:
            event = self._receive(self._start_s)
        except _Died as end:
            self._stop()
            raise DeviceError(f"the measuring process {end}") from None
        if "ready" not in event:
            self._stop()
            raise DeviceError(str(event.get("error", "the measuring process is none of ours")))

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise _Died(self._how_it_ended()) from None

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise _Died(f"hung for {timeout_s:g} s") from None
        if line is None:
            raise _Died(self._how_it_ended())
        try:
            event = json.loads(line)
        except ValueError:
            event = line
        if not isinstance(event, dict):
            raise _Died(f"said what is not understood: {event!r:.80}")
        return event

    def _how_it_ended(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"trapped with signal {-code}" if code < 0 else f"ended with code {code}"

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            try:
                process.stdin.close()
            except OSError:
                process.kill()  # it is gone already, or its pipe is: nothing to lose
        try:
            process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _are_times(samples: dict[str, Any]) -> bool:
    lists = samples.values()
    return all(isinstance(x, list) and all(isinstance(t, int | float) for t in x) for x in lists)


def _read_lines(stream: Any, events: queue.Queue[str | None]) -> None:
    try:
        for line in stream:
            events.put(line)
    except ValueError:
        pass  # the stream was closed under us: the end is what the reader is told below
    events.put(None)
