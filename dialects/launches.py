"""Launch sites and what they pin: the largest block that any of them asks for (seed section 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, kw_only=True)
class LaunchSite:
    """One place that launches a kernel.

    ``block`` is None where it is no constant, empty where the kernel's body chooses it.
    """

    kernel: str
    where: str
    block: tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class LaunchPin:
    """What all sites of one kernel say together.

    ``unbounded`` are the places whose block is no constant. ``threads`` is the largest block in
    threads, None as soon as one site is unbounded; ``block`` is the exact triple when every site
    has the same.
    """

    sites: int = 0
    unbounded: tuple[str, ...] = ()
    threads: int | None = None
    block: tuple[int, ...] | None = None


def pin_launches(sites: Sequence[LaunchSite]) -> LaunchPin:
    """The pin of one kernel's sites; any site whose block is no constant removes the bound."""
    unbounded = tuple(s.where for s in sites if s.block is None)
    blocks = [s.block for s in sites if s.block]
    if unbounded or not blocks:
        return LaunchPin(sites=len(sites), unbounded=unbounded)
    return LaunchPin(
        sites=len(sites),
        threads=max(prod(b) for b in blocks),
        block=blocks[0] if len(set(blocks)) == 1 else None,
    )
