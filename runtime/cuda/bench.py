"""Candidates beside peers on a CUDA device, all by the same events on the same stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dialects.manifest import Record

from ..bench import compare64
from ..compare import Timing, interleave_readings
from ..planner import KernelRef
from ..proof import Case
from .clock import CudaClock
from .peers import PRODUCTS, as_array, tensors, torch_module, working_product

Note = Callable[[str], None]


def event_timings(
    uri: str,
    ref: KernelRef,
    case: Case,
    records: Sequence[Record],
    splits: Mapping[str, int],
    peers: Sequence[str],
    progress: Callable[[str], None],
    note: Note,
) -> tuple[dict[str, Timing], dict[str, Timing | None], str]:
    """Times of the records by full name, of the peers by name, and the ceiling they were held to.

    A peer that cannot run, or whose result is wrong, is None and ``note`` says why.

    Raises:
        DeviceError: a candidate failed, or a reading is impossible.
    """
    clock = CudaClock(uri)
    arms = {
        r.full_name: clock.arm(ref.pack, r, replace(case, splits=splits.get(r.full_name, 1)))
        for r in records
    }
    readings: dict[str, Callable[[], float]] = {
        name: lambda arm=arm: clock.read(arm) for name, arm in arms.items()
    }
    for peer in peers:
        progress(peer)
        reading = _peer(clock, ref, case, peer, note)
        if reading is not None:
            readings[peer] = reading
    progress("all, in turn")
    found = interleave_readings(readings)
    ceiling = next((a.ceiling.kind for a in arms.values()), "unknown")
    return found, {peer: found.get(peer) for peer in peers}, ceiling


def _peer(
    clock: CudaClock, ref: KernelRef, case: Case, peer: str, note: Note
) -> Callable[[], float] | None:
    """A peer's brackets on the timer's stream, once its result was compared with float64."""
    torch = torch_module()
    if torch is None:
        note(f"peer {peer}: there is no torch that sees a CUDA device")
        return None
    contraction, place = ref.entry.contraction, clock.device.place
    held = tensors(torch, case.host, place)
    stream = torch.cuda.ExternalStream(clock.timer.stream, device=f"cuda:{place}")
    with torch.cuda.stream(stream):
        product, reason = working_product(torch, PRODUCTS[peer](torch, contraction, held))
        if product is None:
            note(f"peer {peer}: {reason}")
            return None
        got = as_array(product(), contraction.c.type)
    error = compare64(contraction, case, got)
    if not error.max_abs <= error.allowed and not contraction.accumulate:
        note(
            f"peer {peer}: differs by {error.max_abs:.3g} from float64, "
            f"rounding explains {error.allowed:.3g}"
        )
        return None

    def read() -> float:
        with torch.cuda.stream(stream):
            return clock.timer.bracket(lambda i: product()).microseconds

    return read
