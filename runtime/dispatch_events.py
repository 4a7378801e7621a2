"""Kernel time by the device's own clock, through IREE's profiler (timer tier ``device``).

IREE records a start and an end tick for each dispatch where its driver has queries for it; its
bindings do not expose that, its command-line tools do. They run in processes of their own, so a
candidate that hangs costs nothing else.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import iree._runtime_libs as runtime_tools
import numpy as np

from dialects.errors import DeviceError
from dialects.manifest import KernelEntry, Peer, Record

from .arrays import span_bytes
from .compare import Timing, timing_of
from .dtypes import dtype_of
from .pack import Pack
from .proof import Case

DEADLINE_S = 30.0
ATTEMPTS = 3  # the profiler was seen to wait for ever on one driver, now and then
WARM_LAUNCHES = 20  # clocks rise from idle during the first launches; these are dropped
LAUNCHES = 40
FEWEST = 2  # one warm, one timed
TOOL_TYPES = {"u8": "i8", "f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2"}  # as IREE's tools say them


class DeadlineError(DeviceError):
    """A process that did not end in time."""


def dispatch_times(
    pack: Pack,
    entry: KernelEntry,
    record: Record,
    case: Case,
    uri: str,
    deadline_s: float = DEADLINE_S,
) -> Timing:
    """Time one candidate on the operands of a case.

    Raises:
        DeviceError: the device has no such clock, or the candidate failed or ran too long.
    """
    if record.files is None:
        raise DeviceError(f"member {record.name} has no code")
    module = pack.path / record.files.vmfb
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        inputs = _inputs(entry, record, case, Path(folder))
        function = f"{entry.kernel}.split" if case.splits > 1 else entry.kernel
        return _profile(_Call(module, function, inputs, uri), Path(folder), deadline_s)


def peer_dispatch_times(
    pack: Pack, entry: KernelEntry, peer: Peer, case: Case, uri: str, deadline_s: float = DEADLINE_S
) -> Timing:
    """The back end's own compile by the same clock.

    Raises:
        DeviceError: the device refused it, or it ran too long.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        return _profile(_peer_call(pack, entry, peer, case, uri, folder), Path(folder), deadline_s)


def peer_result(
    pack: Pack, entry: KernelEntry, peer: Peer, case: Case, uri: str, deadline_s: float = DEADLINE_S
) -> np.ndarray:
    """What the back end's own compile makes of the operands, in a process of its own.

    Raises:
        DeviceError: the device refused it, or it ran too long.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        call = _peer_call(pack, entry, peer, case, uri, folder)
        output = Path(folder) / "result.bin"
        _run(deadline_s, "iree-run-module", *call.flags, f"--output=@{output}")
        layout = case.layouts[-1]
        raw = np.fromfile(output, np.uint8)
        return raw.view(dtype_of(layout.type)).reshape(layout.shape)


class _Call(NamedTuple):
    """One call of a module's function, as IREE's tools take it."""

    module: Path
    function: str
    inputs: list[str]
    uri: str

    @property
    def flags(self) -> list[str]:
        return [
            f"--device={self.uri}",
            f"--module={self.module}",
            f"--function={self.function}",
            *(f"--input={i}" for i in self.inputs),
        ]


def _peer_call(
    pack: Pack, entry: KernelEntry, peer: Peer, case: Case, uri: str, folder: str
) -> _Call:
    inputs = []
    for argument in entry.read_arguments:
        array = case.host[argument.name]
        path = Path(folder) / f"{argument.name}.bin"
        np.ascontiguousarray(array).tofile(path)
        shape = "x".join(str(s) for s in array.shape)
        inputs.append(f"{shape}x{TOOL_TYPES.get(argument.type, argument.type)}=@{path}")
    return _Call(pack.path / peer.vmfb, entry.kernel, inputs, uri)


def _profile(call: _Call, folder: Path, deadline_s: float) -> Timing:
    """Each timed launch counts as the sum over the dispatches of one call.

    Where as many as usual do not end in time, the fewest say how many do.
    """
    usual = WARM_LAUNCHES + LAUNCHES
    count, samples = usual, []
    for attempt in range(ATTEMPTS):
        try:
            samples = _launches(call, folder, count, deadline_s)
        except DeadlineError:
            if attempt == ATTEMPTS - 1:
                raise
            count = FEWEST
        else:
            break
    if count == FEWEST:
        fitting = min(usual, int(deadline_s / 2 / max(samples[-1] / 1e6, 1e-9)))
        if fitting > FEWEST:
            samples = _launches(call, folder, fitting, deadline_s)
    return timing_of(samples[-max(1, len(samples) * LAUNCHES // usual) :])


def _launches(call: _Call, folder: Path, count: int, deadline_s: float) -> list[float]:
    """Microseconds of that many launches, warm ones first."""
    profile = folder / "profile.bin"
    _run(
        deadline_s,
        "iree-benchmark-module",
        *call.flags,
        f"--benchmark_min_time={count}x",
        "--device_profiling_mode=dispatch-events,executable-metadata",
        f"--device_profiling_output={profile}",
    )
    events = _run(
        deadline_s,
        "iree-profile",
        "dispatch",
        "--dispatch_events",
        "--format=jsonl",
        str(profile),
    )
    return _per_call(events)


def _inputs(entry: KernelEntry, record: Record, case: Case, folder: Path) -> list[str]:
    """Arguments of the host function; ``&`` makes a raw buffer of a value."""
    result = []
    for argument, layout in zip(entry.args, case.layouts, strict=True):
        nbytes = span_bytes(layout)
        array = case.host.get(argument.name)
        if array is None or argument is entry.result:
            result.append(f"&{nbytes}xi8=0")
            continue
        path = folder / f"{argument.name}.bin"
        content = np.zeros(nbytes, np.uint8)
        content[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        content.tofile(path)
        result.append(f"&{nbytes}xi8=@{path}")
    nbytes = record.workspace_bytes(case.problem.values(), case.splits)
    if nbytes:
        result.append(f"&{nbytes}xi8=0")
    return result + [str(c) for c in case.constants]


def _run(deadline_s: float, tool: str, *arguments: str) -> str:
    command = [str(Path(next(iter(runtime_tools.__path__))) / tool), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s)
    except subprocess.TimeoutExpired:
        raise DeadlineError(f"{tool} ran past its deadline of {deadline_s:g} s") from None
    except OSError as error:
        raise DeviceError(f"cannot start {tool}: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise DeviceError(f"{tool} failed: {lines[0][:240] if lines else done.returncode}")
    return done.stdout


def _per_call(text: str) -> list[float]:
    """Durations summed over the dispatches that were submitted together."""
    calls: dict[int, float] = {}
    for line in text.splitlines():
        event = json.loads(line)
        if event.get("type") == "dispatch_event":
            key = event["submission_id"]
            calls[key] = calls.get(key, 0.0) + event["duration_ns"] / 1000
    if not calls:
        raise DeviceError("the device recorded no dispatch")
    return [calls[k] for k in sorted(calls)]
