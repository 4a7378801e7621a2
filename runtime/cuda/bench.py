"""Candidates beside peers on a CUDA device, all by the same events on the same stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dialects.facts import DeviceFacts
from dialects.manifest import Record
from dialects.member import Problem

from ..bench import disagreement
from ..compare import Timing, interleave_readings
from ..executors import Memory, load
from ..family import KernelRef
from ..measure_plan import floors
from ..proof import Case, case_again, make_case
from ..timer import SecondsOf
from .clock import EventClock, event_clock
from .device import CudaDevice
from .peers import PRODUCTS, as_array, tensors, torch_module, working_product

Note = Callable[[str], None]


def event_timings(
    session_device: Memory,
    facts: DeviceFacts,
    ref: KernelRef,
    problem: Problem,
    records: Sequence[Record],
    splits: Mapping[str, int],
    peers: Sequence[str],
    sets: int,
    progress: Callable[[str], None],
    note: Note,
) -> tuple[dict[str, Timing], dict[str, Timing | None]]:
    """Times of the records by full name, and of the peers by name, on normal floats.

    Launches take ``sets`` of operands and results in turn, more than one for cold caches. A peer
    that cannot run, or whose result is wrong, is None and ``note`` says why.

    Raises:
        DeviceError: a candidate failed, or a reading is impossible.
    """
    clock = event_clock(session_device)
    case = make_case(clock.device, ref.entry, problem, integers=False)
    cases = [case, *(case_again(clock.device, case) for _ in range(sets - 1))]
    least = floors(facts, ref.entry, records, problem, sets)
    readings: dict[str, Callable[[], float]] = {}
    for record in records:
        slices = splits.get(record.full_name, 1)
        seconds = _launches(clock, ref, record, [replace(c, splits=slices) for c in cases])
        readings[record.full_name] = _brackets(clock, seconds, least.get(record.full_name))
    readings |= _peers(clock, ref, case, peers, sets, progress, note)
    progress("all, in turn")
    found = interleave_readings(readings)
    return found, {peer: found.get(peer) for peer in peers}


def peer_timings(
    uri: str,
    ref: KernelRef,
    problem: Problem,
    peers: Sequence[str],
    progress: Callable[[str], None],
    note: Note,
) -> dict[str, Timing | None]:
    """Times of the peers alone, for a kernel that runs on the device by other means than CUDA.

    Raises:
        DeviceError: there is no such CUDA device, or a reading is impossible.
    """
    clock = event_clock(CudaDevice(uri))
    case = make_case(clock.device, ref.entry, problem, integers=False)
    readings = _peers(clock, ref, case, peers, 1, progress, note)
    found = interleave_readings(readings) if readings else {}
    return {peer: found.get(peer) for peer in peers}


def _peers(
    clock: EventClock,
    ref: KernelRef,
    case: Case,
    peers: Sequence[str],
    sets: int,
    progress: Callable[[str], None],
    note: Note,
) -> dict[str, Callable[[], float]]:
    """Brackets of each peer that can run."""
    readings = {}
    for peer in peers:
        progress(peer)
        reading = _peer(clock, ref, case, peer, sets, note)
        if reading is not None:
            readings[peer] = reading
    return readings


def _launches(
    clock: EventClock, ref: KernelRef, record: Record, cases: Sequence[Case]
) -> SecondsOf:
    """Launches of a candidate on the operands of the cases in turn."""
    case = cases[0]
    kernel, split = ref.entry.kernel, case.splits > 1
    executable = load(clock.device, ref.pack, kernel, record, split=split)
    nbytes = record.workspace_bytes(case.problem.values(), case.splits)
    workspace = clock.device.allocate(nbytes) if nbytes else None
    return clock.readings(executable, [c.buffers(workspace) for c in cases], case.constants)


def _brackets(clock: EventClock, seconds: SecondsOf, least_us: float | None) -> Callable[[], float]:
    return lambda: clock.timer.bracket(seconds, least_us).microseconds


def _peer(
    clock: EventClock, ref: KernelRef, case: Case, peer: str, sets: int, note: Note
) -> Callable[[], float] | None:
    """A peer's brackets on the timer's stream, once its result was compared with float64."""
    torch = torch_module()
    if torch is None:
        note(f"peer {peer}: there is no torch that sees a CUDA device")
        return None
    contraction, place = ref.entry.contraction, clock.events.device.place
    held = [tensors(torch, case.host, place) for _ in range(sets)]
    stream = torch.cuda.ExternalStream(clock.events.stream, device=f"cuda:{place}")
    with torch.cuda.stream(stream):
        products = []
        for operands in held:
            product, reason = working_product(torch, PRODUCTS[peer](torch, contraction, operands))
            if product is None:
                note(f"peer {peer}: {reason}")
                return None
            products.append(product)
        got = as_array(products[0](), contraction.c.type)
    reason = disagreement(contraction, case, got)
    if reason is not None and not contraction.accumulate:
        note(f"peer {peer}: {reason}")
        return None

    seconds = clock.events.seconds(lambda i: products[i % sets](), cold=sets > 1)

    def read() -> float:
        with torch.cuda.stream(stream):
            return clock.timer.bracket(seconds).microseconds

    return read
