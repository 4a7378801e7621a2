"""The device function of the software tile, one text for every GPU backend.

Workgroup memory holds two tiles of A and two of B, as [k][m] and [k][n] in the compute type: while
one is multiplied the next is loaded, and one barrier a tile is enough. A lane's rows and columns
are groups of up to 16 bytes, a group of every lane side by side, so that each is one load and a
wave reads without bank conflicts (CUTLASS, "Efficient GEMM in CUDA", warp and thread tiles).
"""

from __future__ import annotations

from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import compute_type, shaped
from .gemm_store import store_element
from .interface import KernelValues, bind_operands, constant_names, load_constants
from .kernel_text import Index, KernelText
from .operand_source import Fetched, Staging, bind_source, copied_contraction
from .split_k import Slice, bind_partial, k_slice, store_partial
from .staged_operand import BUFFERS, StagedOperand, array_elements

PATCH = (4, 8)  # lanes of a wave's patch along M and N: each side is read once, by broadcast


@dataclass(frozen=True, kw_only=True)
class SoftwareShape:
    """How a workgroup divides its tile among its lanes.

    ``wide`` and ``words`` are those of :class:`.operand_source.Staging`, ``vectors`` is that of
    :class:`.staged_operand.StagedOperand`; ``unrolled`` is how many
    multiply-accumulates of a lane are written out, a longer tile is a loop.
    """

    contraction: Contraction
    tile: Tile
    wide: bool
    words: bool
    vectors: bool
    unrolled: int

    @property
    def lanes(self) -> tuple[int, int]:
        """Lanes along M and N."""
        return self.tile.m // self.tile.thread_m, self.tile.n // self.tile.thread_n

    @property
    def threads(self) -> int:
        """Lanes of a workgroup."""
        return self.lanes[0] * self.lanes[1]

    @property
    def staging(self) -> tuple[Staging, Staging]:
        """How A and B are copied."""
        c, tile = self.contraction, self.tile
        extents = {c.m: tile.m, c.n: tile.n, c.k: tile.k}
        return copied_contraction(c, extents, self.threads, wide=self.wide, words=self.words)

    @property
    def in_words(self) -> tuple[Operand, ...]:
        """The operands that are read in whole 32-bit words."""
        return tuple(s.operand for s in self.staging if s.in_words)

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory of both buffers of A and B."""
        nbytes, tile = element_type(compute_type(self.contraction)).bytes, self.tile
        return nbytes * sum(array_elements(tile.k, width, nbytes) for width in (tile.m, tile.n))

    @property
    def unroll(self) -> int:
        """K steps written out at a time: a divisor of k."""
        tile = self.tile
        most = max(1, self.unrolled // (tile.thread_m * tile.thread_n))
        return next(u for u in range(min(tile.k, most), 0, -1) if tile.k % u == 0)


class SoftwareKernel:
    """Emits the function: stage, multiply while the next tile loads, store.

    With ``split`` it is that of one slice of K, which stores its partial sums.
    """

    def __init__(self, shape: SoftwareShape, layout: str, *, split: bool = False) -> None:
        self.ir = KernelText()
        self.shape, self.contraction, self.tile = shape, shape.contraction, shape.tile
        self.type = compute_type(self.contraction)
        self.mlir = element_type(self.type).mlir
        ir, c = self.ir, self.contraction
        self.values: KernelValues = load_constants(ir, constant_names(c, split=split), layout)
        staged = [
            StagedOperand(
                ir,
                staging,
                bind_source(
                    ir,
                    staging,
                    layout=layout,
                    binding=binding,
                    values=self.values,
                    type_name=self.type,
                ),
                c.k,
                vectors=shape.vectors,
            )
            for binding, staging in enumerate(shape.staging)
        ]
        self.buffers = {} if split else bind_operands(ir, c, self.values, layout, first=2)
        column, row, z = (
            ir.value(f"hal.interface.workgroup.id[{axis}] : index", "wg") for axis in range(3)
        )
        self.batch: Index = z
        self.begin: Index = 0
        self.end: Index = self.values[c.k]
        self.part: Slice | None = None
        if split:
            self.part = k_slice(ir, self.values, c, self.tile, z)
            self.batch, self.begin, self.end = self.part.batch, self.part.begin, self.part.end
            self.partial = bind_partial(ir, c, self.values, layout, binding=2)
        self.row0, self.col0 = ir.mul(row, self.tile.m), ir.mul(column, self.tile.n)
        self.lane = ir.value("gpu.thread_id x", "lane")
        self.lane_m, self.lane_n = self._patch()
        self.a, self.b = staged
        self.a.allocate(self.type)
        self.b.allocate(self.type)

    def _patch(self) -> tuple[Index, Index]:
        """A lane's place among the lanes: patches of 4 x 8 where they fit, else row by row."""
        ir, (down, across) = self.ir, self.shape.lanes
        if down % PATCH[0] or across % PATCH[1]:
            return ir.div(self.lane, across), ir.rem(self.lane, across)
        patch, inside = (f(self.lane, PATCH[0] * PATCH[1]) for f in (ir.div, ir.rem))
        patches = across // PATCH[1]
        return (
            ir.add(ir.mul(ir.div(patch, patches), PATCH[0]), ir.div(inside, PATCH[1])),
            ir.add(ir.mul(ir.rem(patch, patches), PATCH[1]), ir.rem(inside, PATCH[1])),
        )

    def text(self) -> str:
        """The whole body."""
        self._store(self._main_loop())
        self.ir.emit("return")
        return self.ir.text()

    def _main_loop(self) -> list[str]:
        """One barrier a tile: the other buffer is free once every lane has passed the last."""
        ir, tile = self.ir, self.tile
        both = (self.a, self.b)
        with ir.when(ir.less(self.begin, self.end)):
            for staged in both:
                self._put(staged, self._fetch(staged, self.begin), 0)
        ir.emit("gpu.barrier")

        def k_tile(k0: str, accumulators: list[str]) -> list[str]:
            buffer = ir.rem(ir.div(ir.sub(k0, self.begin), tile.k), BUFFERS)
            following = ir.add(k0, tile.k)
            ahead = [(s, self._fetch(s, following)) for s in both]
            result = self._multiply(buffer, accumulators)
            other = ir.sub(BUFFERS - 1, buffer)
            for staged, fetched in ahead:
                self._put(staged, fetched, other)
            ir.emit("gpu.barrier")
            return result

        zero = ir.constant(0, self.mlir)
        count = tile.thread_m * tile.thread_n
        return ir.carried_loop(self.begin, self.end, tile.k, [zero] * count, self.mlir, k_tile)

    def _unit(self, staged: StagedOperand, index: int) -> tuple[Index, Index, Index]:
        """(run, outer, inner) of a lane's copy; lanes run along the contiguous axis."""
        ir, staging = self.ir, staged.staging
        across = staging.extent // staging.run
        unit = ir.add(self.lane, index * self.shape.threads)
        return unit, ir.div(unit, across), ir.mul(ir.rem(unit, across), staging.run)

    def _fetch(self, staged: StagedOperand, k0: Index) -> list[Fetched]:
        """This lane's runs of the tile at ``k0``."""
        ir, c, staging = self.ir, self.contraction, staged.staging
        origin = {c.m: self.row0, c.n: self.col0, c.k: k0}
        *_, outer_dim, inner_dim = staging.operand.dims
        runs = []
        for index in range(staging.passes):
            _, outer, inner = self._unit(staged, index)
            where = (ir.add(origin[outer_dim], outer), ir.add(origin[inner_dim], inner))
            inside = ir.both(
                ir.less(where[0], self.values[outer_dim]),
                ir.less(where[1], self.values[inner_dim]),
            )
            batch = [self.batch] if len(staging.operand.dims) == 3 else []
            runs.append(staged.source.fetch([*batch, *where], inside))
        return runs

    def _put(self, staged: StagedOperand, runs: list[Fetched], buffer: Index) -> None:
        ir, staging = self.ir, staged.staging
        total = staging.extent * staging.outer // staging.run
        for index, fetched in enumerate(runs):
            unit, outer, inner = self._unit(staged, index)
            k, column = (inner, outer) if staged.k_inner else (outer, inner)
            values = staged.source.decode(fetched)
            if (index + 1) * self.shape.threads > total:  # the last pass may be partial
                with ir.when(ir.less(unit, total)):
                    staged.store(k, column, buffer, values)
            else:
                staged.store(k, column, buffer, values)

    def _places(self, staged: StagedOperand, lane: Index, lanes: int, thread: int) -> list[Index]:
        """Where each group of a lane's rows or columns starts within the tile."""
        ir, group = self.ir, staged.group(thread)
        base = ir.mul(lane, group)
        return [ir.add(base, start * lanes) for start in range(0, thread, group)]

    def _rows(self) -> list[Index]:
        return self._places(self.a, self.lane_m, self.shape.lanes[0], self.tile.thread_m)

    def _columns(self) -> list[Index]:
        return self._places(self.b, self.lane_n, self.shape.lanes[1], self.tile.thread_n)

    def _multiply(self, buffer: Index, accumulators: list[str]) -> list[str]:
        ir, step = self.ir, self.shape.unroll
        rows, columns = self._rows(), self._columns()

        def steps(k: Index, values: list[str]) -> list[str]:
            for i in range(step):
                values = self._step(ir.add(k, i), buffer, rows, columns, values)
            return values

        if step == self.tile.k:
            return steps(0, accumulators)
        return ir.carried_loop(0, self.tile.k, step, accumulators, self.mlir, steps)

    def _step(
        self,
        k: Index,
        buffer: Index,
        rows: list[Index],
        columns: list[Index],
        accumulators: list[str],
    ) -> list[str]:
        """One column of A times one row of B."""
        tile = self.tile
        a = self._operand(self.a, k, buffer, rows, tile.thread_m)
        b = self._operand(self.b, k, buffer, columns, tile.thread_n)
        return [
            multiply_add(self.ir, x, y, accumulators[i * tile.thread_n + j], self.type)
            for i, x in enumerate(a)
            for j, y in enumerate(b)
        ]

    def _operand(
        self, staged: StagedOperand, k: Index, buffer: Index, places: list[Index], thread: int
    ) -> list[str]:
        group = staged.group(thread)
        return [v for place in places for v in staged.load(k, place, buffer, group)]

    def _store(self, accumulators: list[str]) -> None:
        ir, c, tile = self.ir, self.contraction, self.tile
        rows = _spread(ir, self._rows(), self.a.group(tile.thread_m))
        columns = _spread(ir, self._columns(), self.b.group(tile.thread_n))
        columns = [ir.add(self.col0, column) for column in columns]
        within = [ir.less(column, self.values[c.n]) for column in columns]
        for i, place in enumerate(rows):
            row = ir.add(self.row0, place)
            with ir.when(ir.less(row, self.values[c.m])):
                for j, column in enumerate(columns):
                    with ir.when(within[j]):
                        value = accumulators[i * tile.thread_n + j]
                        self._store_one(value, {c.m: row, c.n: column})

    def _store_one(self, value: str, where: dict[str, Index]) -> None:
        ir, c = self.ir, self.contraction
        if self.part is not None:
            store_partial(
                ir, c, value, self.values, self.partial, self.part, where, current=self.type
            )
            return
        where |= {c.batch: self.batch} if c.batch else {}
        store_element(ir, c, value, self.values, self.buffers, where, current=self.type)


def _spread(ir: KernelText, starts: list[Index], group: int) -> list[Index]:
    """The places of all elements of groups that start there."""
    return [ir.add(start, i) for start in starts for i in range(group)]


def multiply_add(ir: KernelText, a: str, b: str, c: str, type_name: str, lanes: int = 0) -> str:
    """a * b + c, fused for floats: without an explicit fma the back ends emit none."""
    element = element_type(type_name)
    mlir = shaped(element.mlir, lanes)
    if element.kind == "float":
        return ir.value(f"math.fma {a}, {b}, {c} : {mlir}")
    product = ir.value(f"arith.muli {a}, {b} : {mlir}")
    return ir.value(f"arith.addi {c}, {product} : {mlir}")
