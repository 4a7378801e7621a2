"""The sums of all waves of a cluster become C: exchanged in workgroup memory, in a fixed order.

Every wave puts its sums into the memory of its own workgroup. Each workgroup then finishes its
share of the tile: it reads what the others of the cluster hold of it (distributed shared memory),
and adds in the order of the parts of K, so that a result is the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass

from dialects.operands import Contraction
from dialects.types import element_type

from . import clusters
from .epilogue import add
from .global_operand import GlobalOperand
from .interface import KernelValues
from .mma_shape import WAVE
from .ptx_text import PtxText, Word
from .rows_load import RowsLoad
from .rows_shape import RowsShape
from .wgmma_epilogue import Finish, Where
from .wgmma_store import store_directly

_LINE = WAVE * 4  # bytes of one register of a wave


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Who a lane is: its place in the workgroup, its workgroup's rank, its wave's places."""

    thread: Word
    rank: Word
    wave_n: Word
    wave_k: Word


@dataclass(frozen=True, kw_only=True)
class SumStore:
    """Adds, finishes and stores."""

    ir: PtxText
    contraction: Contraction
    shape: RowsShape
    values: KernelValues
    buffers: dict[str, str]
    batch: str
    shared: Word

    def store(
        self,
        sums: list[str],
        load: RowsLoad,
        shares: Shares,
        origin: tuple[Word, Word],
        c: GlobalOperand,
    ) -> None:
        """``origin`` is the first row and column of the tile."""
        ir, shape = self.ir, self.shape
        self._put(sums, shares)
        if shape.cluster > 1:
            clusters.meet(ir)
        else:
            ir.emit("gpu.barrier")
        pairs = shape.tile.m * shape.tile.n // 2 // shape.cluster
        first = ir.mul_w(shares.rank, pairs)
        shares_done = []
        for start in range(0, pairs, shape.threads):
            own = ir.add_w(shares.thread, start)
            inside = ir.select_w(ir.compare_w("ult", own, pairs), 1, 0)
            pair = ir.add_w(first, ir.least_w(own, pairs - 1))
            half = shape.tile.n // 2
            row, column = ir.div_w(pair, half), ir.mul_w(ir.rem_w(pair, half), 2)
            totals = self._totals(load, row, column)
            shares_done.append((inside, row, column, totals))
        if shape.cluster > 1:
            clusters.leave(ir)
        for inside, row, column, totals in shares_done:
            self._finish(inside, (row, column), totals, origin, c)
        if shape.cluster > 1:  # the others still read this workgroup's memory
            clusters.wait_for_all(ir)

    def _put(self, sums: list[str], shares: Shares) -> None:
        ir, shape = self.ir, self.shape
        wave = ir.add_w(ir.mul_w(shares.wave_k, shape.tile.waves_n), shares.wave_n)
        lane = ir.and_w(shares.thread, WAVE - 1)
        at = ir.add_w(ir.mul_w(wave, shape.wave_bytes), ir.mul_w(lane, 4))
        at = ir.word(ir.add_w(self.shared, at))
        for register, value in enumerate(sums):
            text = f"st.shared.b32 [$0+{register * _LINE}], $1;"
            ir.asm(text, [(at, "i32"), (value, shape.mma.accumulator)])

    def _totals(self, load: RowsLoad, row: Word, column: Word) -> tuple[str, str]:
        """Two neighbours along N, summed over all parts."""
        ir, shape = self.ir, self.shape
        wave_n = ir.div_w(column, shape.wave_n)
        within = ir.rem_w(column, shape.wave_n)
        first, second = (
            ir.add_w(self.shared, self._offset(load, row, ir.add_w(within, e))) for e in range(2)
        )
        wave = ir.mul_w(wave_n, shape.wave_bytes)
        places = [ir.add_w(first, wave), ir.add_w(second, wave)]
        totals: list[str] = []
        for rank in range(shape.cluster):
            held = [self._address(place, rank) for place in places]
            for part in range(shape.tile.waves_k):
                offset = part * shape.tile.waves_n * shape.wave_bytes
                found = [self._read(address, offset) for address in held]
                pairs = zip(totals or found, found, strict=True)
                totals = [self._add(t, f) for t, f in pairs] if totals else found
        return totals[0], totals[1]

    def _offset(self, load: RowsLoad, row: Word, column: Word) -> Word:
        """Where in a wave's memory the sum of a row and of a column of the wave's is."""
        ir, shape = self.ir, self.shape
        group, half, down = load.slot(column)
        block, eighth = ir.shr_w(row, 3), ir.and_w(row, 7)
        register = ir.add_w(ir.mul_w(group, shape.blocks), block)
        register = ir.add_w(ir.mul_w(register, 4), ir.mul_w(half, 2))
        register = ir.add_w(register, ir.and_w(eighth, 1))
        lane = ir.add_w(ir.mul_w(down, 4), ir.shr_w(eighth, 1))
        return ir.add_w(ir.mul_w(register, _LINE), ir.mul_w(lane, 4))

    def _address(self, place: Word, rank: int) -> str:
        ir = self.ir
        if self.shape.cluster == 1:
            return ir.word(place)
        return clusters.address_in(ir, place, rank)

    def _read(self, address: str, offset: int) -> str:
        space = "shared::cluster" if self.shape.cluster > 1 else "shared"
        scalar = self.shape.mma.accumulator
        text = f"ld.{space}.{scalar.replace('i', 's')} $0, [$1+{offset}];"
        return self.ir.asm(text, [(address, "i32")], result=scalar)

    def _add(self, a: str, b: str) -> str:
        type_ = self.shape.mma.accumulator
        return add(self.ir, a, b, type_)

    def _finish(
        self,
        inside: Word,
        place: tuple[Word, Word],
        totals: tuple[str, str],
        origin: tuple[Word, Word],
        c: GlobalOperand,
    ) -> None:
        ir, contraction = self.ir, self.contraction
        row, column = (ir.add_w(a, b) for a, b in zip(origin, place, strict=True))
        at: Where = {contraction.m: row, contraction.n: column}
        at |= {contraction.batch: ir.from_index(self.batch)} if contraction.batch else {}
        finish = Finish(ir=ir, contraction=contraction, values=self.values, buffers=self.buffers)
        words = finish.words(totals, (at, {**at, contraction.n: ir.add_w(column, 1)}))
        m, n = (ir.from_index(self.values[d]) for d in (contraction.m, contraction.n))
        down = ir.long("muli", ir.wide(row), c.stride)
        nbytes = element_type(contraction.c.type).bytes
        across = ir.long("muli", ir.wide(column), nbytes)
        address = ir.long("addi", c.address, ir.long("addi", down, across))
        here = ir.select_w(ir.compare_w("slt", row, m), ir.sub_w(n, column), 0)
        left = ir.select_w(ir.compare_w("ne", inside, 0), here, 0)
        store_directly(ir, contraction.c.type, address, left, 0, words)
