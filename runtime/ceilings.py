"""The least time that a launch can take: its bytes over the bus, its multiply-adds at full rate.

A harness once implied half again the peak of its device; a reading below this floor is refused.
Where the driver reports no clocks, or an artifact's manifest no rate, there is no floor, and the
reader is told so.
"""

from __future__ import annotations

from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem
from dialects.rules import float_operations

from .arrays import dense_layouts, span_bytes

TRANSFERS_A_CLOCK = 2  # of a memory bus: double data rate, on the clock that drivers report
HEADROOM = 1.25  # boost was seen to exceed the reported clock by up to 23 % (origin section 10)


def bytes_a_second(facts: DeviceFacts) -> float | None:
    """Bandwidth of the device's memory, from bus width and clock."""
    if facts.memory_bus_bits is None or facts.memory_clock_khz is None:
        return None
    return facts.memory_bus_bits / 8 * facts.memory_clock_khz * 1e3 * TRANSFERS_A_CLOCK


def macs_a_second(facts: DeviceFacts, record: Record) -> float | None:
    """Multiply-adds of the record's fastest operand group, from multiprocessors and clock.

    The rate is that of the instruction set that the code was built for: a later part, which runs
    the code too, may be faster.
    """
    rates = [group.macs_per_clock for group in record.groups]
    if not rates or facts.multiprocessors is None or facts.clock_khz is None:
        return None
    if not _built_for(facts, record):
        return None
    known = [rate for rate in rates if rate is not None]
    if len(known) < len(rates):
        return None
    return max(known) * facts.multiprocessors * facts.clock_khz * 1e3


def _built_for(facts: DeviceFacts, record: Record) -> bool:
    """Whether the code is for the device's own instruction set, in whichever variant of it.

    Variants differ by a letter at the end. Where either is not named there is nothing to compare.
    """
    built = record.identity.isa or record.identity.target.partition(":")[2]
    if not built or not facts.isa:
        return True
    short, long = sorted((built, facts.isa), key=len)
    return long == short or (long[:-1] == short and long[-1].isalpha())


def known_ceilings(facts: DeviceFacts, record: Record) -> str:
    """What a time of the record is held against: ``bandwidth``, ``arithmetic``, both or neither.

    Both are ``arithmetic, bandwidth``; ``unknown`` is for neither.
    """
    arithmetic = macs_a_second(facts, record) is not None
    bandwidth = bytes_a_second(facts) is not None and facts.l2_bytes is not None
    known = [n for n, k in (("arithmetic", arithmetic), ("bandwidth", bandwidth)) if k]
    return ", ".join(known) or "unknown"


def moved_bytes(kernel: KernelEntry, problem: Problem) -> int:
    """Bytes of every operand once: the least that a launch moves when nothing is cached."""
    return sum(span_bytes(layout) for layout in dense_layouts(kernel, problem))


def least_microseconds(
    facts: DeviceFacts, kernel: KernelEntry, record: Record, problem: Problem, sets: int = 1
) -> float | None:
    """The floor of one launch in microseconds, or None where no ceiling is known.

    ``sets`` of buffers rotate. What of them fits in the L2 cache may come from there.
    """
    floors: list[float] = []
    macs = macs_a_second(facts, record)
    if macs is not None:
        products = len(kernel.contraction.products)
        floors.append(products * float_operations(problem) / 2 / macs)
    rate = bytes_a_second(facts)
    if rate is not None and facts.l2_bytes is not None:
        needed = moved_bytes(kernel, problem)
        uncached = max(0.0, 1 - facts.l2_bytes / max(needed * sets, 1))
        floors.append(needed * uncached / rate)
    return max(floors) / HEADROOM * 1e6 if floors else None
