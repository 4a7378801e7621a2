"""A kernel in cooperative-matrix IR on a CPU: one worker runs all waves of a workgroup.

A wave has one lane, which holds whole tiles (:mod:`.fragment_rows`). Waves that never wait for each
other run in a loop. Where the kernel has barriers, every op is written once for each wave, in the
order of the author's text: what stands before a barrier is done for all waves before what stands
after it. That is always possible, because barriers stand in uniform control flow alone.
"""

from __future__ import annotations

from ..coop_source import BARRIER, CoopSource
from ..ir import mlir, operations
from .fragment_author import AuthorKernel
from .fragment_rows import RowTiles, allocated
from .interface import SHARED
from .kernel_text import Index


class CpuFragmentKernel(AuthorKernel):
    """Emits the function of one workgroup of ``waves`` waves."""

    def __init__(self, source: CoopSource, *, waves: int, layout: str) -> None:
        super().__init__(source, waves=waves, wave=1, layout=layout)
        self._waves = waves
        self._subgroup: Index = 0
        for op in operations(source.function):
            if op.name == "memref.alloc":
                kind = self.spelled(str(op.results[0].type))
                self.names[op.results[0]] = (self.ir.value(allocated(kind), "shared"),)
        self._tiles = RowTiles(self)

    @property
    def thread(self) -> Index:
        return self._subgroup

    @property
    def lane(self) -> Index:
        return 0

    @property
    def subgroup(self) -> Index:
        return self._subgroup

    def text(self) -> str:
        if waits(self.source):
            self.contexts = [dict(self.names) for _ in range(self._waves)]
            self._block(self.body)
        else:
            with self.ir.loop(0, self._waves, 1, "wave") as wave:
                self._subgroup = wave
                self._block(self.body)
        self.ir.emit("return")
        return self.ir.text()

    def finish(self) -> None:
        """Nothing: other waves may follow."""

    def barrier(self) -> None:
        """Nothing: what stands before is done."""

    def writer(self, tile: mlir.Value) -> RowTiles:
        return self._tiles

    def spelled(self, text: str) -> str:
        """Workgroup memory is memory of the worker."""
        return text.replace(f", {SHARED}", "")

    def _op(self, op: mlir.Operation) -> None:
        every = self.contexts
        if len(every) == 1 or op.name == "scf.yield" or _waits(op):
            super()._op(op)
            return
        for wave, names in enumerate(every):
            self._subgroup, self.contexts = wave, [names]
            super()._op(op)
        self.contexts = every

    def _alloc(self, op: mlir.Operation) -> None:
        """All waves have the same arrays, made at the start."""


def waits(source: CoopSource) -> bool:
    """Whether waves of a kernel wait for each other."""
    return _waits(source.function)


def _waits(op: mlir.Operation) -> bool:
    return any(o.name == BARRIER for o in operations(op))
