"""The two kernels of the CPU body: packing a panel, and the register tile over packed panels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import apply_epilogue, compute_type, convert, shaped
from .interface import STORAGE, KernelValues, bind_buffer, storage_type
from .kernel_text import Index, KernelText
from .software import add

MAX_UNROLL = 8  # K steps written out in the inner loop; more only grows the code


@dataclass(frozen=True, kw_only=True)
class Panels:
    """How A and B are packed: A as [M/m0][K][m0], B as [N/n0][K][n0], in the compute type."""

    contraction: Contraction
    tile: Tile

    @property
    def type(self) -> str:
        """The element type of packed data and accumulators."""
        return compute_type(self.contraction)

    @property
    def mlir(self) -> str:
        """Its MLIR spelling."""
        return element_type(self.type).mlir

    def side(self, side: str) -> tuple[Operand, str, int]:
        """Operand, outer size and inner tile of side ``a`` or ``b``."""
        c, tile = self.contraction, self.tile
        return (c.a, c.m, tile.thread_m) if side == "a" else (c.b, c.n, tile.thread_n)

    def count(self, ir: KernelText, values: KernelValues, side: str) -> Index:
        """Elements of the packed operand, without the batch."""
        _, outer, tile = self.side(side)
        rows = ir.mul(ir.ceildiv(values[outer], tile), tile)
        return ir.mul(rows, values[self.contraction.k])

    def expression(self, side: str) -> str:
        """The same with the batch, as an expression over the sizes."""
        c = self.contraction
        _, outer, tile = self.side(side)
        batch = f"{c.batch} * " if c.batch else ""
        return f"{batch}ceildiv({outer}, {tile}) * {tile} * {c.k}"


class PanelCopy:
    """Copies one column (one k) of a panel, converted to the type that products are summed in."""

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
        self.ir, self.values, self.operand, self.tile = ir, values, operand, tile
        self.batch, self.origin, self.source, self.packed = batch, origin, source, packed
        self.type, self.mlir = panels.type, panels.mlir
        self.k_inner = operand.dims[-1] == panels.contraction.k
        self.stored = storage_type(operand.type)

    def _position(self, k: Index, row: Index) -> str:
        outer = self.ir.add(self.origin, row)
        indices = [outer, k] if self.k_inner else [k, outer]
        if len(self.operand.dims) == 3:
            indices = [self.batch, *indices]
        return self.ir.index(self.values.offset(self.ir, self.operand, indices))

    def _element(self, position: str) -> str:
        kind = f"memref<?x{self.stored}, {STORAGE}>"
        raw = self.ir.value(f"memref.load {self.source}[{position}] : {kind}")
        return convert(self.ir, raw, self.operand.type, self.type)

    def _put(self, value: str, slot: Index) -> None:
        kind = f"memref<?x{self.mlir}, {STORAGE}>"
        self.ir.emit(f"memref.store {value}, {self.packed}[{self.ir.index(slot)}] : {kind}")

    def full_column(self, k: str, slot: Index) -> None:
        """All rows are inside: one vector where they are contiguous, else a gather."""
        ir = self.ir
        if self.k_inner:
            for row in range(self.tile):
                self._put(self._element(self._position(k, row)), ir.add(slot, row))
            return
        kind = f"memref<?x{self.stored}, {STORAGE}>, {shaped(self.stored, self.tile)}"
        raw = ir.value(f"vector.load {self.source}[{self._position(k, 0)}] : {kind}")
        value = convert(ir, raw, self.operand.type, self.type, self.tile)
        kind = f"memref<?x{self.mlir}, {STORAGE}>, {shaped(self.mlir, self.tile)}"
        ir.emit(f"vector.store {value}, {self.packed}[{ir.index(slot)}] : {kind}")

    def edge_column(self, k: str, slot: Index, left: Index) -> None:
        """Rows beyond ``left`` are zero; their addresses are clamped to the first one."""
        ir = self.ir
        with ir.loop(0, self.tile, 1, "row") as row:
            inside = ir.less(row, left)
            safe = ir.select(inside, row, ir.index(0), "index")
            value = self._element(self._position(k, safe))
            value = ir.select(inside, value, ir.constant(0, self.mlir), self.mlir)
            self._put(value, ir.add(slot, row))


class Multiply:
    """The register-tile kernel: accumulators are thread_m vectors of thread_n."""

    def __init__(self, panels: Panels, ir: KernelText, values: KernelValues, layout: str) -> None:
        self.ir, self.values = ir, values
        self.contraction, self.tile = panels.contraction, panels.tile
        self.type, self.mlir = panels.type, panels.mlir
        self.lanes = self.tile.thread_n
        self.vector = shaped(self.mlir, self.lanes)
        c = self.contraction
        self.batch = ir.value("hal.interface.workgroup.id[2] : index")
        count_a = panels.count(ir, values, "a")
        count_b = panels.count(ir, values, "b")
        self.start_a = ir.mul(self.batch, count_a)
        self.start_b = ir.add(values["offset"], ir.mul(self.batch, count_b))

        def bind(binding: int, type_name: str, count: Index, read_only: bool = True) -> str:
            return bind_buffer(
                ir,
                layout=layout,
                binding=binding,
                type_name=type_name,
                count=count,
                read_only=read_only,
            )

        self.packed_a = bind(0, self.type, ir.greatest(ir.add(self.start_a, count_a), 1))
        self.packed_b = bind(1, self.type, ir.greatest(ir.add(self.start_b, count_b), 1))
        self.buffers = {
            o.name: bind(2 + i, o.type, values.span(ir, o)) for i, o in enumerate(c.extras)
        }
        self.result = bind(2 + len(c.extras), c.c.type, values.span(ir, c.c), read_only=False)

    def text(self) -> str:
        """The whole function body."""
        ir, tile = self.ir, self.tile
        column = ir.value("hal.interface.workgroup.id[0] : index")
        row = ir.value("hal.interface.workgroup.id[1] : index")
        col0, row0 = ir.mul(column, tile.n), ir.mul(row, tile.m)
        col_end = ir.least(ir.add(col0, tile.n), self.values[self.contraction.n])
        row_end = ir.least(ir.add(row0, tile.m), self.values[self.contraction.m])
        with (
            ir.loop(col0, col_end, tile.thread_n, "col") as col,
            ir.loop(row0, row_end, tile.thread_m, "row") as row_,
        ):
            self._tile(row_, col)
        ir.emit("return")
        return ir.text()

    def _tile(self, row: str, col: str) -> None:
        ir, tile = self.ir, self.tile
        k_size = self.values[self.contraction.k]
        base_a = ir.add(self.start_a, ir.mul(row, k_size))
        base_b = ir.add(self.start_b, ir.mul(col, k_size))
        unroll = min(tile.k, MAX_UNROLL)
        main = ir.mul(ir.div(k_size, unroll), unroll)
        zero = ir.constant(0, self.vector)

        def steps(count: int) -> Callable[[str, list[str]], list[str]]:
            def body(k: str, accumulators: list[str]) -> list[str]:
                for step in range(count):
                    accumulators = self._step(ir.add(k, step), base_a, base_b, accumulators)
                return accumulators

            return body

        values = ir.carried_loop(
            0, main, unroll, [zero] * tile.thread_m, self.vector, steps(unroll)
        )
        if unroll > 1:
            values = ir.carried_loop(main, k_size, 1, values, self.vector, steps(1))
        left = ir.sub(self.values[self.contraction.n], col)
        with ir.when(ir.less(left, tile.thread_n)):
            self._store_rows(values, row, col, left)
            ir.otherwise()
            self._store_rows(values, row, col, None)

    def _step(self, k: Index, base_a: Index, base_b: Index, accumulators: list[str]) -> list[str]:
        ir, tile = self.ir, self.tile
        kind = f"memref<?x{self.mlir}, {STORAGE}>"
        at_b = ir.index(ir.add(base_b, ir.mul(k, tile.thread_n)))
        b = ir.value(f"vector.load {self.packed_b}[{at_b}] : {kind}, {self.vector}")
        at_a = ir.add(base_a, ir.mul(k, tile.thread_m))
        result = []
        for i in range(tile.thread_m):
            a = ir.value(f"memref.load {self.packed_a}[{ir.index(ir.add(at_a, i))}] : {kind}")
            wide = ir.value(f"vector.broadcast {a} : {self.mlir} to {self.vector}")
            if element_type(self.type).kind == "float":
                text = f"vector.fma {wide}, {b}, {accumulators[i]} : {self.vector}"
                result.append(ir.value(text))
            else:
                product = ir.value(f"arith.muli {wide}, {b} : {self.vector}")
                result.append(add(ir, accumulators[i], product, self.type, self.lanes))
        return result

    def _store_rows(self, values: list[str], row: str, col: str, left: Index | None) -> None:
        ir = self.ir
        mask = None
        if left is not None:
            mask = ir.value(f"vector.create_mask {ir.index(left)} : vector<{self.lanes}xi1>")
        for i, value in enumerate(values):
            at = ir.add(row, i)
            with ir.when(ir.less(at, self.values[self.contraction.m])):
                self._store_row(value, at, col, mask)

    def _store_row(self, value: str, row: Index, col: str, mask: str | None) -> None:
        ir, c = self.ir, self.contraction
        where: dict[str, Index] = {c.m: row, c.n: col}
        if c.batch:
            where[c.batch] = self.batch

        def load(operand: Operand, wanted: str) -> str:
            stored = storage_type(operand.type)
            buffer = self.result if operand is c.c else self.buffers[operand.name]
            at = ir.index(self.values.offset(ir, operand, [where[d] for d in operand.dims]))
            flat = f"memref<?x{stored}, {STORAGE}>"
            if operand.dims[-1] != c.n:
                one = convert(
                    ir, ir.value(f"memref.load {buffer}[{at}] : {flat}"), operand.type, wanted
                )
                mlir = element_type(wanted).mlir
                return ir.value(f"vector.broadcast {one} : {mlir} to {shaped(mlir, self.lanes)}")
            wide = shaped(stored, self.lanes)
            if mask is None:
                raw = ir.value(f"vector.load {buffer}[{at}] : {flat}, {wide}")
            else:
                zero = ir.constant(0, wide)
                raw = ir.value(
                    f"vector.maskedload {buffer}[{at}], {mask}, {zero} : {flat}, "
                    f"vector<{self.lanes}xi1>, {wide} into {wide}"
                )
            return convert(ir, raw, operand.type, wanted, self.lanes)

        if c.accumulate:
            value = add(ir, load(c.c, self.type), value, self.type, self.lanes)
        value = apply_epilogue(ir, c, value, lanes=self.lanes, load=load)
        stored = storage_type(c.c.type)
        at = ir.index(self.values.offset(ir, c.c, [where[d] for d in c.c.dims]))
        flat, wide = f"memref<?x{stored}, {STORAGE}>", shaped(stored, self.lanes)
        if mask is None:
            ir.emit(f"vector.store {value}, {self.result}[{at}] : {flat}, {wide}")
        else:
            ir.emit(
                f"vector.maskedstore {self.result}[{at}], {mask}, {value} : {flat}, "
                f"vector<{self.lanes}xi1>, {wide}"
            )
