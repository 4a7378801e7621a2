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

    A thread count above the per-block maximum leaves nothing resident.
    """
    budgets: list[Residency] = []

    def add(limiter: str, need: int | None, limit: int | None) -> None:
        if need and limit is not None:
            budgets.append(Residency(groups=limit // need, limiter=limiter, need=need, limit=limit))

    per_block = facts.max_threads_per_block
    if usage.threads and per_block is not None and usage.threads > per_block:
        return Residency(groups=0, limiter="threads per block", need=usage.threads, limit=per_block)
    add("threads", usage.threads, facts.threads_per_multiprocessor)
    if usage.threads and usage.registers:
        add("registers", usage.threads * usage.registers, facts.registers_per_multiprocessor)
    if usage.shared_bytes:
        reserved = facts.shared_bytes_reserved_per_block or 0
        add("shared", usage.shared_bytes + reserved, facts.shared_bytes_per_multiprocessor)
    if facts.blocks_per_multiprocessor is not None and budgets:
        add("blocks", 1, facts.blocks_per_multiprocessor)
    return min(budgets, key=lambda b: b.groups) if budgets else None


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
