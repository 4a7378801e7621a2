"""The register tile of the CPU body, over packed panels; :mod:`.cpu_pack` packs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import add, apply_epilogue, compute_type, convert, shaped
from .interface import STORAGE, KernelValues, bind_buffer, storage_type
from .kernel_text import Index, KernelText

UNROLL = 4  # K steps written out in the inner loop; more only grows the code


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
        """The whole function body: K in blocks outside, so that a block of B stays in L1."""
        ir, tile = self.ir, self.tile
        row = ir.value("hal.interface.workgroup.id[0] : index")
        column = ir.value("hal.interface.workgroup.id[1] : index")
        col0, row0 = ir.mul(column, tile.n), ir.mul(row, tile.m)
        col_end = ir.least(ir.add(col0, tile.n), self.values[self.contraction.n])
        row_end = ir.least(ir.add(row0, tile.m), self.values[self.contraction.m])
        # one round even for K = 0, which stores the epilogue of zero
        k_end = ir.greatest(self.values[self.contraction.k], 1)
        step = tile.k if self.blocked else k_end
        with (
            ir.loop(0, k_end, step, "k") as k,
            ir.loop(col0, col_end, tile.thread_n, "col") as col,
            ir.loop(row0, row_end, tile.thread_m, "row") as row_,
        ):
            self._tile(row_, col, k, step)
        ir.emit("return")
        return ir.text()

    @property
    def blocked(self) -> bool:
        """Whether C can hold partial sums between blocks of K."""
        return self.contraction.c.type == self.type

    def _tile(self, row: str, col: str, k0: str, step: Index) -> None:
        ir, tile = self.ir, self.tile
        k_size = self.values[self.contraction.k]
        base_a = ir.add(self.start_a, ir.mul(row, k_size))
        base_b = ir.add(self.start_b, ir.mul(col, k_size))
        k_end = ir.least(ir.add(k0, step), k_size)
        main = ir.add(k0, ir.mul(ir.div(ir.sub(k_end, k0), UNROLL), UNROLL))
        left = ir.sub(self.values[self.contraction.n], col)
        mask = self._mask(left)

        def steps(count: int) -> Callable[[str, list[str]], list[str]]:
            def body(k: str, accumulators: list[str]) -> list[str]:
                for step in range(count):
                    accumulators = self._step(ir.add(k, step), base_a, base_b, accumulators)
                return accumulators

            return body

        start = self._start(row, col, k0, mask)
        values = ir.carried_loop(k0, main, UNROLL, start, self.vector, steps(UNROLL))
        values = ir.carried_loop(main, k_end, 1, values, self.vector, steps(1))
        last = ir.value(f"arith.cmpi eq, {ir.index(k_end)}, {k_size} : index")
        with ir.when(ir.less(left, tile.thread_n)):
            self._store_rows(values, row, col, mask, last)
            ir.otherwise()
            self._store_rows(values, row, col, None, last)

    def _mask(self, left: Index) -> str:
        return self.ir.value(f"vector.create_mask {self.ir.index(left)} : vector<{self.lanes}xi1>")

    def _start(self, row: str, col: str, k0: str, mask: str) -> list[str]:
        """Zeros, or what C holds: the caller's values, or the sums of the blocks before.

        Rows beyond the last are read from the last one: they are never stored.
        """
        ir, c = self.ir, self.contraction
        zeros = [ir.constant(0, self.vector)] * self.tile.thread_m
        if not c.accumulate and not self.blocked:
            return zeros
        final = ir.sub(self.values[c.m], 1)
        first = ir.value(f"arith.cmpi eq, {k0}, {ir.index(0)} : index")
        result = ir.name("start")
        types = ", ".join([self.vector] * len(zeros))
        with ir.block(f"{result}:{len(zeros)} = scf.if {first} -> ({types}) {{"):
            begin = self._held(row, col, final, mask) if c.accumulate else zeros
            ir.emit(f"scf.yield {', '.join(begin)} : {types}")
            ir.otherwise()
            held = self._held(row, col, final, mask)
            ir.emit(f"scf.yield {', '.join(held)} : {types}")
        return [f"{result}#{i}" for i in range(len(zeros))]

    def _held(self, row: str, col: str, final: Index, mask: str) -> list[str]:
        ir, c = self.ir, self.contraction
        rows = [ir.least(ir.add(row, i), final) for i in range(self.tile.thread_m)]
        return [self._load(c.c, self.type, self._where(r, col), mask) for r in rows]

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

    def _where(self, row: Index, col: Index) -> dict[str, Index]:
        c = self.contraction
        where: dict[str, Index] = {c.m: row, c.n: col}
        if c.batch:
            where[c.batch] = self.batch
        return where

    def _load(
        self, operand: Operand, wanted: str, where: dict[str, Index], mask: str | None
    ) -> str:
        """One row of the tile of an operand, or its one element broadcast along the row."""
        ir = self.ir
        stored = storage_type(operand.type)
        buffer = self.buffers.get(operand.name, self.result)
        at = ir.index(self.values.offset(ir, operand, [where[d] for d in operand.dims]))
        flat = f"memref<?x{stored}, {STORAGE}>"
        if operand.dims[-1] != self.contraction.n:
            raw = ir.value(f"memref.load {buffer}[{at}] : {flat}")
            one = convert(ir, raw, operand.type, wanted)
            mlir = element_type(wanted).mlir
            return ir.value(f"vector.broadcast {one} : {mlir} to {shaped(mlir, self.lanes)}")
        wide = shaped(stored, self.lanes)
        if mask is None:
            raw = ir.value(f"vector.load {buffer}[{at}] : {flat}, {wide}")
        else:
            raw = ir.value(
                f"vector.maskedload {buffer}[{at}], {mask}, {ir.constant(0, wide)} : {flat}, "
                f"vector<{self.lanes}xi1>, {wide} into {wide}"
            )
        return convert(ir, raw, operand.type, wanted, self.lanes)

    def _store_rows(
        self, values: list[str], row: str, col: str, mask: str | None, last: str
    ) -> None:
        ir, c = self.ir, self.contraction
        for i, value in enumerate(values):
            at = ir.add(row, i)
            with ir.when(ir.less(at, self.values[c.m])):
                where = self._where(at, col)
                if not (self.blocked and c.epilogue):
                    self._store(self._finished(value, where, mask), where, mask)
                    continue
                with ir.when(last):
                    self._store(self._finished(value, where, mask), where, mask)
                    ir.otherwise()
                    self._store(value, where, mask)

    def _finished(self, value: str, where: dict[str, Index], mask: str | None) -> str:
        def load(operand: Operand, wanted: str) -> str:
            return self._load(operand, wanted, where, mask)

        return apply_epilogue(self.ir, self.contraction, value, lanes=self.lanes, load=load)

    def _store(self, value: str, where: dict[str, Index], mask: str | None) -> None:
        ir, c = self.ir, self.contraction
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
