"""Tiles that one lane holds whole, a vector for each row: the software tier on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..coop_source import CoopSource, access_of
from ..ir import mlir, operations
from ..matrix_tiles import (
    COMPUTE,
    CONSTANT,
    ELEMENTWISE,
    LOAD,
    STORE,
    MatrixType,
    elementwise_kind,
    tile_type,
)
from .epilogue import convert, shaped, sum_type
from .fragment_share import allocation
from .fragment_software import elementwise
from .interface import storage_type
from .kernel_text import Index
from .software_kernel import multiply_add

if TYPE_CHECKING:
    from .fragment_cpu import CpuFragmentKernel

ALIGNMENT = 64  # bytes of an array on the stack: the widest vector
Array = tuple[str, str]  # what waits there (an edge, or a factor by its side), its element type


class RowTiles:
    """Writes the tile ops; a tile is as many values as it has rows."""

    def __init__(self, kernel: CpuFragmentKernel) -> None:
        self.kernel, self.ir = kernel, kernel.ir
        self._kinds = {
            array: f"memref<{count}x{storage_type(array[1])}>"
            for array, count in private_arrays(kernel.source).items()
        }
        self._arrays = {a: self.ir.value(allocated(k), a[0]) for a, k in self._kinds.items()}

    def types(self, value: mlir.Value) -> list[str]:
        """One vector a row."""
        type_ = tile_type(value)
        return [_row(type_)] * type_.rows

    def write(self, op: mlir.Operation) -> None:
        """One op on tiles."""
        if op.name == STORE:
            self._store(op)
            return
        make = {
            LOAD: self._load,
            CONSTANT: self._constant,
            COMPUTE: self._compute,
            ELEMENTWISE: self._elementwise,
        }
        self.kernel.names[op.results[0]] = tuple(make[op.name](op))

    def _constant(self, op: mlir.Operation) -> list[str]:
        type_ = tile_type(op.results[0])
        value, stored = self.kernel.name(op.operands[0]), storage_type(type_.element)
        return [self.ir.value(f"vector.broadcast {value} : {stored} to {_row(type_)}")] * type_.rows

    def _elementwise(self, op: mlir.Operation) -> list[str]:
        kind, operands = elementwise_kind(op), [self.kernel.names[o] for o in op.operands]
        have, want = (_row(tile_type(v)) for v in (op.operands[0], op.results[0]))
        return [elementwise(self.ir, kind, v, have, want) for v in zip(*operands, strict=True)]

    # Memory: whole rows where the tile lies inside, else element by element by way of an array.

    def _load(self, op: mlir.Operation) -> list[str]:
        ir, (type_, _, _, transposed) = self.ir, access_of(op)
        if transposed:
            return self._gathered(op, type_)
        whole = self._inside(op, type_)
        if whole is None:
            return self._loaded(op, type_)
        name, types = ir.name("rows"), ", ".join([_row(type_)] * type_.rows)
        with ir.block(f"{name}:{type_.rows} = scf.if {whole} -> ({types}) {{"):
            ir.emit(f"scf.yield {', '.join(self._loaded(op, type_))} : {types}")
            ir.otherwise()
            ir.emit(f"scf.yield {', '.join(self._gathered(op, type_))} : {types}")
        return [f"{name}#{i}" for i in range(type_.rows)]

    def _inside(self, op: mlir.Operation, type_: MatrixType) -> str | None:
        """Whether all of a tile lies within an argument; None for memory of the author's."""
        return self.kernel.within(op, self.kernel.place(op, type_.rows - 1, type_.columns - 1))

    def _spot(self, op: mlir.Operation, row: int) -> str:
        """``%memory[%i] : memref<...>``, where a row starts."""
        kernel = self.kernel
        at, kind = kernel.spot(op, kernel.place(op, row, 0))
        return f"{kernel.name(access_of(op)[1])}[{at}] : {kind}"

    def _loaded(self, op: mlir.Operation, type_: MatrixType) -> list[str]:
        return [
            self.ir.value(f"vector.load {self._spot(op, row)}, {_row(type_)}")
            for row in range(type_.rows)
        ]

    def _gathered(self, op: mlir.Operation, type_: MatrixType) -> list[str]:
        ir, array = self.ir, ("edge", type_.element)
        with ir.loop(0, type_.rows, 1) as row, ir.loop(0, type_.columns, 1) as column:
            value = self.kernel.read(op, row, column)
            at = ir.index(ir.add(ir.mul(row, type_.columns), column))
            ir.emit(f"memref.store {value}, {self._arrays[array]}[{at}] : {self._kinds[array]}")
        return [self._row_of(array, type_, i) for i in range(type_.rows)]

    def _store(self, op: mlir.Operation) -> None:
        ir, (type_, _, _, transposed) = self.ir, access_of(op)
        whole = None if transposed else self._inside(op, type_)
        if transposed:
            self._scatter(op, type_)
        elif whole is None:
            self._stored(op, type_)
        else:
            with ir.when(whole):
                self._stored(op, type_)
                ir.otherwise()
                self._scatter(op, type_)

    def _stored(self, op: mlir.Operation, type_: MatrixType) -> None:
        for row, value in enumerate(self.kernel.names[op.operands[0]]):
            self.ir.emit(f"vector.store {value}, {self._spot(op, row)}, {_row(type_)}")

    def _scatter(self, op: mlir.Operation, type_: MatrixType) -> None:
        ir, array = self.ir, ("edge", type_.element)
        self._put(array, type_, self.kernel.names[op.operands[0]])
        with ir.loop(0, type_.rows, 1) as row, ir.loop(0, type_.columns, 1) as column:
            at = ir.index(ir.add(ir.mul(row, type_.columns), column))
            value = ir.value(f"memref.load {self._arrays[array]}[{at}] : {self._kinds[array]}")
            self.kernel.write(op, value, row, column, None)

    # Arrays of the worker's own.

    def _at(self, array: Array, type_: MatrixType, row: Index, column: Index = 0) -> str:
        at = self.ir.index(self.ir.add(self.ir.mul(row, type_.columns), column))
        return f"{self._arrays[array]}[{at}] : {self._kinds[array]}"

    def _row_of(self, array: Array, type_: MatrixType, row: Index) -> str:
        vector = shaped(storage_type(array[1]), type_.columns)
        return self.ir.value(f"vector.load {self._at(array, type_, row)}, {vector}")

    def _put(self, array: Array, type_: MatrixType, rows: tuple[str, ...]) -> None:
        vector = shaped(storage_type(array[1]), type_.columns)
        for row, value in enumerate(rows):
            self.ir.emit(f"vector.store {value}, {self._at(array, type_, row)}, {vector}")

    def _compute(self, op: mlir.Operation) -> list[str]:
        """Both factors to arrays in the type of the sum, then a loop over k on all rows."""
        kernel, ir = self.kernel, self.ir
        left, right, acc = (tile_type(v) for v in op.operands)
        wide, lanes = sum_type(acc.element), acc.columns
        scalar, vector = storage_type(wide), shaped(storage_type(wide), acc.columns)
        for side, type_, value in zip(SIDES, (left, right), op.operands, strict=False):
            rows = (convert(ir, v, type_.element, wide, type_.columns) for v in kernel.names[value])
            self._put((side, wide), type_, tuple(rows))
        start = [convert(ir, v, acc.element, wide, lanes) for v in kernel.names[op.operands[2]]]

        def step(k: str, sums: list[str]) -> list[str]:
            y = self._row_of(("right", wide), right, k)
            result = []
            for row, old in enumerate(sums):
                x = ir.value(f"memref.load {self._at(('left', wide), left, row, k)}")
                x = ir.value(f"vector.broadcast {x} : {scalar} to {vector}")
                result.append(multiply_add(ir, x, y, old, wide, lanes))
            return result

        sums = ir.carried_loop(0, left.columns, 1, start, vector, step)
        return [convert(ir, v, wide, acc.element, lanes) for v in sums]


SIDES = ("left", "right")


def _row(type_: MatrixType) -> str:
    return shaped(storage_type(type_.element), type_.columns)


def allocated(kind: str) -> str:
    """An array of the worker's own, of that type."""
    return allocation(kind, "memref.alloca", ALIGNMENT)


def private_arrays(source: CoopSource) -> dict[Array, int]:
    """Elements of each array that tile ops need, beside the author's own."""
    needed: dict[Array, int] = {}

    def need(what: str, element: str, type_: MatrixType) -> None:
        needed[what, element] = max(needed.get((what, element), 0), type_.count)

    for op in operations(source.function):
        if op.name in (LOAD, STORE):
            type_, memory, _, transposed = access_of(op)
            if transposed or memory in source.buffers:
                need("edge", type_.element, type_)
        elif op.name == COMPUTE:
            left, right, acc = (tile_type(v) for v in op.operands)
            for side, type_ in zip(SIDES, (left, right), strict=True):
                need(side, sum_type(acc.element), type_)
    return needed
