"""Benchmark data: candidates beside peers, each number with the timer that measured it."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

from dialects.errors import DeviceError, ProblemError, UsageError
from dialects.manifest import Peer, Record
from dialects.member import Problem
from dialects.rules import float_operations

from .bench import compiled_arm, compiled_peers, disagreement, numpy_arm, our_arm
from .ceilings import known_ceilings
from .compare import Arm, Timing, interleave
from .device import Device
from .dispatch_events import DEADLINE_S, dispatch_times, peer_dispatch_times, peer_result
from .execute import Executable
from .executors import Memory
from .family import KernelRef, splits_of
from .measure_plan import cold_sets
from .proof import Case, make_case, prove
from .session import Session
from .timer import CachePolicy

COMPILED_PEERS = ("iree_default", "iree_software")
TORCH_PEERS = ("cublas", "triton")
PEERS = ("numpy", *COMPILED_PEERS, *TORCH_PEERS)
DEVICE_CLOCK = ("vulkan",)  # IREE drivers that record dispatch events
Note = Callable[[str], None]


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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is timed: records that are right at a problem, and the pack's peers that are.

    ``torch_peers`` and ``numpy`` are peers that no pack holds. ``deadline_s`` is what a process of
    its own may take, where one measures, ``sets`` how many sets of operands launches take in turn.
    """

    session: Session
    ref: KernelRef
    case: Case
    records: Sequence[Record]
    splits: Mapping[str, int]
    compiled: Sequence[Peer]
    torch_peers: Sequence[str]
    numpy: bool
    deadline_s: float
    sets: int
    progress: Callable[[str], None]
    note: Note

    @property
    def uri(self) -> str:
        """The device."""
        return self.session.device.uri

    def case_of(self, record: Record) -> Case:
        """The case as a record is launched at it."""
        return replace(self.case, splits=self.splits.get(record.full_name, 1))


def benchmark(
    session: Session,
    kernel: str,
    sizes: Sequence[int],
    peers: Sequence[str],
    records: Sequence[Record],
    progress: Callable[[str], None] = lambda name: None,
    note: Note = lambda text: None,
    wrong: list[str] | None = None,
    deadline_s: float = DEADLINE_S,
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
    if caches == "cold" and session.device.backend != "cuda":
        raise UsageError("cold caches are timed on CUDA only: --caches hot works")
    sets = cold_sets(session.facts, ref.entry, problem) if caches == "cold" else 1
    case = make_case(session.device, ref.entry, problem, integers=False)
    asked = [p for p in peers if p in COMPILED_PEERS]
    found = compiled_peers(ref.entry, records[0].identity.target, asked, problem)
    measured = Measured(
        session=session,
        ref=ref,
        case=case,
        records=records,
        splits=splits,
        compiled=[
            p for p in found if _is_right(session.device.uri, ref, p, case, deadline_s, note)
        ],
        torch_peers=[p for p in peers if p in TORCH_PEERS],
        numpy="numpy" in peers,
        deadline_s=deadline_s,
        sets=sets,
        progress=progress,
        note=note,
    )
    if session.device.backend == "cuda":
        return [replace(row, caches=caches) for row in _by_events(measured)]
    if session.device.uri.partition(":")[0] in DEVICE_CLOCK:
        return _by_device(measured)
    return _by_host(measured)


def _is_right(
    uri: str, ref: KernelRef, peer: Peer, case: Case, deadline_s: float, note: Note
) -> bool:
    """Whether a peer of the pack ends in time and agrees with float64, in a process of its own."""
    try:
        got = peer_result(ref.pack, ref.entry, peer, case, uri, deadline_s)
    except DeviceError as error:
        note(f"peer {peer.name}: {error.message}")
        return False
    reason = disagreement(ref.entry.contraction, case, got)
    if reason is not None:
        note(f"peer {peer.name}: {reason}")
    return reason is None


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


def _by_events(measured: Measured) -> list[Row]:
    """On CUDA, all by events in the same rounds, but for IREE's own compile.

    Its launches are out of our reach, so beside it both are timed by the host's clock.
    """
    from .cuda.bench import event_timings  # other devices never load it

    session, ref, problem = measured.session, measured.ref, measured.case.problem
    timings, beside = event_timings(
        session.device,
        session.facts,
        ref,
        problem,
        measured.records,
        measured.splits,
        measured.torch_peers,
        measured.sets,
        measured.progress,
        measured.note,
    )
    rows: list[Row] = []
    for record in measured.records:
        timing = timings[record.full_name]
        found = _rows(ref, problem, record, timing, beside, "device")
        rows += [replace(row, ceiling=known_ceilings(session.facts, record)) for row in found]
    if measured.compiled:
        measured.progress("beside IREE's own")
        rows += _beside_iree(measured)
    return rows


def _beside_iree(measured: Measured) -> list[Row]:
    """Records and peers through IREE, all in the same rounds: a slow peer is timed but once."""
    ref, device = measured.ref, Device(measured.uri)
    case = make_case(device, ref.entry, measured.case.problem, integers=False)
    arms: dict[str, Arm] = {}
    for record in measured.records:
        slices = measured.splits.get(record.full_name, 1)
        executable = Executable(device, ref.pack, ref.entry.kernel, record, split=slices > 1)
        arms[record.full_name] = our_arm(device, executable, replace(case, splits=slices))
    return _in_rounds(measured, arms, _compiled_arms(measured, device, case))


def _compiled_arms(measured: Measured, device: Memory, case: Case) -> dict[str, Arm]:
    ref = measured.ref
    arms = {p.name: compiled_arm(device, ref.pack, ref.entry, p, case) for p in measured.compiled}
    return {name: arm for name, arm in arms.items() if arm is not None}


def _in_rounds(measured: Measured, ours: dict[str, Arm], peers: dict[str, Arm]) -> list[Row]:
    """Rows by the host's clock, everything in the same rounds."""
    timings = interleave({**ours, **peers})
    beside: dict[str, Timing | None] = {name: timings[name] for name in peers}
    rows: list[Row] = []
    for record in measured.records:
        timing = timings[record.full_name]
        rows += _rows(measured.ref, measured.case.problem, record, timing, beside, "host")
    return rows


def _by_device(measured: Measured) -> list[Row]:
    """By the events that IREE's driver records, in processes of its tools."""
    ref, case, uri = measured.ref, measured.case, measured.uri
    beside: dict[str, Timing | None] = {}
    for peer in measured.compiled:
        measured.progress(peer.name)
        try:
            beside[peer.name] = peer_dispatch_times(
                ref.pack, ref.entry, peer, case, uri, measured.deadline_s
            )
        except DeviceError as error:
            measured.note(f"peer {peer.name}: {error.message}")
    if measured.torch_peers:
        beside |= _torch_times(measured)
    rows = []
    for record in measured.records:
        measured.progress(record.name)
        sliced = measured.case_of(record)
        timing = dispatch_times(ref.pack, ref.entry, record, sliced, uri, measured.deadline_s)
        rows += _rows(ref, case.problem, record, timing, beside, "device")
    return rows


def _torch_times(measured: Measured) -> dict[str, Timing | None]:
    """Torch's peers by CUDA events on the same card, where it has CUDA too."""
    from .cuda.bench import peer_timings  # devices without such a peer never load it

    uuid = measured.session.facts.uuid
    try:
        return peer_timings(
            f"cuda://{uuid}" if uuid else "cuda",
            measured.ref,
            measured.case.problem,
            measured.torch_peers,
            measured.progress,
            measured.note,
        )
    except DeviceError as error:
        measured.note(f"peers {', '.join(measured.torch_peers)}: {error.message}")
        return {}


def _by_host(measured: Measured) -> list[Row]:
    session, ref = measured.session, measured.ref
    arms: dict[str, Arm] = {}
    for record in measured.records:
        case = measured.case_of(record)
        executable = session.executable(ref.entry.kernel, record, case.splits)
        arms[record.full_name] = our_arm(session.device, executable, case)
    peers = _compiled_arms(measured, session.device, measured.case)
    if measured.numpy:
        peers["numpy"] = numpy_arm(ref.entry.contraction, measured.case)
    return _in_rounds(measured, arms, peers)


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
