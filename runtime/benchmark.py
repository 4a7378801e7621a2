"""Benchmark data: candidates beside peers, each number with the timer that measured it."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

from dialects.errors import DeviceError, ProblemError, UsageError
from dialects.manifest import Record
from dialects.member import Problem
from dialects.rules import float_operations

from .bench import our_arm, peer_arm
from .ceilings import known_ceilings
from .compare import Timing, interleave
from .device import Device
from .dispatch_events import dispatch_times, peer_dispatch_times
from .execute import Executable
from .family import KernelRef, splits_of
from .measure_plan import cold_sets
from .proof import Case, make_case, prove
from .session import Session
from .timer import CachePolicy

PEERS = ("numpy", "iree_default", "cublas", "triton")
DEVICE_CLOCK = ("vulkan",)  # IREE drivers that record dispatch events


@dataclass(frozen=True, kw_only=True)
class Row:
    """One candidate beside one peer. ``ratio`` is the peer's time over ours.

    Both were read by ``timer``, whose ``ceiling`` says what a reading was held against.
    """

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
    ceiling: str = "unknown"
    caches: CachePolicy = "hot"


def benchmark(
    session: Session,
    kernel: str,
    sizes: Sequence[int],
    peers: Sequence[str],
    records: Sequence[Record],
    progress: Callable[[str], None] = lambda name: None,
    note: Callable[[str], None] = lambda text: None,
    wrong: list[str] | None = None,
    caches: CachePolicy = "hot",
) -> list[Row]:
    """Time every record that is right at the problem, and each peer once, on normal floats.

    With cold ``caches`` every launch has operands that the ones before have driven out of them.
    ``note`` is told of a peer that cannot run, and why. What is wrong of a candidate goes to
    ``wrong`` where another one is right.

    Raises:
        ProblemError: a size of 0, which leaves nothing to time.
        UsageError: cold caches where only hot ones can be timed, or operands too small for them.
        DeviceError: no candidate is right, or the device failed.
    """
    ref = session.reference(kernel)
    problem = Problem(dims=ref.entry.dims, sizes=tuple(sizes))
    if not float_operations(problem):
        raise ProblemError(f"kernel '{kernel}' at {problem.text}: nothing to time")
    splits = splits_of(session.explain(kernel, *sizes).verdicts)
    records = _right(session, ref, problem, records, splits, [] if wrong is None else wrong)
    if session.device.backend == "cuda":
        sets = cold_sets(session.facts, ref.entry, problem) if caches == "cold" else 1
        rows = _by_events(session, ref, problem, peers, records, splits, sets, progress, note)
        return [replace(row, caches=caches) for row in rows]
    if caches == "cold":
        raise UsageError("cold caches are timed on CUDA only: --caches hot works")
    case = make_case(session.device, ref.entry, problem, integers=False)
    if session.device.uri.partition(":")[0] in DEVICE_CLOCK:
        return _by_device(session, ref, case, peers, records, splits, progress)
    return _by_host(session, ref, case, peers, records, splits)


def _right(
    session: Session,
    ref: KernelRef,
    problem: Problem,
    records: Sequence[Record],
    splits: Mapping[str, int],
    wrong: list[str],
) -> list[Record]:
    """The records whose result is exact at the problem, the others by what is wrong."""
    proof = make_case(session.device, ref.entry, problem)
    right, reasons = [], []
    for record in records:
        slices = splits.get(record.full_name, 1)
        executable = session.executable(ref.entry.kernel, record, slices)
        reason = prove(session.device, executable, replace(proof, splits=slices), whole=False)
        if reason is None:
            right.append(record)
        else:
            reasons.append(f"member {record.name} is wrong: {reason}")
    if not right:
        raise DeviceError("; ".join(reasons))
    wrong += [f"{reason} at {problem.text}" for reason in reasons]
    return right


def _by_events(
    session: Session,
    ref: KernelRef,
    problem: Problem,
    peers: Sequence[str],
    records: Sequence[Record],
    splits: Mapping[str, int],
    sets: int,
    progress: Callable[[str], None],
    note: Callable[[str], None],
) -> list[Row]:
    """On CUDA, all by events in the same rounds, but for IREE's own compile.

    Its launches are out of our reach, so beside it both are timed by the host's clock.
    """
    from .cuda.bench import event_timings  # other devices never load it

    asked = [p for p in peers if p in ("cublas", "triton")]
    timings, beside = event_timings(
        session.device, session.facts, ref, problem, records, splits, asked, sets, progress, note
    )
    rows: list[Row] = []
    for record in records:
        timing = timings[record.full_name]
        found = _rows(ref, problem, record, timing, beside, "device")
        rows += [replace(row, ceiling=known_ceilings(session.facts, record)) for row in found]
    if "iree_default" in peers and ref.entry.peers:
        progress("iree_default")
        rows += _beside_iree(session.device.uri, ref, problem, records, splits)
    return rows


def _beside_iree(
    uri: str,
    ref: KernelRef,
    problem: Problem,
    records: Sequence[Record],
    splits: Mapping[str, int],
) -> list[Row]:
    device = Device(uri)
    case = make_case(device, ref.entry, problem, integers=False)
    rows: list[Row] = []
    for record in records:
        arm = peer_arm(device, ref.pack, ref.entry, record, case, "iree_default")
        if arm is None:
            continue
        slices = splits.get(record.full_name, 1)
        executable = Executable(device, ref.pack, ref.entry.kernel, record, split=slices > 1)
        ours = our_arm(device, executable, replace(case, splits=slices))
        timings = interleave({"ours": ours, "iree_default": arm})
        beside: dict[str, Timing | None] = {"iree_default": timings["iree_default"]}
        rows += _rows(ref, problem, record, timings["ours"], beside, "host")
    return rows


def _by_device(
    session: Session,
    ref: KernelRef,
    case: Case,
    peers: Sequence[str],
    records: Sequence[Record],
    splits: Mapping[str, int],
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
        sliced = replace(case, splits=splits.get(record.full_name, 1))
        timing = dispatch_times(ref.pack, ref.entry, record, sliced, uri)
        rows += _rows(ref, case.problem, record, timing, peer_times, "device")
    return rows


def _peer_by_device(
    ref: KernelRef, case: Case, peer: str, records: Sequence[Record], uri: str
) -> Timing | None:
    if peer != "iree_default" or not records:
        return None
    return peer_dispatch_times(ref.pack, ref.entry, records[0].identity.target, case, uri)


def _by_host(
    session: Session,
    ref: KernelRef,
    case: Case,
    peers: Sequence[str],
    records: Sequence[Record],
    splits: Mapping[str, int],
) -> list[Row]:
    rows = []
    for record in records:
        slices = splits.get(record.full_name, 1)
        executable = session.executable(ref.entry.kernel, record, slices)
        arms = {"ours": our_arm(session.device, executable, replace(case, splits=slices))}
        for peer in peers:
            arm = peer_arm(session.device, ref.pack, ref.entry, record, case, peer)
            if arm is not None:
                arms[peer] = arm
        timings = interleave(arms)
        beside = {p: timings.get(p) for p in peers}
        rows += _rows(ref, case.problem, record, timings["ours"], beside, "host")
    return rows


def _rows(
    ref: KernelRef,
    problem: Problem,
    record: Record,
    timing: Timing,
    peers: dict[str, Timing | None],
    timer: str,
) -> list[Row]:
    c = ref.entry.contraction
    flops = float_operations(problem) * len(c.products)
    alone = Row(
        kernel=ref.entry.kernel,
        member=record.identity.member,
        body=record.identity.body,
        dtype=f"{c.a.type}->{c.c.type}",
        shape=problem.sizes,
        peer=None,
        timer=timer,
        kernel_us=round(timing.microseconds, 2),
        peer_us=None,
        ratio=None,
        spread=round(timing.spread, 3),
        tflops=round(flops / timing.microseconds / 1e6, 3),
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
