"""Packing of the CPU body: a panel of A or B, from wherever its elements come."""

from __future__ import annotations

from typing import Protocol

from dialects.block_formats import Q8_0
from dialects.operands import Operand
from dialects.types import element_type

from .cpu_kernels import Panels
from .epilogue import convert, shaped
from .interface import STORAGE, KernelValues, storage_type
from .kernel_text import Index, KernelText

LINE = 16  # elements of a row copied at a time: a cache line of f32


class PanelSource(Protocol):
    """Where a panel's elements come from, in the compute type.

    ``indices`` are one for each of the operand's dims.
    """

    def element(self, indices: list[Index]) -> str:
        """One element."""
        ...

    def vector(self, indices: list[Index], lanes: int) -> str:
        """``lanes`` of them along the innermost axis, which never leave a block."""
        ...


class DensePanel:
    """A dense operand."""

    def __init__(
        self, ir: KernelText, values: KernelValues, operand: Operand, source: str, type_: str
    ) -> None:
        self._ir, self._values, self._operand = ir, values, operand
        self._source, self._type = source, type_
        self._stored = storage_type(operand.type)

    def element(self, indices: list[Index]) -> str:
        """Loaded and widened."""
        ir = self._ir
        position = ir.index(self._values.offset(ir, self._operand, indices))
        raw = ir.value(f"memref.load {self._source}[{position}] : {self._kind}")
        return convert(ir, raw, self._operand.type, self._type)

    def vector(self, indices: list[Index], lanes: int) -> str:
        """Loaded and widened."""
        ir = self._ir
        position = ir.index(self._values.offset(ir, self._operand, indices))
        kind = f"{self._kind}, {shaped(self._stored, lanes)}"
        raw = ir.value(f"vector.load {self._source}[{position}] : {kind}")
        return convert(ir, raw, self._operand.type, self._type, lanes)

    @property
    def _kind(self) -> str:
        return f"memref<?x{self._stored}, {STORAGE}>"


class Q8Panel:
    """GGUF q8_0 blocks along the innermost axis, byte by byte: raw bytes may lie anywhere."""

    _kind = f"memref<?xi8, {STORAGE}>"

    def __init__(
        self, ir: KernelText, values: KernelValues, operand: Operand, source: str, type_: str
    ) -> None:
        self._ir, self._values, self._operand = ir, values, operand
        self._source, self._type = source, type_

    def element(self, indices: list[Index]) -> str:
        """One quant times its block's scale."""
        ir = self._ir
        block, first = self._places(indices)
        raw = ir.value(f"memref.load {self._source}[{ir.index(first)}] : {self._kind}")
        value = ir.value(f"arith.sitofp {raw} : i8 to f32")
        value = ir.value(f"arith.mulf {value}, {self._scale(block)} : f32")
        value = convert(ir, value, "f32", self._operand.type)
        return convert(ir, value, self._operand.type, self._type)

    def vector(self, indices: list[Index], lanes: int) -> str:
        """Quants of one block times its scale, which is read once."""
        ir = self._ir
        block, first = self._places(indices)
        bytes_, wide = shaped("i8", lanes), shaped("f32", lanes)
        raw = ir.value(f"vector.load {self._source}[{ir.index(first)}] : {self._kind}, {bytes_}")
        value = ir.value(f"arith.sitofp {raw} : {bytes_} to {wide}")
        scale = ir.value(f"vector.broadcast {self._scale(block)} : f32 to {wide}")
        value = ir.value(f"arith.mulf {value}, {scale} : {wide}")
        value = convert(ir, value, "f32", self._operand.type, lanes)
        return convert(ir, value, self._operand.type, self._type, lanes)

    def _places(self, indices: list[Index]) -> tuple[Index, Index]:
        """Bytes where the element's block and its quant start."""
        ir, k = self._ir, indices[-1]
        start = ir.mul(ir.div(k, Q8_0.elements), Q8_0.bytes)
        block = self._values.offset(ir, self._operand, [*indices[:-1], start])
        return block, ir.add(ir.add(block, 2), ir.rem(k, Q8_0.elements))

    def _scale(self, block: Index) -> str:
        ir = self._ir
        pair = "vector<2xi8>"
        raw = ir.value(f"vector.load {self._source}[{ir.index(block)}] : {self._kind}, {pair}")
        half = ir.value(f"vector.bitcast {raw} : {pair} to vector<1xf16>")
        one = ir.value(f"vector.extract {half}[0] : f16 from vector<1xf16>")
        return ir.value(f"arith.extf {one} : f16 to f32")


class PanelCopy:
    """Copies a panel, column by column (one k each), into the type that products are summed in."""

    def __init__(
        self,
        panels: Panels,
        ir: KernelText,
        values: KernelValues,
        operand: Operand,
        tile: int,
        batch: str,
        origin: Index,
        source: str,
        packed: str,
    ) -> None:
        self.ir, self.operand, self.tile = ir, operand, tile
        self.batch, self.origin, self.packed = batch, origin, packed
        self.mlir = element_type(panels.type).mlir
        self.k_inner = operand.dims[-1] == panels.contraction.k
        kind = DensePanel if operand.source is None else Q8Panel
        self.source: PanelSource = kind(ir, values, operand, source, panels.type)

    def _indices(self, k: Index, row: Index) -> list[Index]:
        outer = self.ir.add(self.origin, row)
        indices = [outer, k] if self.k_inner else [k, outer]
        return [self.batch, *indices] if len(self.operand.dims) == 3 else indices

    def _put(self, value: str, slot: Index) -> None:
        kind = f"memref<?x{self.mlir}, {STORAGE}>"
        self.ir.emit(f"memref.store {value}, {self.packed}[{self.ir.index(slot)}] : {kind}")

    def full(self, k_size: str, base: Index) -> None:
        """A panel whose rows are all inside."""
        ir = self.ir
        if not self.k_inner:
            with ir.loop(0, k_size, 1, "k") as k:
                value = self.source.vector(self._indices(k, 0), self.tile)
                kind = f"memref<?x{self.mlir}, {STORAGE}>, {shaped(self.mlir, self.tile)}"
                slot = ir.index(ir.add(base, ir.mul(k, self.tile)))
                ir.emit(f"vector.store {value}, {self.packed}[{slot}] : {kind}")
            return
        main = ir.mul(ir.div(k_size, LINE), LINE)
        with ir.loop(0, main, LINE, "k") as k:
            self._transpose(k, ir.add(base, ir.mul(k, self.tile)))
        with ir.loop(main, k_size, 1, "k") as k:
            slot = ir.add(base, ir.mul(k, self.tile))
            for row in range(self.tile):
                self._put(self.source.element(self._indices(k, row)), ir.add(slot, row))

    def edge(self, k_size: str, base: Index, left: Index) -> None:
        """The last panel, of which only ``left`` rows are inside."""
        with self.ir.loop(0, k_size, 1, "k") as k:
            self._edge_column(k, self.ir.add(base, self.ir.mul(k, self.tile)), left)

    def _transpose(self, k: str, slot: Index) -> None:
        """LINE columns of every row: each cache line of the source is visited once, whole.

        Column by column, rows a power of two apart would fall into one set of the cache and evict
        each other (14 rows of 4 KiB cost six times as much).
        """
        ir = self.ir
        for row in range(self.tile):
            values = self.source.vector(self._indices(k, row), LINE)
            for step in range(LINE):
                one = ir.value(
                    f"vector.extract {values}[{step}] : {self.mlir} from {shaped(self.mlir, LINE)}"
                )
                self._put(one, ir.add(slot, step * self.tile + row))

    def _edge_column(self, k: str, slot: Index, left: Index) -> None:
        """Rows beyond ``left`` are zero; their addresses are clamped to the first one."""
        ir = self.ir
        with ir.loop(0, self.tile, 1, "row") as row:
            inside = ir.less(row, left)
            safe = ir.select(inside, row, ir.index(0), "index")
            value = self.source.element(self._indices(k, safe))
            value = ir.select(inside, value, ir.constant(0, self.mlir), self.mlir)
            self._put(value, ir.add(slot, row))
