"""The feasibility rules (seed section 2, R1-R6, and ours): pure functions of record and facts.

Preflight before compiling, the filter at bind and ``explain`` all call :func:`judge`. Unknown facts
prune nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from .errors import LaunchRefused
from .expressions import Expression, ceildiv
from .facts import STORAGE_FEATURES, DeviceFacts
from .manifest import KernelEntry, Record, Refusal
from .member import Problem
from .occupancy import Residency, residency
from .operands import contiguous_strides
from .types import element_type

INDEX_LIMIT = 1 << 31  # elements of one operand: strides and sizes are i32


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the rules say of one record at one problem.

    A survivor has no ``refusal``; it carries R4's residency, R5's fill and split, R6's padding.
    """

    record: Record
    refusal: Refusal | None = None
    resident: int | None = None
    fills: bool = True
    splits: int = 1
    pad_permille: int = 0

    @property
    def ok(self) -> bool:
        """Whether the record can run."""
        return self.refusal is None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One record at one problem on one device; ``problem`` is None before one is known."""

    kernel: KernelEntry
    record: Record
    facts: DeviceFacts
    problem: Problem | None
    strides: Mapping[str, int] | None = None


def _refuse(rule: str, need: int | None, limit: int | None, what: str) -> Refusal:
    return Refusal(rule=rule, need=need, limit=limit, message=f"{what} ({rule})")


def _spill(case: Case) -> Refusal | None:
    spilled = case.record.footprint.spill_bytes
    if spilled:
        return _refuse("R1", spilled, None, f"spills {spilled} B")
    return None


def _registers(case: Case) -> Refusal | None:
    used, limit = case.record.footprint, case.facts.registers_per_multiprocessor
    if not used.registers or not used.threads_per_group or limit is None:
        return None
    need = used.registers * used.threads_per_group
    if need <= limit:
        return None
    text = f"registers {used.threads_per_group} threads x {used.registers} = {need} > {limit}"
    return _refuse("R2", need, limit, f"{text} in the register file")


def _shared(case: Case) -> Refusal | None:
    need, limit = case.record.footprint.shared_bytes, case.facts.shared_limit
    if not need or limit is None or need <= limit:
        return None
    return _refuse("R3", need, limit, f"shared {need} B > {limit} B per block")


def _residency(case: Case) -> Residency | None:
    return residency(case.record.footprint.usage, case.facts)


def _resident(case: Case) -> Refusal | None:
    found = _residency(case)
    if found is None or found.groups:
        return None
    return _refuse(
        "R4",
        found.need,
        found.limit,
        f"no workgroup is resident: {found.limiter} {found.need} > {found.limit}",
    )


def _native(case: Case) -> Refusal | None:
    listed = case.facts.native_matrix_configs
    if listed is None:
        return None
    for group in case.record.groups:
        if group.tier != "native" or group.shape is None:
            continue
        if not any(
            (c.m, c.n, c.k) == group.shape and (c.a, c.b, c.acc) == (group.a, group.b, group.acc)
            for c in listed
        ):
            shape = "x".join(str(s) for s in group.shape)
            what = f"matrix config {shape} {group.a}*{group.b}->{group.acc} is not listed"
            return _refuse("native", None, None, f"{what} by the driver")
    return None


def _wave(case: Case) -> Refusal | None:
    width, offered = case.record.needs.wave_width, case.facts.wave_widths
    if width is None or offered is None:
        return None
    if width not in offered:
        return _refuse("wave", width, max(offered), f"wave width {width} not in {list(offered)}")
    threads = case.record.footprint.threads_per_group
    if threads and threads % width:
        text = f"waves of {width} do not cover {threads} threads exactly"
        return _refuse("wave", threads, width, text)
    return None


def _feature(case: Case) -> Refusal | None:
    missing: list[str] = []
    for need in case.record.needs.features:
        stored = need in STORAGE_FEATURES
        offered = case.facts.storage_features if stored else case.facts.features
        if offered is not None and need not in offered:
            missing.append(need)
    if missing:
        return _refuse("feature", None, None, f"needs {', '.join(missing)}")
    return None


def _alignment(case: Case) -> Refusal | None:
    """Sizes and strides that a body's copies need in whole units, all in elements."""
    if case.problem is None or not case.record.needs.alignment:
        return None
    strides = case.strides
    if strides is None:
        strides = dense_strides(case.kernel, case.problem)
    found = {**case.problem.values(), **strides}
    for name, need in case.record.needs.alignment.items():
        if found.get(name, 0) % need:
            text = f"{name} = {found[name]} is no multiple of {need}"
            return _refuse("alignment", need, found[name], text)
    return None


def _contiguous(case: Case) -> Refusal | None:
    """What the compiler's own kernels take: dense operands, and something to sum over."""
    if case.problem is None or not case.record.needs.contiguous:
        return None
    for name, size in case.problem.values().items():
        if size == 0:
            return _refuse("layout", 1, 0, f"size {name} is 0")
    dense = dense_strides(case.kernel, case.problem)
    for name, need in dense.items():
        found = (case.strides or dense).get(name, need)
        if found != need:
            return _refuse("layout", need, found, f"{name} = {found} is not the dense {need}")
    return None


def dense_strides(kernel: KernelEntry, problem: Problem) -> dict[str, int]:
    """The outer strides of contiguous operands by name, in elements."""
    values = problem.values()
    return {
        f"{argument.name}.{axis}": stride
        for argument in kernel.args
        for axis, stride in enumerate(contiguous_strides([values[d] for d in argument.dims]))
    }


def _grid(case: Case) -> Refusal | None:
    limits, launch = case.facts.max_workgroup_counts, case.record.launch
    if case.problem is None or launch is None or launch.grid is None or limits is None:
        return None
    values = case.problem.values()
    for axis, text, limit in zip("xyz", launch.grid, limits, strict=False):
        need = Expression(text).evaluate(values)
        if need > limit:
            return _refuse("grid", need, limit, f"grid {axis} {need} > {limit} workgroups")
    return None


def _memory(case: Case) -> Refusal | None:
    if case.problem is None:
        return None
    values = case.problem.values()
    sizes = {
        a.name: prod(values[d] for d in a.dims) * element_type(a.type).bytes
        for a in case.kernel.args
    }
    if case.record.workspace:
        sizes["workspace"] = Expression(case.record.workspace).evaluate(values)
    binding, memory = case.facts.max_binding_bytes, case.facts.memory_bytes
    for name, need in sizes.items():
        if binding is not None and need > binding:
            text = f"{name} {need} B > {binding} B per binding"
            return _refuse("memory", need, binding, text)
    total = sum(sizes.values())
    if memory is not None and total > memory:
        return _refuse("memory", total, memory, f"operands {total} B > {memory} B of the device")
    return None


def _index(case: Case) -> Refusal | None:
    if case.problem is None:
        return None
    values = case.problem.values()
    for argument in case.kernel.args:
        need = prod(values[d] for d in argument.dims)
        if need > INDEX_LIMIT:
            text = f"{argument.name} has {need} elements > {INDEX_LIMIT}"
            return _refuse("index", need, INDEX_LIMIT, text)
    return None


PRUNING: tuple[Callable[[Case], Refusal | None], ...] = (
    _spill,
    _registers,
    _shared,
    _resident,
    _native,
    _wave,
    _feature,
    _alignment,
    _contiguous,
    _grid,
    _index,
    _memory,
)


def judge(case: Case) -> Verdict:
    """The first rule that prunes, or what R4, R5 and R6 record of a survivor."""
    if case.record.refused is not None:
        return Verdict(record=case.record, refusal=case.record.refused)
    for rule in PRUNING:
        refusal = rule(case)
        if refusal is not None:
            return Verdict(record=case.record, refusal=refusal)
    found = _residency(case)
    resident = found.groups if found else None
    if case.problem is None:
        return Verdict(record=case.record, resident=resident)
    batch, m, n, k = mnk(case.problem)
    tile = case.record.tile
    fills, splits = fill_and_split(
        tiles=batch * ceildiv(m, tile.m) * ceildiv(n, tile.n),
        k=k,
        k_block=0,  # no body splits K
        multiprocessors=case.facts.multiprocessors,
    )
    return Verdict(
        record=case.record,
        resident=resident,
        fills=fills,
        splits=splits,
        pad_permille=padding_permille(m, n, tile.m, tile.n),
    )


def mnk(problem: Problem) -> tuple[int, int, int, int]:
    """(batch, m, n, k) of a contraction's sizes; batch 1 when there is none."""
    sizes = problem.sizes if len(problem.sizes) == 4 else (1, *problem.sizes)
    batch, m, n, k = sizes
    return batch, m, n, k


def float_operations(problem: Problem) -> float:
    """Operations of a contraction, two a multiply-accumulate."""
    batch, m, n, k = mnk(problem)
    return 2.0 * batch * m * n * k


def fill_and_split(
    *, tiles: int, k: int, k_block: int, multiprocessors: int | None, max_splits: int = 16
) -> tuple[bool, int]:
    """R5: whether the grid fills the device, and the split of K that would (origin section 8).

    Scans 2..max_splits over the divisors of ``k // k_block`` and stops at the first that fills;
    when none does, the largest legal divisor stays.
    """
    if multiprocessors is None or tiles >= multiprocessors:
        return True, 1
    splits = 1
    blocks = k // k_block if k_block else 0
    for candidate in range(2, max_splits + 1):
        if blocks and blocks % candidate == 0:
            splits = candidate
            if tiles * candidate >= multiprocessors:
                return True, candidate
    return False, splits


def padding_permille(m: int, n: int, tile_m: int, tile_n: int) -> int:
    """R6: per mille of the padded tiles that lie outside the problem."""
    padded = ceildiv(m, tile_m) * tile_m * ceildiv(n, tile_n) * tile_n
    return (padded - m * n) * 1000 // padded if padded else 0


def refuse_all(kernel: KernelEntry, shape: str, verdicts: list[Verdict]) -> LaunchRefused:
    """The error for an empty survivor set: it names every candidate, its rule and its amounts."""
    if not verdicts:
        return LaunchRefused(f"kernel '{kernel.kernel}' at {shape}: no candidate for this device")
    reasons = "; ".join(
        f"member {v.record.name}: {v.refusal.message if v.refusal else 'ok'}" for v in verdicts
    )
    return LaunchRefused(f"kernel '{kernel.kernel}' at {shape}: no candidate can run: {reasons}")
