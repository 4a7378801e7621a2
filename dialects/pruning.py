"""The rules that prune (seed section 2, R1 to R4, and ours), each a function of record and site.

What is not known prunes nothing. A refusal has the rule, what the record needs and the limit it
met, where these are amounts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import lcm

from .facts import STORAGE_FEATURES
from .launch_rules import grid_rule, index_rule, memory_rule
from .manifest import KernelEntry, Record, Refusal
from .occupancy import Residency
from .operands import OperandGroup
from .site import Site, dense_strides, refuse
from .types import element_type

WIDEST_COPY = 16  # bytes that one copy instruction moves at most

Rule = Callable[[Record, Site], Refusal | None]


def _spill(record: Record, site: Site) -> Refusal | None:
    spilled = record.footprint.spill_bytes
    return refuse("R1", spilled, None, f"spills {spilled} B") if spilled else None


def _registers(record: Record, site: Site) -> Refusal | None:
    used, limit = record.footprint, site.facts.registers_per_multiprocessor
    if not used.registers or not used.threads_per_group or limit is None:
        return None
    need = used.registers * used.threads_per_group
    if need <= limit:
        return None
    text = f"registers {used.threads_per_group} threads x {used.registers} = {need} > {limit}"
    return refuse("R2", need, limit, f"{text} in the register file")


def _shared(record: Record, site: Site) -> Refusal | None:
    need, limit = record.footprint.shared_bytes, site.facts.shared_limit
    if not need or limit is None or need <= limit:
        return None
    return refuse("R3", need, limit, f"shared {need} B > {limit} B per block")


def _resident(found: Residency | None) -> Refusal | None:
    if found is None or found.groups:
        return None
    text = f"no workgroup is resident: {found.limiter} {found.need} > {found.limit}"
    return refuse("R4", found.need, found.limit, text)


def _native(record: Record, site: Site) -> Refusal | None:
    if record.tier != "native" or site.facts.native_matrix_configs is None:
        return None
    for group in record.groups:
        if group.tier == "native" and group.shape is not None and not _listed(group, site):
            shape = "x".join(str(s) for s in group.shape)
            what = f"matrix config {shape} {group.a}*{group.b}->{group.acc} is not listed"
            return refuse("native", None, None, f"{what} by the driver")
    return None


def _listed(group: OperandGroup, site: Site) -> bool:
    configs = site.facts.matrix_configs(group.a, group.b, group.acc)
    return any((c.m, c.n, c.k) == group.shape for c in configs)


def _wave(record: Record, site: Site) -> Refusal | None:
    """The width must be granted, and the block must be what its waves were counted for."""
    width, offered = record.needs.wave_width, site.facts.wave_widths
    if width is not None and offered is not None:
        if width not in offered:
            text = f"wave width {width} not in {list(offered)}"
            return refuse("wave", width, max(offered), text)
        asked = site.facts.requirable_wave_widths
        if len(offered) > 1 and asked is not None and width not in asked:
            text = f"wave width {width} of {list(offered)} cannot be asked for"
            return refuse("wave", width, max(asked, default=None), text)
    return _cover(record) or _wave_tile(record) or _load_stride(record)


def _cover(record: Record) -> Refusal | None:
    needs, threads = record.needs, record.footprint.threads_per_group
    if needs.wave_width is None or not threads:
        return None
    if threads % needs.wave_width:
        text = f"waves of {needs.wave_width} do not cover {threads} threads exactly"
        return refuse("wave", threads, needs.wave_width, text)
    if needs.waves is None:
        return None
    count = needs.waves[0] * needs.waves[1]
    lanes = count * needs.wave_width
    if lanes == threads:
        return None
    text = f"{count} waves of {needs.wave_width} are {lanes} lanes, the block has {threads}"
    return refuse("wave", lanes, threads, text)


def _wave_tile(record: Record) -> Refusal | None:
    """Each wave takes a part of the block of at least one instruction, all the same."""
    if record.needs.waves is None:
        return None
    extents = (("rows", record.tile.m), ("columns", record.tile.n))
    for (axis, extent), waves, place in zip(extents, record.needs.waves, (0, 1), strict=True):
        for group in record.groups:
            least = group.shape[place] if group.tier == "native" and group.shape else 1
            if waves * least > extent:
                text = f"wave tiles of {waves} x {least} {axis} > {extent} of the block tile"
                return refuse("wave", waves * least, extent, text)
        if extent % waves:
            text = f"{waves} waves do not share {extent} {axis} of the block tile evenly"
            return refuse("wave", waves, extent, text)
    return None


def _load_stride(record: Record) -> Refusal | None:
    """A block that copies whole rows at a time must at least reach one, or it never moves on."""
    need, threads = record.needs.row_lanes, record.footprint.threads_per_group
    if not need or not threads or threads >= need:
        return None
    text = f"load stride < 1: a row takes {need} lanes, the block has {threads}"
    return refuse("wave", need, threads, text)


def _feature(record: Record, site: Site) -> Refusal | None:
    if not record.needs.features:
        return None
    missing: list[str] = []
    for need in record.needs.features:
        stored = need in STORAGE_FEATURES
        offered = site.facts.storage_features if stored else site.facts.features
        if offered is not None and need not in offered:
            missing.append(need)
    return refuse("feature", None, None, f"needs {', '.join(missing)}") if missing else None


def _alignment(record: Record, site: Site) -> Refusal | None:
    """Sizes, strides and starts that a body's copies need in whole units."""
    needs = alignment_needs(site.kernel, record)
    if not needs:
        return None
    found = site.alignments
    for name, need in needs.items():
        size = found.get(name, 0)
        if size % need:
            return refuse("alignment", need, size, f"{name} = {size} is no multiple of {need}")
    return _starts(needs, site) if site.strides else None


def alignment_needs(kernel: KernelEntry, record: Record) -> Mapping[str, int]:
    """What sizes and strides must be multiples of: the body's own needs, and whole blocks."""
    needs = record.needs.alignment or {}
    for size, elements in kernel.contraction.blocks.items():
        needs = {**needs, size: lcm(elements, needs.get(size, 1))}
    return needs


def _starts(needs: Mapping[str, int], site: Site) -> Refusal | None:
    """An argument whose strides are copied in units must start at one of them too."""
    for argument in site.kernel.args:
        start = (site.strides or {}).get(argument.name, 0)
        if not start:
            continue
        nbytes = element_type(argument.type).bytes
        axes = range(len(argument.dims) - 1)
        units = [nbytes * needs.get(f"{argument.name}.{axis}", 1) for axis in axes]
        need = min(max(units, default=1), WIDEST_COPY)
        if argument.name not in (site.sizes or {}):  # else the need is that size's
            need = needs.get(argument.name, need)
        if start % need:
            text = f"{argument.name} starts {start} B past a boundary of {need} B"
            return refuse("alignment", need, start, text)
    return None


def _contiguous(record: Record, site: Site) -> Refusal | None:
    """What the compiler's own kernels take: dense operands, and something to sum over."""
    if site.problem is None or not record.needs.contiguous:
        return None
    for name, size in site.problem.values().items():
        if size == 0:
            return refuse("layout", 1, 0, f"size {name} is 0")
    dense = dense_strides(site.kernel, site.problem)
    found = site.strides or {}
    for name, need in dense.items():
        if found.get(name, need) != need:
            what = f"{name} = {found[name]} is not the dense {need}"
            return refuse("layout", need, found[name], what)
    for argument in site.kernel.args:
        start = found.get(argument.name, 0)
        if start:
            text = f"{argument.name} starts {start} B past a boundary of {WIDEST_COPY} B"
            return refuse("layout", WIDEST_COPY, start, text)
    return None


_OF_THE_CODE: tuple[Rule, ...] = (_spill, _registers, _shared)  # R1, R2, R3
_AFTER_R4: tuple[Rule, ...] = (
    _native,
    _wave,
    _feature,
    _alignment,
    _contiguous,
    grid_rule,
    index_rule,
    memory_rule,
)


def first_refusal(record: Record, site: Site, found: Residency | None) -> Refusal | None:
    """The first rule that prunes, in the order of this page; ``found`` is R4's residency."""
    for rule in _OF_THE_CODE:
        refusal = rule(record, site)
        if refusal is not None:
            return refusal
    refusal = _resident(found)
    if refusal is not None:
        return refusal
    for rule in _AFTER_R4:
        refusal = rule(record, site)
        if refusal is not None:
            return refusal
    return None
