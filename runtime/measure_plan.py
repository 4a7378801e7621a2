"""What a trial of a family needs to know of the device: floors of time, sets of buffers."""

from __future__ import annotations

from collections.abc import Iterable

from dialects.errors import UsageError
from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem

from .ceilings import least_microseconds, moved_bytes
from .timer import sets_for_cold

MOST_SETS = 256  # more would take longer to make than to time


def floors(
    facts: DeviceFacts,
    kernel: KernelEntry,
    records: Iterable[Record],
    problem: Problem,
    sets: int,
) -> dict[str, float]:
    """The least microseconds of each candidate by full name, where a ceiling is known."""
    found = {r.full_name: least_microseconds(facts, kernel, r, problem, sets) for r in records}
    return {name: least for name, least in found.items() if least is not None}


def cold_sets(facts: DeviceFacts, kernel: KernelEntry, problem: Problem) -> int:
    """How many sets of operands make a launch find none of its own in the L2 cache.

    Raises:
        UsageError: the size of that cache is not known, or the operands are too small for it.
    """
    if facts.l2_bytes is None:
        raise UsageError(
            "cold caches need the size of the L2 cache, which the driver does not report: "
            "cache='hot' works"
        )
    sets = sets_for_cold(moved_bytes(kernel, problem), facts.l2_bytes)
    if sets > MOST_SETS:
        raise UsageError(
            f"kernel '{kernel.kernel}' at {problem.text}: cold caches need {sets} sets of "
            f"operands > {MOST_SETS}: cache='hot' works"
        )
    return sets
