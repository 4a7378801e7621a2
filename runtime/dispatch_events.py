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

import iree._runtime_libs as runtime_tools
import numpy as np

from dialects.errors import DeviceError
from dialects.manifest import KernelEntry, Record

from .arrays import span_bytes
from .compare import Timing, timing_of
from .pack import Pack
from .proof import Case

DEADLINE_S = 30.0
ATTEMPTS = 3  # the profiler was seen to wait for ever on one driver, now and then
WARM_LAUNCHES = 20  # clocks rise from idle during the first launches; these are dropped
LAUNCHES = 40


def dispatch_times(pack: Pack, entry: KernelEntry, record: Record, case: Case, uri: str) -> Timing:
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
        return _profile(module, function, inputs, uri, Path(folder))


def peer_dispatch_times(
    pack: Pack, entry: KernelEntry, target: str, case: Case, uri: str
) -> Timing | None:
    """The back end's own compile by the same clock; None when the pack has none.

    Raises:
        DeviceError: the device refused it, or it ran too long.
    """
    peer = next((p for p in entry.peers if p.target == target), None)
    if peer is None:
        return None
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        inputs = []
        for argument in entry.read_arguments:
            array = case.host[argument.name]
            path = Path(folder) / f"{argument.name}.bin"
            np.ascontiguousarray(array).tofile(path)
            shape = "x".join(str(s) for s in array.shape)
            inputs.append(f"{shape}x{argument.type}=@{path}")
        return _profile(pack.path / peer.vmfb, entry.kernel, inputs, uri, Path(folder))


def _profile(module: Path, function: str, inputs: list[str], uri: str, folder: Path) -> Timing:
    """Each timed launch counts as the sum over the dispatches of one call."""
    profile = folder / "profile.bin"
    _run(
        "iree-benchmark-module",
        f"--device={uri}",
        f"--module={module}",
        f"--function={function}",
        *(f"--input={i}" for i in inputs),
        f"--benchmark_min_time={WARM_LAUNCHES + LAUNCHES}x",
        "--device_profiling_mode=dispatch-events,executable-metadata",
        f"--device_profiling_output={profile}",
    )
    events = _run("iree-profile", "dispatch", "--dispatch_events", "--format=jsonl", str(profile))
    return timing_of(_per_call(events)[-LAUNCHES:])


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


def _run(tool: str, *arguments: str) -> str:
    command = [str(Path(next(iter(runtime_tools.__path__))) / tool), *arguments]
    done = None
    for _ in range(ATTEMPTS):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
            break
        except subprocess.TimeoutExpired:
            continue
        except OSError as error:
            raise DeviceError(f"cannot start {tool}: {error.strerror}") from None
    if done is None:
        raise DeviceError(f"{tool} ran past its deadline of {DEADLINE_S:g} s {ATTEMPTS} times")
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
