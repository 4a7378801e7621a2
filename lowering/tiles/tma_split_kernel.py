"""Workgroups of a cluster share the K of one tile, and add up in each other's memory."""

from __future__ import annotations

from typing import ClassVar

from . import clusters
from .epilogue import add, compute_type
from .ptx_text import Word
from .tma_kernel import TmaKernel
from .warpgroup_mma import ROWS, THREADS
from .wgmma_epilogue import Finish, Words
from .wgmma_store import StagedStore

_QUAD = 16  # bytes of the four sums that a thread stores at a time


class TmaSplitKernel(TmaKernel):
    """Every workgroup finishes its share of the columns.

    A thread sends the sums of each share to the thread at its own place in the workgroup that
    finishes it, where the stages were. Added in the order of the parts of K, a result is the same
    every time.
    """

    meetings: ClassVar[int] = 2  # stages are free; sums have arrived

    def _store(
        self, tile: str, part: Word, struct: str, store: StagedStore, addresses: list[Word]
    ) -> None:
        ir, c, s = self.ir, self.contraction, self.shape
        values = self.wgmma.values(ir, struct)
        clusters.meet(ir)
        self._send(values, part, store.thread)
        clusters.meet(ir)
        totals = self._receive(len(values), part, store.thread)
        row, column, batch = self._origin(tile)
        row = ir.add_w(row, ir.mul_w(part, s.blocks * ROWS))
        columns = self.tile.n // s.splits
        column = ir.add_w(column, ir.mul_w(self.part, columns))
        finish = Finish(ir=ir, contraction=c, values=self.values, buffers=self.buffers)
        words = Words(finish, totals, columns, store.thread, (row, column, batch))
        if columns % store.columns:
            self._store_out(words)
        else:
            self._stage_out(words, store, addresses)

    def _place(self, count: int, part: Word, thread: Word, sender: Word) -> Word:
        """Where this thread's share of ``count`` sums from a workgroup starts."""
        ir, s = self.ir, self.shape
        share = count // s.splits * 4 * THREADS  # bytes of a warpgroup
        slot = ir.add_w(ir.mul_w(sender, s.consumers), part)
        return ir.add_w(ir.add_w(self.shared, ir.mul_w(slot, share)), ir.mul_w(thread, _QUAD))

    def _send(self, values: list[str], part: Word, thread: Word) -> None:
        ir, s = self.ir, self.shape
        per_block = len(values) // s.blocks
        per_share = per_block // s.splits
        mine = self._place(len(values), part, thread, self.part)
        for rank in range(s.splits):
            share = [
                value
                for block in range(s.blocks)
                for value in values[block * per_block + rank * per_share :][:per_share]
            ]
            to = clusters.address_in(ir, mine, rank)
            for quad in range(0, len(share), 4):
                offset = quad // 4 * THREADS * _QUAD
                text = f"st.shared::cluster.v4.b32 [$0+{offset}], {{$1, $2, $3, $4}};"
                scalar = self.wgmma.scalar
                ir.asm(text, [(to, "i32"), *((v, scalar) for v in share[quad : quad + 4])])

    def _receive(self, count: int, part: Word, thread: Word) -> list[str]:
        ir, s = self.ir, self.shape
        type_, scalar = compute_type(self.contraction), self.wgmma.scalar
        totals: list[str] = []
        for sender in range(s.splits):
            place = ir.word(self._place(count, part, thread, sender))
            found = []
            for quad in range(count // s.splits // 4):
                offset = quad * THREADS * _QUAD
                text = f"ld.shared.v4.b32 {{$0, $1, $2, $3}}, [$4+{offset}];"
                found += ir.asm_values(text, [scalar] * 4, [(place, "i32")])
            pairs = zip(totals or found, found, strict=True)
            totals = [add(ir, a, b, type_) for a, b in pairs] if totals else found
        return totals
