"""The device function of the body of few rows: copies, products, the sums of all waves."""

from __future__ import annotations

from dialects.operands import Contraction, Operand

from . import overlap
from .global_operand import GlobalOperand, global_operand
from .interface import bind_operands, constant_names, load_constants
from .mma_fragments import Multiplier
from .mma_shape import WAVE
from .ptx_text import PtxText, Word
from .rows_across import AcrossLoad
from .rows_along import AlongLoad
from .rows_load import Place, RowsLoad
from .rows_shape import RowsShape
from .rows_sum import Shares, SumStore


class RowsKernel:
    """Emits the function: place, loop over K, and what :mod:`.rows_sum` does of the sums.

    The turns of K go round the waves of all workgroups of a cluster, so that what is read at one
    time lies together. All waves take the same number of turns: a loop whose length differs
    between waves could have its instructions duplicated.
    """

    def __init__(
        self, contraction: Contraction, shape: RowsShape, layout: str, *, overlaps: bool = False
    ) -> None:
        """``overlaps`` has it wait itself for the kernel before it (see :mod:`.overlap`)."""
        self.ir = ir = PtxText()
        self.overlaps = overlaps
        self.contraction, self.shape = contraction, shape
        c, tile = contraction, shape.tile
        self.values = load_constants(ir, constant_names(c), layout)
        self.buffers = bind_operands(ir, c, self.values, layout)
        self.m, self.n, self.k = (ir.from_index(self.values[d]) for d in (c.m, c.n, c.k))
        self.batch = ir.value("hal.interface.workgroup.id[2] : index", "wg")
        group, row = (
            ir.from_index(ir.value(f"hal.interface.workgroup.id[{axis}] : index", "wg"))
            for axis in (0, 1)
        )
        self.rank = ir.rem_w(group, shape.cluster)
        self.row0 = ir.mul_w(row, tile.m)
        self.column0 = ir.mul_w(ir.div_w(group, shape.cluster), tile.n)
        self.thread = ir.from_index(ir.value("gpu.thread_id x", "lane"))
        wave = ir.shr_w(self.thread, 5)
        self.wave_n, self.wave_k = ir.rem_w(wave, tile.waves_n), ir.div_w(wave, tile.waves_n)
        self.lane = ir.and_w(self.thread, WAVE - 1)
        self.shared = ir.workgroup_bytes(shape.shared_bytes, alignment=16)

    def text(self) -> str:
        """The whole body."""
        ir, shape, c = self.ir, self.shape, self.contraction
        if self.overlaps:
            overlap.let_next_start(ir)
        load = (AlongLoad if shape.k_inner else AcrossLoad)(
            ir, shape, self._global(c.a), self._global(c.b), self._place()
        )
        sums = self._multiply(load)
        store = SumStore(
            ir=ir,
            contraction=c,
            shape=shape,
            values=self.values,
            buffers=self.buffers,
            batch=self.batch,
            shared=self.shared,
        )
        shares = Shares(thread=self.thread, rank=self.rank, wave_n=self.wave_n, wave_k=self.wave_k)
        store.store(sums, load, shares, (self.row0, self.column0), self._global(c.c))
        ir.emit("return")
        return ir.text()

    def _global(self, operand: Operand) -> GlobalOperand:
        buffer = self.buffers[operand.name]
        return global_operand(self.ir, self.contraction, self.values, buffer, operand, self.batch)

    def _place(self) -> Place:
        ir = self.ir
        column = ir.add_w(self.column0, ir.mul_w(self.wave_n, self.shape.wave_n))
        return Place(
            row=self.row0,
            rows_left=ir.sub_w(self.m, self.row0),
            column=column,
            columns_left=ir.sub_w(self.n, column),
            lane=self.lane,
        )

    def _multiply(self, load: RowsLoad) -> list[str]:
        """The sums of a wave over its turns; ``stages - 1`` of them are under way meanwhile.

        A slot is filled again right after its words have been taken.
        """
        ir, shape = self.ir, self.shape
        ahead, parts = shape.tile.stages - 1, shape.parts
        part = ir.add_w(ir.mul_w(self.rank, shape.tile.waves_k), self.wave_k)
        source_a = ir.long("addi", load.a.first, load.advance_a(part))
        source_b = ir.long("addi", load.b.first, load.advance_b(part))
        step_a, step_b = load.advance_a(parts), load.advance_b(parts)
        k_left: Word = ir.sub_w(self.k, ir.mul_w(part, shape.tile.k))
        depth = shape.tile.k * parts
        start = self._ring()
        if self.overlaps:
            overlap.await_previous(ir)
        end = ir.add_w(start, shape.tile.stages * shape.turn_bytes)
        for stage in range(ahead):
            slot = ir.add_w(start, stage * shape.turn_bytes)
            load.issue(slot, source_b, source_a, k_left)
            ir.asm("cp.async.commit_group;")
            source_a = ir.long("addi", source_a, step_a)
            source_b = ir.long("addi", source_b, step_b)
            k_left = ir.sub_w(k_left, depth)
        scalar = shape.mma.accumulator
        zeros = [(ir.constant(0, scalar), scalar)] * shape.sums
        multiplier = Multiplier(ir, shape.mma)

        def following(slot: Word) -> str:
            moved = ir.add_w(slot, shape.turn_bytes)
            return ir.word(ir.select_w(ir.compare_w("eq", moved, end), start, moved))

        def turn(_: str, carried: list[str]) -> list[str]:
            sums = carried[: shape.sums]
            a_at, b_at, left, read, fill = carried[shape.sums :]
            load.arrived(ahead - 1)
            b, a = load.take(read)
            load.issue(fill, b_at, a_at, left)
            ir.asm("cp.async.commit_group;")
            sums = self._products(multiplier, load, sums, a, b)
            moved = [ir.long("addi", a_at, step_a), ir.long("addi", b_at, step_b)]
            left = ir.word(ir.sub_w(left, depth))
            return [*sums, *moved, left, following(read), following(fill)]

        fill = ir.word(ir.add_w(start, ahead * shape.turn_bytes))
        initial = [*zeros, (source_a, "i64"), (source_b, "i64")]
        initial += [(ir.word(w), "i32") for w in (k_left, start, fill)]
        result = ir.loop_w(0, ir.ceildiv_w(self.k, depth), 1, initial, turn)
        load.arrived(0)  # the last ones have brought what nobody takes; sums take their place
        return result[: shape.sums]

    def _ring(self) -> Word:
        """The wave's own part of workgroup memory."""
        ir, shape = self.ir, self.shape
        wave = ir.add_w(ir.mul_w(self.wave_k, shape.tile.waves_n), self.wave_n)
        return ir.add_w(self.shared, ir.mul_w(wave, shape.wave_bytes))

    def _products(
        self,
        multiplier: Multiplier,
        load: RowsLoad,
        sums: list[str],
        a: list[str],
        b: list[str],
    ) -> list[str]:
        shape, result = self.shape, list(sums)
        for step in range(shape.steps):
            rows = [load.fragment_a(a, i, step) for i in range(shape.blocks)]
            for group in range(shape.groups):
                columns = load.fragment_b(b, group, step)
                for i, words in enumerate(rows):
                    at = 4 * (group * shape.blocks + i)
                    result[at : at + 4] = multiplier.multiply(result[at : at + 4], columns, words)
        return result
