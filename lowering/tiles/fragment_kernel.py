"""Rewrites a kernel in cooperative-matrix IR for a GPU: its loops stay, its tiles become ours.

Loads, products, stores, constants and elementwise ops of tiles are written by the tier of their
operand group; :mod:`.fragment_author` copies the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dialects.operands import OperandGroup

from ..coop_source import CoopSource
from ..ir import mlir, operations
from ..matrix_tiles import matrix_type
from ..target import Target
from .fragment_amd import AmdTiles
from .fragment_author import AuthorKernel
from .fragment_native import NativeTiles
from .fragment_share import Lanes, Slots
from .fragment_software import SoftwareTiles
from .kernel_text import Index

_PURE = ("arith.", "memref.dim", "gpu.block", "gpu.thread_id", "gpu.grid_dim")


class FragmentKernel(AuthorKernel):
    """Emits the device function; ``groups`` says how each group's tiles are made.

    ``sizes`` are those of the slots.
    """

    def __init__(
        self,
        source: CoopSource,
        groups: Sequence[OperandGroup],
        *,
        target: Target,
        waves: int,
        wave: int,
        layout: str,
        sizes: Mapping[str, int],
    ) -> None:
        super().__init__(source, waves=waves, wave=wave, layout=layout)
        self.groups, self.target = groups, target
        types = (matrix_type(v.type) for op in operations(source.function) for v in op.results)
        self.lanes = Lanes(self.ir, waves, wave, (t.columns for t in types if t is not None))
        self.slots = Slots(self.ir, waves, sizes)
        self.software = SoftwareTiles(self)
        self.native = AmdTiles(self) if target.backend == "rocm" else NativeTiles(self)

    @property
    def thread(self) -> Index:
        return self.lanes.thread

    @property
    def lane(self) -> Index:
        return self.lanes.lane

    @property
    def subgroup(self) -> Index:
        return self.lanes.index

    def barrier(self) -> None:
        self.ir.emit("gpu.barrier")

    def _op(self, op: mlir.Operation) -> None:
        if not self.native.waits(op) and not op.name.startswith(_PURE):
            self.native.flush()
        super()._op(op)

    def writer(self, tile: mlir.Value) -> SoftwareTiles | NativeTiles | AmdTiles:
        return self.native if self.is_native(tile) else self.software

    def is_native(self, value: mlir.Value) -> bool:
        """Whether a tile's group keeps its matrix instructions."""
        group = self.source.tiles.group_of(value)
        return group is not None and self.groups[group].tier == "native"
