"""The kernel that every body with matrix instructions over plain copies shares.

A workgroup of waves_m x waves_n waves computes an m x n tile of C. A and B go through registers to
workgroup memory, double-buffered: the next tile loads while this one multiplies. How a tile lies
in workgroup memory, and the fragments that an instruction takes of it, are the back end's part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from dialects.expressions import ceildiv
from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .interface import STORAGE, bind_buffer, constant_names, load_constants, storage_type
from .kernel_text import MAX_UNROLLED, Index, KernelText
from .operand_source import Fetched, OperandSource, Staging, bind_source
from .staging import WIDE_BYTES, WORD, block_alignment

PAD_BYTES = 16  # added to each staged row: neighbouring rows start in other banks
BUFFERS = 2
Copied = str | Fetched  # what a lane has loaded: a unit, or a run of blocks on its way


@dataclass(frozen=True, kw_only=True)
class MatrixShape:
    """A tile cut into m x n x k instructions; ``type`` is that of the staged operands."""

    tile: Tile
    m: int
    n: int
    k: int
    wave: int
    type: str
    wide: bool

    @property
    def bytes(self) -> int:
        """Bytes of a staged element."""
        return element_type(self.type).bytes

    @property
    def per(self) -> int:
        """Elements copied at a time: 16 bytes of them, or one."""
        return WIDE_BYTES // self.bytes if self.wide else 1

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
        return PAD_BYTES // self.bytes

    def decoding(self, contraction: Contraction, operand: Operand) -> Staging:
        """How lanes copy an operand that comes in blocks."""
        c, tile = contraction, self.tile
        extent = {c.m: tile.m, c.n: tile.n, c.k: tile.k}
        outer, inner = operand.dims[-2:]
        return Staging(
            operand=operand,
            extent=extent[inner],
            outer=extent[outer],
            threads=self.threads,
            wide=self.wide,
            words=True,
        )


def copied_alignment(contraction: Contraction, per: int) -> dict[str, int] | None:
    """What strides and contiguous sizes of A and B must be multiples of, in stored elements.

    Dense operands are copied ``per`` elements at a time. Blocks lie where a scale may.
    """
    needs: dict[str, int] = {}
    for operand in (contraction.a, contraction.b):
        if operand.source is None:
            needs |= dict.fromkeys((*operand.strides, operand.dims[-1]), per)
        else:
            needs |= block_alignment(operand)
    return {name: multiple for name, multiple in needs.items() if multiple > 1} or None


def refused_blocks(contraction: Contraction, shape: MatrixShape, least: int = 1) -> str | None:
    """Why blocks cannot be decoded on their way to workgroup memory, or None when they can.

    ``least`` is how many elements are stored there at once.
    """
    for operand in in_blocks(contraction):
        staging = shape.decoding(contraction, operand)
        if staging.refusal is not None:
            return staging.refusal
        if staging.run < least:
            return f"each lane would decode {staging.run} < {least} elements of '{operand.name}'"
    return None


def staged_alignment(contraction: Contraction, shape: MatrixShape) -> dict[str, int] | None:
    """What the copies of a :class:`StagedGemm` need: blocks are read in words from their start."""
    starts = {o.name: WORD for o in in_blocks(contraction)}
    return (copied_alignment(contraction, shape.per) or {}) | starts or None


def in_blocks(contraction: Contraction) -> tuple[Operand, ...]:
    """The operands that come in blocks, which are read in whole 32-bit words."""
    return tuple(o for o in (contraction.a, contraction.b) if o.source is not None)


def too_much_text(shape: MatrixShape) -> str | None:
    """Why the kernel would be too long, or None: each product and copy of a lane is a line."""
    tile = shape.tile
    products = shape.rows * shape.columns * (tile.k // shape.k)
    if products > MAX_UNROLLED:
        return f"each wave would multiply {products} > {MAX_UNROLLED} matrices"
    staged = ceildiv(tile.k * max(tile.m, tile.n), shape.threads)
    if staged > MAX_UNROLLED:
        return f"each lane would stage {staged} > {MAX_UNROLLED} elements"
    return None


class Staged:
    """How the workgroup copies one operand's tile, and where it lies in workgroup memory.

    ``rows`` x ``width`` is the tile as it is stored: ``inner`` names the contiguous axis. Lanes
    copy units of ``per`` elements along it, ``depth`` rows of them at once; with a ``source``, its
    runs. ``kind`` and ``name`` are of the memory, whose layout the back end decides.
    """

    kind: str
    name: str

    def __init__(
        self,
        kernel: StagedGemm,
        operand: Operand,
        outer: str,
        inner: str,
        *,
        depth: int = 1,
        down: bool = False,
    ) -> None:
        """``down`` has neighbouring lanes copy below, not beside each other."""
        c, tile = kernel.contraction, kernel.tile
        extent = {c.m: tile.m, c.n: tile.n, c.k: tile.k}
        self.operand, self.outer, self.inner = operand, outer, inner
        self.rows, self.width = extent[outer], extent[inner]
        self.source = kernel.sources.get(operand.name)
        self.per = kernel.shape.per if self.source is None else self.source.run
        self.depth, self.down = depth, down
        self.total = self.rows * self.width // (self.per * depth)  # copies of the workgroup
        self.passes = -(-self.total // kernel.shape.threads)

    def place(self, kernel: StagedGemm, index: int) -> tuple[Index, Index, Index]:
        """(copy, first row, column in units) of a lane's ``index``-th copy."""
        ir = kernel.ir
        unit = ir.add(kernel.lane, index * kernel.shape.threads)
        if self.down:
            below = self.rows // self.depth
            return unit, ir.mul(ir.rem(unit, below), self.depth), ir.div(unit, below)
        across = self.width // self.per
        return unit, ir.mul(ir.div(unit, across), self.depth), ir.rem(unit, across)


class StagedGemm(ABC):
    """Emits the function: stage, multiply while the next tile loads, store."""

    def __init__(self, contraction: Contraction, shape: MatrixShape, layout: str) -> None:
        self.ir = KernelText()
        self.contraction, self.shape, self.tile = contraction, shape, shape.tile
        ir, c = self.ir, contraction
        self.values = load_constants(ir, constant_names(c), layout)
        blocks = in_blocks(c)
        self.sources: dict[str, OperandSource] = {
            o.name: self._bind_blocks(o, i, layout) for i, o in enumerate(c.operands) if o in blocks
        }
        self.buffers = {
            o.name: self._bind(o, i, layout) for i, o in enumerate(c.operands) if o not in blocks
        }
        column, row, self.batch = (
            ir.value(f"hal.interface.workgroup.id[{axis}] : index", "wg") for axis in range(3)
        )
        self.row0, self.col0 = ir.mul(row, self.tile.m), ir.mul(column, self.tile.n)
        self.lane = ir.value("gpu.thread_id x", "lane")
        wave = ir.div(self.lane, shape.wave)
        self.wave_m, self.wave_n = ir.div(wave, self.tile.waves_n), ir.rem(wave, self.tile.waves_n)
        self.wave_index, self.wave_lane = wave, ir.rem(self.lane, shape.wave)
        self.a = self.stage(c.a, *((c.k, c.m) if c.transposed_a else (c.m, c.k)))
        self.b = self.stage(c.b, *((c.n, c.k) if c.transposed_b else (c.k, c.n)))
        self.acc = storage_type(c.accumulator)

    @abstractmethod
    def stage(self, operand: Operand, outer: str, inner: str) -> Staged:
        """Allocate workgroup memory for an operand that is stored outer x inner."""

    @abstractmethod
    def put(self, staged: Staged, values: list[Copied], buffer: Index) -> None:
        """Store what :meth:`fetch` gave in one of the buffers."""

    @abstractmethod
    def start(self) -> tuple[str, str]:
        """An accumulator of zeros, and its type."""

    @abstractmethod
    def load(self, staged: Staged, parity: Index, first: Index, ahead: int, k: int) -> str:
        """The fragment at ``first + ahead`` along M or N and ``k``, of buffer ``parity``."""

    @abstractmethod
    def multiply(self, a: str, b: str, accumulator: str) -> str:
        """One matrix instruction."""

    @abstractmethod
    def store(self, accumulators: list[str]) -> None:
        """Write the results of a wave, row by row of instructions."""

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

    def _bind_blocks(self, operand: Operand, binding: int, layout: str) -> OperandSource:
        return bind_source(
            self.ir,
            self.shape.decoding(self.contraction, operand),
            layout=layout,
            binding=binding,
            values=self.values,
            type_name=self.shape.type,
        )

    def text(self) -> str:
        """The whole body."""
        self.store(self._main_loop())
        self.ir.emit("return")
        return self.ir.text()

    def _main_loop(self) -> list[str]:
        """One barrier a tile: the other buffer is free once every wave has passed the last."""
        ir, tile = self.ir, self.tile
        size = self.values[self.contraction.k]
        start, kind = self.start()
        with ir.when(ir.less(0, size)):
            for staged in (self.a, self.b):
                self.put(staged, self.fetch(staged, 0), 0)
        ir.emit("gpu.barrier")

        def k_tile(k0: str, accumulators: list[str]) -> list[str]:
            parity = ir.rem(ir.div(k0, tile.k), BUFFERS)
            following = ir.add(k0, tile.k)
            ahead = [(s, self.fetch(s, following)) for s in (self.a, self.b)]
            result = self._multiply_tile(parity, accumulators)
            other = ir.sub(BUFFERS - 1, parity)
            for staged, values in ahead:
                self.put(staged, values, other)
            ir.emit("gpu.barrier")
            return result

        count = self.shape.rows * self.shape.columns
        return ir.carried_loop(0, size, tile.k, [start] * count, kind, k_tile)

    def fetch(self, staged: Staged, k0: Index) -> list[Copied]:
        """This lane's units of the tile at ``k0``, zero outside: all that reads an operand."""
        ir, c = self.ir, self.contraction
        origin = {c.m: self.row0, c.n: self.col0, c.k: k0}
        values: list[Copied] = []
        for index in range(staged.passes):
            _, row, column = staged.place(self, index)
            for step in range(staged.depth):
                outer = ir.add(ir.add(origin[staged.outer], row), step)
                inner = ir.add(origin[staged.inner], ir.mul(column, staged.per))
                inside = ir.both(
                    ir.less(outer, self.values[staged.outer]),
                    ir.less(inner, self.values[staged.inner]),
                )
                where = [*([self.batch] if c.batch else []), outer, inner]
                if staged.source is None:
                    values.append(self._unit(staged, where, inside))
                else:
                    values.append(staged.source.fetch(where, inside))
        return values

    def _unit(self, staged: Staged, where: list[Index], inside: str) -> str:
        """One dense unit, zero outside."""
        ir, s = self.ir, self.shape
        kind = f"memref<?x{s.unit}, {STORAGE}>"
        position = ir.div(self.values.offset(ir, staged.operand, where), s.per)
        safe = ir.select(inside, ir.index(position), ir.index(0), "index")
        raw = ir.value(f"memref.load {self.buffers[staged.operand.name]}[{safe}] : {kind}")
        return ir.select(inside, raw, ir.constant(0, s.unit), s.unit)

    def _multiply_tile(self, parity: Index, accumulators: list[str]) -> list[str]:
        ir, s = self.ir, self.shape
        row, column = ir.mul(self.wave_m, s.rows * s.m), ir.mul(self.wave_n, s.columns * s.n)
        for k in range(0, self.tile.k, s.k):
            a = [self.load(self.a, parity, row, i * s.m, k) for i in range(s.rows)]
            b = [self.load(self.b, parity, column, j * s.n, k) for j in range(s.columns)]
            accumulators = [
                self.multiply(a[n // s.columns], b[n % s.columns], old)
                for n, old in enumerate(accumulators)
            ]
        return accumulators

    def origin_of(self, i: int, j: int) -> tuple[Index, Index]:
        """Row and column in C of the wave's instruction (i, j)."""
        ir, s = self.ir, self.shape
        row = ir.add(self.row0, ir.add(ir.mul(self.wave_m, s.rows * s.m), i * s.m))
        column = ir.add(self.col0, ir.add(ir.mul(self.wave_n, s.columns * s.n), j * s.n))
        return row, column
