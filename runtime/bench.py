"""Runs one problem: chooses, checks against float64, and times the winner beside its peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import iree.runtime as rt
import ml_dtypes
import numpy as np

from dialects.errors import DeviceError
from dialects.manifest import KernelEntry, Peer, Record
from dialects.member import Problem
from dialects.operands import Contraction
from dialects.rules import float_operations
from dialects.types import element_type

from .compare import Arm, Timing, calls, interleave
from .device import Device
from .dtypes import dtype_of
from .execute import PeerModule
from .executors import Launchable, Memory
from .family import Choice, KernelRef
from .pack import Pack
from .proof import Case, make_case, run_case
from .reference import COMBINE, evaluate, matrices
from .report import RunReport
from .session import Session
from .timer import without_entry

PEERS = ("numpy", "iree_default")
SAFETY = 8.0  # over the error that additions of random signs make
WHOLE_FLOPS = 2e10  # above this the float64 reference takes a sample of rows
ROWS = 64
_ELEMENTS = {
    "f64": rt.HalElementType.FLOAT_64,
    "f32": rt.HalElementType.FLOAT_32,
    "f16": rt.HalElementType.FLOAT_16,
    "bf16": rt.HalElementType.BFLOAT_16,
    "i32": rt.HalElementType.SINT_32,
    "i16": rt.HalElementType.SINT_16,
    "i8": rt.HalElementType.SINT_8,
    "u8": rt.HalElementType.UINT_8,
}


@dataclass(frozen=True, kw_only=True)
class Error64:
    """Distance from the float64 reference; ``relative`` is over the largest expected magnitude.

    ``allowed`` is the largest ``max_abs`` that rounding can explain.
    """

    max_abs: float
    relative: float
    allowed: float

    @property
    def text(self) -> str:
        """Both, in words."""
        return f"differs by {self.max_abs:.3g} from float64, rounding explains {self.allowed:.3g}"


def run_problem(
    session: Session, kernel: str, sizes: Sequence[int], peers: Sequence[str]
) -> RunReport:
    """Choose, run once on normal floats, compare with float64, and time beside the peers.

    Raises:
        Error: no candidate can run, the device fails or is wrong, or a size is out of range.
    """
    choice = session.choose(kernel, *sizes)
    ref = session.reference(kernel)
    executable = session.executable(kernel, choice.record, choice.splits)
    problem = choice.problem
    if 0 in (problem.values()[d] for d in ref.entry.result.dims):
        return _empty(session, choice, peers)
    case = make_case(session.device, ref.entry, problem, integers=False)
    case = replace(case, splits=choice.splits)
    got = run_case(session.device, executable, case)
    error = compare64(ref.entry.contraction, case, got)
    if not error.max_abs <= error.allowed:
        raise DeviceError(
            f"member {choice.record.name} is wrong at {problem.text}: it {error.text}",
            where=session.device.uri,
        )
    flops = float_operations(problem) * len(ref.entry.contraction.products)
    timings = _timings(session.device, ref, executable, case, peers) if flops else {}
    rate = {n: flops / t.microseconds / 1e3 for n, t in timings.items() if t.microseconds}
    return RunReport(
        choice=choice,
        device=session.device.uri,
        settled=session.settled,
        max_abs=error.max_abs,
        relative=error.relative,
        gflops=rate.get("ours"),
        spread=timings["ours"].spread if "ours" in timings else None,
        peers={p: rate.get(p) for p in peers},
    )


def _empty(session: Session, choice: Choice, peers: Sequence[str]) -> RunReport:
    return RunReport(
        choice=choice,
        device=session.device.uri,
        settled=session.settled,
        max_abs=0.0,
        relative=0.0,
        gflops=None,
        peers=dict.fromkeys(peers),
    )


def compare64(contraction: Contraction, case: Case, got: np.ndarray) -> Error64:
    """Compare a result with the float64 reference, on a sample of rows when it is large."""
    rows: np.ndarray | slice = slice(None)
    if float_operations(case.problem) > WHOLE_FLOPS:
        rows = np.unique(np.random.default_rng(3).integers(0, got.shape[-2], ROWS))
    expected = evaluate(contraction, case.values, rows=rows)
    if not expected.size:
        return Error64(max_abs=0.0, relative=0.0, allowed=0.0)
    difference = np.abs(got[..., rows, :].astype(np.float64) - expected)
    # a NaN anywhere must show as one, which max() does
    largest, scale = float(difference.max()), float(np.abs(expected).max())
    return Error64(
        max_abs=largest,
        relative=largest / scale if scale else largest,
        allowed=rounding(contraction, case.values, scale),
    )


def disagreement(contraction: Contraction, case: Case, got: np.ndarray) -> str | None:
    """How far a result is from float64, where that is more than rounding explains."""
    error = compare64(contraction, case, got)
    return None if error.max_abs <= error.allowed else error.text


def rounding(contraction: Contraction, host: Mapping[str, np.ndarray], scale: float) -> float:
    """What the types' rounding can amount to, generously, for results up to ``scale``."""
    if element_type(contraction.c.type).kind != "float":
        return 0.0

    def largest(name: str) -> float:
        return float(np.abs(host[name].astype(np.float64)).max(initial=0.0))

    k = matrices(contraction, host)[0].shape[-1]
    error = sum(
        SAFETY * epsilon(p.accumulator) * (k * largest(p.a.name) * largest(p.b.name))
        for p in contraction.products
    )
    error += SAFETY * epsilon(contraction.accumulator) * scale * len(contraction.products)
    for step in contraction.epilogue:
        if step.op == "mul":
            error *= max(1.0, largest(step.operand) if step.operand else abs(step.constant or 0))
    return error + SAFETY * epsilon(contraction.c.type) * scale


def epsilon(type_name: str) -> float:
    """Distance from 1 to the next number of a type; 0 for integers."""
    floating = element_type(type_name).kind == "float"
    return float(ml_dtypes.finfo(dtype_of(type_name)).eps) if floating else 0.0


def our_arm(device: Memory, executable: Launchable, case: Case) -> Arm:
    """Calls of a candidate back to back, without the cost of entering the function."""
    record = executable.record
    space = None
    nbytes = record.workspace_bytes(case.problem.values(), case.splits)
    if nbytes:
        space = device.allocate(nbytes)
    buffers, constants = case.buffers(space), case.constants

    def arm(count: int) -> float:
        empty = calls(lambda: executable.repeat(buffers, constants, 0))(1)
        spent = calls(lambda: executable.repeat(buffers, constants, count))(1)
        return without_entry(spent, empty)

    return arm


def _timings(
    device: Memory, ref: KernelRef, executable: Launchable, case: Case, peers: Sequence[str]
) -> dict[str, Timing]:
    arms: dict[str, Arm] = {"ours": our_arm(device, executable, case)}
    for peer in peers:
        arm = peer_arm(device, ref.pack, ref.entry, executable.record, case, peer)
        if arm is not None:
            arms[peer] = arm
    return interleave(arms)


def compiled_peers(
    entry: KernelEntry, target: str, names: Sequence[str], problem: Problem
) -> list[Peer]:
    """The pack's peers of these names for a target: those of any size, and of the problem's own."""
    wanted = {name for peer in names for name in (peer, f"{peer}@{problem.text}")}
    return [p for p in entry.peers if p.target == target and p.name in wanted]


def peer_arm(
    device: Memory, pack: Pack, entry: KernelEntry, record: Record, case: Case, peer: str
) -> Arm | None:
    """A peer's calls; None when the pack holds none for this target or the device refuses it."""
    if peer == "numpy":
        return numpy_arm(entry.contraction, case)
    found = next(
        (p for p in entry.peers if p.name == peer and p.target == record.identity.target), None
    )
    return None if found is None else compiled_arm(device, pack, entry, found, case)


def compiled_arm(
    device: Memory, pack: Pack, entry: KernelEntry, found: Peer, case: Case
) -> Arm | None:
    """Calls of a peer of the pack, after a first one; None when the device refuses it."""
    if not isinstance(device, Device) or any(a.type not in _ELEMENTS for a in entry.args):
        return None
    try:
        module = PeerModule(device, pack.read(found.vmfb, found.sha256), entry.kernel)
        views = [_view(device, case.host[a.name], a.type) for a in entry.read_arguments]
        module.run(views)
    except DeviceError:
        return None
    return calls(lambda: module.run(views))


def _view(device: Device, array: np.ndarray, type_: str) -> rt.HalBufferView:
    buffer = device.upload(np.ascontiguousarray(array))
    return rt.HalBufferView(buffer, list(array.shape), _ELEMENTS[type_])


def numpy_arm(contraction: Contraction, case: Case) -> Arm:
    """numpy's matmul and the same epilogue; what is narrow is widened before the clock starts."""
    host: Mapping[str, np.ndarray] = case.values
    kind = element_type(contraction.accumulator)
    wide = dtype_of("f32") if kind.kind == "float" and kind.bits < 64 else dtype_of(kind.name)
    widened = {name: array.astype(wide) for name, array in host.items()}
    (a, b), *further = (matrices(p, widened) for p in contraction.products)
    extras = {o.name: widened[o.name] for o in contraction.extras}
    out = np.empty((*a.shape[:-1], b.shape[-1]), wide)

    def call() -> np.ndarray:
        np.matmul(a, b, out=out)
        for left, right in further:
            np.add(out, np.matmul(left, right), out=out)
        for step in contraction.epilogue:
            if step.op != "cast":
                other = extras[step.operand] if step.operand else wide.type(step.constant or 0)
                COMBINE[step.op](out, other, out=out)
        return out

    return calls(call)
