"""How code objects are launched: the steps of a call, and the same with K cut into slices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class Step:
    """One launch of an entry of a code object. ``grid`` are expressions over the sizes.

    ``bindings`` are arguments by name, or ``workspace``. ``constants`` give the i32 values in
    order: sizes by name, strides as ``<argument>.<axis>``, ``multiprocessors``, or an expression
    over the sizes. A grid may name the multiprocessors too.
    ``code_object`` is the file that holds the entry where that is not the record's own.
    ``overlaps`` says that the kernel waits itself for the launch before it in the stream, so that
    it may be started before that one has ended.
    """

    entry: str
    grid: tuple[str, ...] | None
    block: tuple[int, ...] | None
    dynamic_shared_bytes: int
    bindings: tuple[str, ...]
    constants: tuple[str, ...]
    code_object: str | None = None
    overlaps: bool = False


@dataclass(frozen=True, kw_only=True)
class Launch(Step):
    """How the code object is launched; ``then`` are the steps that follow it in the same call."""

    then: tuple[Step, ...] = ()

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every launch of a call, in order."""
        return (self, *self.then)

    @cached_property
    def extents(self) -> tuple[tuple[tuple[int, ...] | None, tuple[str, ...] | None], ...]:
        """Block and grid of each step."""
        return tuple((step.block, step.grid) for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class SplitK:
    """The same candidate with K cut into ``splits`` slices that separate workgroups multiply.

    Each slice holds whole blocks of ``k_block``, the last one the rest too; its partial sums go to
    the workspace, and a step that follows adds them up in order, so that results are the same
    every time. ``workspace`` (bytes) and the grids and constants of ``launch`` are expressions over
    the sizes and ``splits``. The module exports it as ``<kernel>.split``.
    """

    k_block: int
    max_splits: int = 16
    workspace: str
    launch: Launch
