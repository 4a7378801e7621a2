"""Launches that overlap: a kernel starts before the one before it in the stream has ended.

It waits for that one itself, after what touches no memory, and lets the next one start likewise as
soon as all of its own workgroups run (PTX ISA, griddepcontrol). Launched in the plain way, it finds
nothing to wait for.
"""

from __future__ import annotations

from ..target import Target
from .ptx_text import PtxText

SINCE = 90  # the compute capability
PTX_VERSION = (7, 8)


def can_overlap(target: Target) -> bool:
    """Whether the target has the instructions."""
    return (target.compute_capability or 0) >= SINCE


def let_next_start(ir: PtxText) -> None:
    """The next kernel in the stream may take the room that this one leaves."""
    ir.asm("griddepcontrol.launch_dependents;")


def await_previous(ir: PtxText) -> None:
    """Until the kernel before this one has ended; no memory may be touched before."""
    ir.asm("griddepcontrol.wait;")
