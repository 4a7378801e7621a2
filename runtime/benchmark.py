"""Benchmark data: candidates beside peers, each number with the timer that measured it."""

from __future__ import annotations

import datetime
import importlib
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

from dialects.errors import DeviceError, ProblemError
from dialects.manifest import Record
from dialects.member import Problem
from dialects.operands import Contraction
from dialects.rules import float_operations

from .bench import our_arm, peer_arm
from .compare import Timing, interleave, timing_of
from .dispatch_events import dispatch_times, peer_dispatch_times
from .family import KernelRef
from .proof import Case, make_case, prove
from .session import Session

PEERS = ("numpy", "iree_default", "cublas")
DEVICE_CLOCK = ("vulkan",)  # IREE drivers that record dispatch events


@dataclass(frozen=True, kw_only=True)
class Row:
    """One candidate beside one peer. ``ratio`` is the peer's time over ours."""

    kernel: str
    member: str
    body: str
    dtype: str
    shape: tuple[int, ...]
    peer: str | None
    timer: str
    kernel_us: float
    peer_us: float | None
    ratio: float | None
    spread: float
    tflops: float


def benchmark(
    session: Session,
    kernel: str,
    sizes: Sequence[int],
    peers: Sequence[str],
    records: Sequence[Record],
    progress: Callable[[str], None] = lambda name: None,
) -> list[Row]:
    """Time every record that is right at the problem, and each peer once, on normal floats.

    Raises:
        ProblemError: a size of 0, which leaves nothing to time.
        DeviceError: a candidate is wrong, or the device failed.
    """
    ref = session.reference(kernel)
    problem = Problem(dims=ref.entry.dims, sizes=tuple(sizes))
    if not float_operations(problem):
        raise ProblemError(f"kernel '{kernel}' at {problem.text}: nothing to time")
    proof = make_case(session.device, ref.entry, problem)
    for record in records:
        reason = prove(session.device, session.executable(kernel, record), proof, whole=False)
        if reason is not None:
            raise DeviceError(f"member {record.name} is wrong: {reason}")
    case = make_case(session.device, ref.entry, problem, integers=False)
    if session.device.uri.partition(":")[0] in DEVICE_CLOCK:
        return _by_device(session, ref, case, peers, records, progress)
    return _by_host(session, ref, case, peers, records)


def _by_device(
    session: Session,
    ref: KernelRef,
    case: Case,
    peers: Sequence[str],
    records: Sequence[Record],
    progress: Callable[[str], None],
) -> list[Row]:
    uri = session.device.uri
    peer_times: dict[str, Timing | None] = {}
    for peer in peers:
        progress(peer)
        peer_times[peer] = _peer_by_device(ref, case, peer, records, uri)
    rows = []
    for record in records:
        progress(record.name)
        timing = dispatch_times(ref.pack, ref.entry, record, case, uri)
        rows += _rows(ref, case, record, timing, peer_times, "device")
    return rows


def _peer_by_device(
    ref: KernelRef, case: Case, peer: str, records: Sequence[Record], uri: str
) -> Timing | None:
    if peer == "cublas":
        return cublas_timing(ref.entry.contraction, case)
    if peer == "numpy" or not records:
        return None
    return peer_dispatch_times(ref.pack, ref.entry, records[0].identity.target, case, uri)


def _by_host(
    session: Session,
    ref: KernelRef,
    case: Case,
    peers: Sequence[str],
    records: Sequence[Record],
) -> list[Row]:
    rows = []
    for record in records:
        executable = session.executable(ref.entry.kernel, record)
        arms = {"ours": our_arm(session.device, executable, case)}
        for peer in peers:
            if peer == "cublas":
                continue
            arm = peer_arm(session.device, ref.pack, ref.entry, record, case, peer)
            if arm is not None:
                arms[peer] = arm
        timings = interleave(arms)
        beside = {p: timings.get(p) for p in peers}
        rows += _rows(ref, case, record, timings["ours"], beside, "host")
    return rows


def _rows(
    ref: KernelRef,
    case: Case,
    record: Record,
    timing: Timing,
    peers: dict[str, Timing | None],
    timer: str,
) -> list[Row]:
    c = ref.entry.contraction
    alone = Row(
        kernel=ref.entry.kernel,
        member=record.identity.member,
        body=record.identity.body,
        dtype=f"{c.a.type}->{c.c.type}",
        shape=case.problem.sizes,
        peer=None,
        timer=timer,
        kernel_us=round(timing.microseconds, 2),
        peer_us=None,
        ratio=None,
        spread=round(timing.spread, 3),
        tflops=round(float_operations(case.problem) / timing.microseconds / 1e6, 3),
    )
    measured = {p: t for p, t in peers.items() if t is not None}
    return [
        replace(
            alone,
            peer=name,
            peer_us=round(other.microseconds, 2),
            ratio=round(other.microseconds / timing.microseconds, 4),
        )
        for name, other in measured.items()
    ] or [alone]


def cublas_timing(contraction: Contraction, case: Case, launches: int = 50) -> Timing | None:
    """The vendor library through torch, by CUDA events; None where torch sees no CUDA device.

    The result has the type of the operands: torch has no product of f16 operands in f32.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return None
    if not torch.cuda.is_available() or contraction.extras or contraction.accumulate:
        return None
    a, b = (torch.from_numpy(case.host[o.name]).cuda() for o in (contraction.a, contraction.b))
    a = a.transpose(-1, -2) if contraction.transposed_a else a
    b = b.transpose(-1, -2) if contraction.transposed_b else b
    samples = []
    for _ in range(launches + 20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.matmul(a, b)
        end.record()
        samples.append((start, end))
    torch.cuda.synchronize()
    return timing_of([s.elapsed_time(e) * 1000 for s, e in samples[20:]])


def benchmark_json(session: Session, rows: Sequence[Row]) -> dict[str, Any]:
    """The file format of ``benchmarks/``."""
    return {
        "device": session.facts.name or session.device.uri,
        "driver": session.facts.driver,
        "versions": {
            "iree-base-runtime": version("iree-base-runtime"),
            "python": platform.python_version(),
        },
        "date": datetime.date.today().isoformat(),
        "rows": [asdict(row) for row in rows],
    }
