"""The native tier of a tile: the op stays, and what it reads or writes is in workgroup memory.

A matrix load or store takes a row length that is known when compiling, and rows of an argument are
as far apart as the caller says. So a tile of an argument passes through a slot of its wave, which
also makes edges right: the copy is predicated. Tiles of the author's own workgroup memory are
loaded and stored as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..coop_source import access_of
from ..ir import mlir
from ..matrix_tiles import LOAD, STORE
from .fragment_share import Slot

if TYPE_CHECKING:
    from .fragment_kernel import FragmentKernel


class NativeTiles:
    """Writes the tile ops of native groups.

    Loads that follow each other share their barriers: their copies are written at once, the matrix
    loads when the first other op comes (:meth:`flush`).
    """

    def __init__(self, kernel: FragmentKernel) -> None:
        self.kernel = kernel
        self._pending: list[tuple[mlir.Value, Slot]] = []

    def waits(self, op: mlir.Operation) -> bool:
        """Whether the op is a load that joins those that wait."""
        return op.name == LOAD and self._is_argument(op) and self.kernel.is_native(op.results[0])

    def types(self, value: mlir.Value) -> list[str]:
        """The author's."""
        return [str(value.type)]

    def write(self, op: mlir.Operation) -> None:
        """One op on tiles."""
        if op.name == LOAD and self._is_argument(op):
            self._fetch(op)
        elif op.name == STORE and self._is_argument(op):
            self._store(op)
        else:
            self.kernel.copy(op)

    def flush(self) -> None:
        """The matrix loads that wait, and their slots free again."""
        if not self._pending:
            return
        self.kernel.barrier()
        for tile, slot in self._pending:
            self.kernel.names[tile] = (self.kernel.ir.value(self._load_text(tile, slot)),)
        self.kernel.barrier()
        self.kernel.slots.release()
        self._pending = []

    def _is_argument(self, op: mlir.Operation) -> bool:
        return access_of(op)[1] in self.kernel.source.buffers

    def _load_text(self, tile: mlir.Value, slot: Slot) -> str:
        ir = self.kernel.ir
        return (
            f'"{LOAD}"({slot.array}, {ir.index(slot.start)})'
            f" <{{leadDimension = {slot.pitch} : index}}> : ({slot.kind}, index) -> {tile.type}"
        )

    def _fetch(self, op: mlir.Operation) -> None:
        """The wave copies the tile to its slot, turned as the tile wants it."""
        kernel, ir = self.kernel, self.kernel.ir
        type_ = access_of(op)[0]
        slot = kernel.slots.take(type_, kernel.lanes.index)
        for turn in kernel.lanes.turns(type_):
            place = kernel.lanes.place(type_, turn)
            value = kernel.read(op, place.row, place.column)
            at = slot.at(ir, place.row, place.column)
            ir.emit(f"memref.store {value}, {slot.array}[{at}] : {slot.kind}")
        self._pending.append((op.results[0], slot))

    def _store(self, op: mlir.Operation) -> None:
        kernel, ir = self.kernel, self.kernel.ir
        type_ = access_of(op)[0]
        tile = op.operands[0]
        slot = kernel.slots.take(type_, kernel.lanes.index)
        ir.emit(
            f'"{STORE}"({kernel.name(tile)}, {slot.array}, {ir.index(slot.start)})'
            f" <{{leadDimension = {slot.pitch} : index}}>"
            f" : ({tile.type}, {slot.kind}, index) -> ()"
        )
        kernel.barrier()
        for turn in kernel.lanes.turns(type_):
            place = kernel.lanes.place(type_, turn)
            at = slot.at(ir, place.row, place.column)
            value = ir.value(f"memref.load {slot.array}[{at}] : {slot.kind}")
            kernel.write(op, value, place.row, place.column, place.inside)
        kernel.barrier()
        kernel.slots.release()
