"""The software tier of a tile: each lane of the wave holds its share of the elements.

Right on any wave width: a lane knows the row and column of each element it holds, nothing assumes
that a lane stays in one column, and the inner product passes through workgroup memory, without
shuffles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ir import mlir
from ..matrix_tiles import (
    COMPUTE,
    CONSTANT,
    ELEMENTWISE,
    LOAD,
    MatrixType,
    elementwise_kind,
    tile_type,
)
from .epilogue import convert, sum_type
from .fragment_share import Slot
from .interface import storage_type
from .kernel_text import Index, KernelText
from .software_kernel import multiply_add

if TYPE_CHECKING:
    from .fragment_kernel import FragmentKernel

_BINARY = {
    "addf": "addf",
    "subf": "subf",
    "mulf": "mulf",
    "divf": "divf",
    "maxf": "maximumf",
    "minf": "minimumf",
    "addi": "addi",
    "subi": "subi",
    "muli": "muli",
    "divs": "divsi",
    "divu": "divui",
}


class SoftwareTiles:
    """Writes the tile ops of software groups; a tile is as many values as a lane has turns."""

    def __init__(self, kernel: FragmentKernel) -> None:
        self.kernel = kernel

    def types(self, value: mlir.Value) -> list[str]:
        """One element a turn."""
        type_ = tile_type(value)
        return [storage_type(type_.element)] * len(self.kernel.lanes.turns(type_))

    def write(self, op: mlir.Operation) -> None:
        """One op on tiles."""
        if op.name == LOAD:
            self._load(op)
        elif op.name == CONSTANT:
            type_ = tile_type(op.results[0])
            name = self.kernel.name(op.operands[0])
            self._set(op, [name for _ in self.kernel.lanes.turns(type_)])
        elif op.name == COMPUTE:
            self._compute(op)
        elif op.name == ELEMENTWISE:
            self._elementwise(op)
        else:
            self._store(op)

    def _set(self, op: mlir.Operation, names: list[str]) -> None:
        self.kernel.names[op.results[0]] = tuple(names)

    def _load(self, op: mlir.Operation) -> None:
        kernel, type_ = self.kernel, tile_type(op.results[0])
        places = (kernel.lanes.place(type_, turn) for turn in kernel.lanes.turns(type_))
        self._set(op, [kernel.read(op, p.row, p.column) for p in places])

    def _store(self, op: mlir.Operation) -> None:
        kernel = self.kernel
        tile, type_ = op.operands[0], tile_type(op.operands[0])
        for turn, value in enumerate(kernel.names[tile]):
            place = kernel.lanes.place(type_, turn)
            kernel.write(op, value, place.row, place.column, place.inside)

    def _elementwise(self, op: mlir.Operation) -> None:
        kind, operands = elementwise_kind(op), [self.kernel.names[o] for o in op.operands]
        have, want = (storage_type(tile_type(v).element) for v in (op.operands[0], op.results[0]))
        ir = self.kernel.ir
        self._set(op, [elementwise(ir, kind, v, have, want) for v in zip(*operands, strict=True)])

    def _compute(self, op: mlir.Operation) -> None:
        """A and B to workgroup memory, a loop over k on this lane's elements, and room again."""
        kernel, ir = self.kernel, self.kernel.ir
        a, b, c = op.operands
        left, right, acc = tile_type(a), tile_type(b), tile_type(c)
        wide = sum_type(acc.element)
        slots = [self._put(value) for value in (a, b)]
        kernel.barrier()
        start = [convert(ir, v, acc.element, wide) for v in kernel.names[c]]

        def step(k: str, sums: list[str]) -> list[str]:
            fetched: dict[tuple[int, Index], str] = {}

            def factor(which: int, type_: MatrixType, row: Index, column: Index) -> str:
                key = (which, (row, column)[which])  # the other index is k for all
                if key not in fetched:
                    at = slots[which].at(ir, row, column)
                    line = f"memref.load {slots[which].array}[{at}]"
                    raw = ir.value(f"{line} : {slots[which].kind}")
                    fetched[key] = convert(ir, raw, type_.element, wide)
                return fetched[key]

            result = []
            for turn, old in enumerate(sums):
                place = kernel.lanes.place(acc, turn)
                x = factor(0, left, place.row, k)
                y = factor(1, right, k, place.column)
                result.append(multiply_add(ir, x, y, old, wide))
            return result

        sums = ir.carried_loop(0, left.columns, 1, start, storage_type(wide), step)
        kernel.barrier()
        kernel.slots.release()
        self._set(op, [convert(ir, v, wide, acc.element) for v in sums])

    def _put(self, value: mlir.Value) -> Slot:
        """Every lane's share of a tile to the wave's slot, row-major."""
        kernel, ir, type_ = self.kernel, self.kernel.ir, tile_type(value)
        slot = kernel.slots.take(type_, kernel.lanes.index)
        for turn, element in enumerate(kernel.names[value]):
            place = kernel.lanes.place(type_, turn)
            at = slot.at(ir, place.row, place.column)
            # lanes without an element of their own repeat the last one, whose value they hold
            ir.emit(f"memref.store {element}, {slot.array}[{at}] : {slot.kind}")
        return slot


def elementwise(ir: KernelText, kind: str, values: tuple[str, ...], have: str, want: str) -> str:
    """One elementwise op on scalars or vectors of the MLIR type ``have``."""
    if kind in _BINARY:
        return ir.value(f"arith.{_BINARY[kind]} {values[0]}, {values[1]} : {have}")
    if kind == "negatef":
        return ir.value(f"arith.negf {values[0]} : {have}")
    if kind == "negates":
        return ir.value(f"arith.subi {ir.constant(0, have)}, {values[0]} : {have}")
    return ir.value(f"arith.extf {values[0]} : {have} to {want}")
