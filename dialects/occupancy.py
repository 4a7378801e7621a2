"""Occupancy: how many workgroups are resident on one multiprocessor, and what limits them."""

from __future__ import annotations

from dataclasses import dataclass

from .facts import DeviceFacts


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What one workgroup uses; None where the back end does not say."""

    threads: int | None = None
    registers: int | None = None  # per thread
    shared_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Residency:
    """Resident workgroups per multiprocessor, and the resource that binds them.

    ``need`` and ``limit`` are of that resource: what one workgroup takes, what there is.
    """

    groups: int
    limiter: str
    need: int
    limit: int


def residency(usage: Usage, facts: DeviceFacts) -> Residency | None:
    """The least over every budget that is known (origin: rule R4); None when none is.

    A thread count above the per-block maximum leaves nothing resident. A device answers for each
    usage once: neither changes from call to call.
    """
    known = facts.residencies
    try:
        return known[usage]
    except KeyError:
        found = known[usage] = _residency(usage, facts)
        return found


def _residency(usage: Usage, facts: DeviceFacts) -> Residency | None:
    threads, per_block = usage.threads, facts.max_threads_per_block
    if threads and per_block is not None and threads > per_block:
        return Residency(groups=0, limiter="threads per block", need=threads, limit=per_block)
    budgets: list[tuple[int, int, str, int, int]] = []
    if threads and facts.threads_per_multiprocessor is not None:
        limit = facts.threads_per_multiprocessor
        budgets.append((limit // threads, 0, "threads", threads, limit))
    if threads and usage.registers and facts.registers_per_multiprocessor is not None:
        need, limit = threads * usage.registers, facts.registers_per_multiprocessor
        budgets.append((limit // need, 1, "registers", need, limit))
    if usage.shared_bytes and facts.shared_bytes_per_multiprocessor is not None:
        need = usage.shared_bytes + (facts.shared_bytes_reserved_per_block or 0)
        limit = facts.shared_bytes_per_multiprocessor
        budgets.append((limit // need, 2, "shared", need, limit))
    if facts.blocks_per_multiprocessor is not None and budgets:
        limit = facts.blocks_per_multiprocessor
        budgets.append((limit, 3, "blocks", 1, limit))
    if not budgets:
        return None
    groups, _, limiter, need, limit = min(budgets)  # of equal ones the first
    return Residency(groups=groups, limiter=limiter, need=need, limit=limit)


def feasible_blocks(usage: Usage, facts: DeviceFacts) -> tuple[int, ...] | None:
    """Block sizes in threads that keep at least one group resident, most resident threads first.

    Whole waves only; ties go to the larger block. None when the wave or the limits are unknown.
    """
    if not facts.wave_widths or facts.max_threads_per_block is None:
        return None
    wave = min(facts.wave_widths)
    scored: list[tuple[int, int]] = []
    for threads in range(wave, facts.max_threads_per_block + 1, wave):
        if threads & (threads - 1):
            continue
        resident = residency(
            Usage(threads=threads, registers=usage.registers, shared_bytes=usage.shared_bytes),
            facts,
        )
        if resident is None:
            return None
        if resident.groups:
            scored.append((resident.groups * threads, threads))
    return tuple(threads for _, threads in sorted(scored, reverse=True))
