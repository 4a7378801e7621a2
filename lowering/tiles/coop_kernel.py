"""The device function of the cooperative-matrix body."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .gemm_store import store_element
from .interface import (
    SHARED,
    STORAGE,
    bind_buffer,
    constant_names,
    load_constants,
    storage_type,
)
from .kernel_text import Index, KernelText

WIDE_BYTES = 16
PAD_BYTES = 16  # added to each staged row: neighbouring rows start in other banks
BUFFERS = 2
_MATRIX_TYPES = {"i8": "si8", "u8": "ui8"}


@dataclass(frozen=True, kw_only=True)
class CoopShape:
    """A tile cut into m x n x k instructions; ``type`` is that of the staged operands."""

    tile: Tile
    m: int
    n: int
    k: int
    wave: int
    type: str
    wide: bool

    @property
    def per(self) -> int:
        """Elements copied at a time: 16 bytes of them, or one."""
        return WIDE_BYTES // element_type(self.type).bytes if self.wide else 1

    @property
    def unit(self) -> str:
        """The MLIR type of what is copied at a time."""
        return "vector<4xi32>" if self.wide else storage_type(self.type)

    @property
    def threads(self) -> int:
        """Lanes of a workgroup."""
        return self.tile.waves_m * self.tile.waves_n * self.wave

    @property
    def rows(self) -> int:
        """Instructions of one wave along M."""
        return self.tile.m // self.tile.waves_m // self.m

    @property
    def columns(self) -> int:
        """Instructions of one wave along N."""
        return self.tile.n // self.tile.waves_n // self.n

    @property
    def pad(self) -> int:
        """Elements added to a staged row."""
        return PAD_BYTES // element_type(self.type).bytes

    def shared_bytes(self, contraction: Contraction) -> int:
        """Workgroup memory: both buffers of A and B, and a result slot a wave."""
        tile = self.tile
        staged = tile.m * (tile.k + self.pad) + tile.k * (tile.n + self.pad)
        slots = tile.waves_m * tile.waves_n * self.m * self.n
        return (
            BUFFERS * staged * element_type(self.type).bytes
            + slots * element_type(contraction.accumulator).bytes
        )


class _Staged:
    """One operand in workgroup memory as it is stored: [BUFFERS * rows][width + pad].

    ``width`` runs along the operand's contiguous axis; ``flipped`` says that this is the axis that
    the matrix instruction does not want innermost, so that it loads by columns.
    """

    def __init__(self, kernel: CoopKernel, operand: Operand, outer: str, inner: str) -> None:
        c, tile = kernel.contraction, kernel.tile
        extent = {c.m: tile.m, c.n: tile.n, c.k: tile.k}
        self.operand, self.outer, self.inner = operand, outer, inner
        self.rows, self.width = extent[outer], extent[inner]
        self.per = kernel.shape.per
        self.pitch = (self.width + kernel.shape.pad) // self.per
        self.flipped = inner != (c.k if operand is c.a else c.n)
        self.kind = f"memref<{BUFFERS * self.rows}x{self.pitch}x{kernel.shape.unit}, {SHARED}>"
        self.name = kernel.ir.value(f"memref.alloc() : {self.kind}", "shared")
        self.total = self.rows * self.width // self.per  # units that the workgroup copies
        self.passes = -(-self.total // kernel.shape.threads)


class CoopKernel:
    """Emits the function: stage, multiply while the next tile loads, store through slots."""

    def __init__(self, contraction: Contraction, shape: CoopShape, layout: str) -> None:
        self.ir = KernelText()
        self.contraction, self.shape, self.tile = contraction, shape, shape.tile
        ir, c = self.ir, contraction
        self.values = load_constants(ir, constant_names(c), layout)
        self.buffers = {o.name: self._bind(o, i, layout) for i, o in enumerate(c.operands)}
        column, row, self.batch = (
            ir.value(f"hal.interface.workgroup.id[{axis}] : index", "wg") for axis in range(3)
        )
        self.row0, self.col0 = ir.mul(row, self.tile.m), ir.mul(column, self.tile.n)
        self.lane = ir.value("gpu.thread_id x", "lane")
        wave = ir.div(self.lane, shape.wave)
        self.wave_m, self.wave_n = ir.div(wave, self.tile.waves_n), ir.rem(wave, self.tile.waves_n)
        self.wave_index, self.wave_lane = wave, ir.rem(self.lane, shape.wave)
        self.a = _Staged(self, c.a, *((c.k, c.m) if c.transposed_a else (c.m, c.k)))
        self.b = _Staged(self, c.b, *((c.n, c.k) if c.transposed_b else (c.k, c.n)))
        self.acc = storage_type(c.accumulator)
        waves = self.tile.waves_m * self.tile.waves_n
        self.slot_kind = f"memref<{waves * shape.m}x{shape.n}x{self.acc}, {SHARED}>"
        self.slots = ir.value(f"memref.alloc() : {self.slot_kind}", "slots")

    def _bind(self, operand: Operand, binding: int, layout: str) -> str:
        """A view of one operand; A and B in units of what is copied at a time."""
        ir, c = self.ir, self.contraction
        staged = binding < 2 and self.shape.wide
        count = self.values.span(ir, operand)
        return bind_buffer(
            ir,
            layout=layout,
            binding=binding,
            type_name=operand.type,
            count=ir.ceildiv(count, self.shape.per) if staged else count,
            read_only=binding < len(c.operands) - 1,
            unit=(self.shape.unit, WIDE_BYTES) if staged else None,
        )

    def text(self) -> str:
        """The whole body."""
        self._store(self._main_loop())
        self.ir.emit("return")
        return self.ir.text()

    def _matrix(self, rows: int, columns: int, element: str, use: str) -> str:
        return f'!gpu.mma_matrix<{rows}x{columns}x{element}, "{use}">'

    @property
    def _types(self) -> tuple[str, str, str]:
        s, c = self.shape, self.contraction
        a, b = (_MATRIX_TYPES.get(o.type, storage_type(o.type)) for o in (c.a, c.b))
        return (
            self._matrix(s.m, s.k, a, "AOp"),
            self._matrix(s.k, s.n, b, "BOp"),
            self._matrix(s.m, s.n, self.acc, "COp"),
        )

    def _main_loop(self) -> list[str]:
        """One barrier a tile: the other buffer is free once every wave has passed the last."""
        ir, tile = self.ir, self.tile
        size = self.values[self.contraction.k]
        acc = self._types[2]
        zero = ir.constant(0, self.acc)
        start = ir.value(f"gpu.subgroup_mma_constant_matrix {zero} : {acc}")
        for staged in (self.a, self.b):
            self._put(staged, self._fetch(staged, 0), 0)
        ir.emit("gpu.barrier")

        def k_tile(k0: str, accumulators: list[str]) -> list[str]:
            parity = ir.rem(ir.div(k0, tile.k), BUFFERS)
            following = ir.add(k0, tile.k)
            ahead = [(s, self._fetch(s, following)) for s in (self.a, self.b)]
            result = self._multiply(parity, accumulators)
            other = ir.sub(BUFFERS - 1, parity)
            for staged, values in ahead:
                self._put(staged, values, other)
            ir.emit("gpu.barrier")
            return result

        count = self.shape.rows * self.shape.columns
        return ir.carried_loop(0, size, tile.k, [start] * count, acc, k_tile)

    def _place(self, staged: _Staged, index: int) -> tuple[Index, Index, Index]:
        """(unit, row, column in units) of a lane's copy; lanes run along the contiguous axis."""
        ir, across = self.ir, staged.width // staged.per
        unit = ir.add(self.lane, index * self.shape.threads)
        return unit, ir.div(unit, across), ir.rem(unit, across)

    def _fetch(self, staged: _Staged, k0: Index) -> list[str]:
        """This lane's units of the tile at ``k0``, zero outside."""
        ir, c, s = self.ir, self.contraction, self.shape
        origin = {c.m: self.row0, c.n: self.col0, c.k: k0}
        kind = f"memref<?x{s.unit}, {STORAGE}>"
        values = []
        for index in range(staged.passes):
            _, row, column = self._place(staged, index)
            outer = ir.add(origin[staged.outer], row)
            inner = ir.add(origin[staged.inner], ir.mul(column, s.per))
            inside = ir.both(
                ir.less(outer, self.values[staged.outer]),
                ir.less(inner, self.values[staged.inner]),
            )
            where = [*([self.batch] if c.batch else []), outer, inner]
            position = ir.div(self.values.offset(ir, staged.operand, where), s.per)
            safe = ir.select(inside, ir.index(position), ir.index(0), "index")
            raw = ir.value(f"memref.load {self.buffers[staged.operand.name]}[{safe}] : {kind}")
            values.append(ir.select(inside, raw, ir.constant(0, s.unit), s.unit))
        return values

    def _put(self, staged: _Staged, values: list[str], buffer: Index) -> None:
        ir = self.ir
        first = ir.mul(buffer, staged.rows)
        for index, value in enumerate(values):
            unit, row, column = self._place(staged, index)
            slot = f"{ir.index(ir.add(first, row))}, {ir.index(column)}"
            line = f"memref.store {value}, {staged.name}[{slot}] : {staged.kind}"
            if (index + 1) * self.shape.threads > staged.total:  # the last pass may be partial
                with ir.when(ir.less(unit, staged.total)):
                    ir.emit(line)
            else:
                ir.emit(line)

    def _load(self, staged: _Staged, parity: Index, outer: Index, inner: Index, type_: str) -> str:
        """One matrix from the staged tile; ``outer`` and ``inner`` are along the stored axes."""
        ir = self.ir
        row = ir.add(ir.mul(parity, staged.rows), outer)
        column = ir.div(inner, staged.per)
        flipped = ", transpose" if staged.flipped else ""
        return ir.value(
            f'"gpu.subgroup_mma_load_matrix"({staged.name}, {ir.index(row)}, {ir.index(column)})'
            f" <{{leadDimension = {staged.pitch} : index{flipped}}}>"
            f" : ({staged.kind}, index, index) -> {type_}"
        )

    def _multiply(self, parity: Index, accumulators: list[str]) -> list[str]:
        ir, s, tile = self.ir, self.shape, self.tile
        a_type, b_type, c_type = self._types
        row, column = ir.mul(self.wave_m, s.rows * s.m), ir.mul(self.wave_n, s.columns * s.n)

        def at(staged: _Staged, outer: Index, k: int) -> tuple[Index, Index]:
            return (outer, k) if staged.inner == self.contraction.k else (k, outer)

        for k in range(0, tile.k, s.k):
            a = [
                self._load(self.a, parity, *at(self.a, ir.add(row, i * s.m), k), a_type)
                for i in range(s.rows)
            ]
            b = [
                self._load(self.b, parity, *at(self.b, ir.add(column, j * s.n), k), b_type)
                for j in range(s.columns)
            ]
            accumulators = [
                ir.value(
                    f"gpu.subgroup_mma_compute {a[n // s.columns]}, {b[n % s.columns]}, {old}"
                    f" : {a_type}, {b_type} -> {c_type}"
                )
                for n, old in enumerate(accumulators)
            ]
        return accumulators

    def _store(self, accumulators: list[str]) -> None:
        """Every wave takes the same steps, so that the barriers are met by all."""
        ir, s = self.ir, self.shape
        first = ir.mul(self.wave_index, s.m)
        for index, value in enumerate(accumulators):
            i, j = divmod(index, s.columns)
            ir.emit("gpu.barrier")
            ir.emit(
                f'"gpu.subgroup_mma_store_matrix"({value}, {self.slots}, {ir.index(first)}, '
                f"{ir.index(0)}) <{{leadDimension = {s.n} : index}}> : ({self._types[2]}, "
                f"{self.slot_kind}, index, index) -> ()"
            )
            ir.emit("gpu.barrier")
            self._drain(first, i, j)

    def _drain(self, first: Index, i: int, j: int) -> None:
        """Copy one wave's slot to C, element by element."""
        ir, s, c = self.ir, self.shape, self.contraction
        row0 = ir.add(self.row0, ir.add(ir.mul(self.wave_m, s.rows * s.m), i * s.m))
        col0 = ir.add(self.col0, ir.add(ir.mul(self.wave_n, s.columns * s.n), j * s.n))
        for start in range(0, s.m * s.n, s.wave):
            element = ir.add(self.wave_lane, start)
            r, q = ir.div(element, s.n), ir.rem(element, s.n)
            row, column = ir.add(row0, r), ir.add(col0, q)
            inside = ir.both(ir.less(row, self.values[c.m]), ir.less(column, self.values[c.n]))
            if s.m * s.n % s.wave and start + s.wave > s.m * s.n:
                inside = ir.both(inside, ir.less(element, s.m * s.n))
            with ir.when(inside):
                slot = f"{ir.index(ir.add(first, r))}, {ir.index(q)}"
                value = ir.value(f"memref.load {self.slots}[{slot}] : {self.slot_kind}")
                where = {c.m: row, c.n: column, **({c.batch: self.batch} if c.batch else {})}
                store_element(ir, c, value, self.values, self.buffers, where, current=c.accumulator)
