"""The order in which a persistent grid walks the tiles of C."""

from __future__ import annotations

from dataclasses import dataclass

from .ptx_text import PtxText, Word


@dataclass(frozen=True, kw_only=True)
class TileOrder:
    """``rows`` x ``columns`` tiles of each of ``batches`` results, as 32-bit words.

    ``group`` rows of tiles are walked together, so that their A and B stay in the L2 cache.
    """

    rows: Word
    columns: Word
    batches: Word
    group: int

    def count(self, ir: PtxText) -> Word:
        """All tiles."""
        return ir.mul_w(ir.mul_w(self.rows, self.columns), self.batches)

    def place(self, ir: PtxText, index: Word) -> tuple[Word, Word, Word]:
        """(row, column, batch) of the tile of that index.

        Within a group of rows, columns are walked row by row; every other group walks them
        backwards, so that it starts where the last one ended.
        """
        per_batch = ir.mul_w(self.rows, self.columns)
        batch: Word = 0
        if self.batches != 1:
            batch, index = ir.div_w(index, per_batch), ir.rem_w(index, per_batch)
        per_group = ir.mul_w(self.columns, self.group)
        group, within = ir.div_w(index, per_group), ir.rem_w(index, per_group)
        first = ir.mul_w(group, self.group)
        rows = ir.least_w(ir.sub_w(self.rows, first), self.group)
        row, column = ir.add_w(first, ir.rem_w(within, rows)), ir.div_w(within, rows)
        backwards = ir.sub_w(ir.sub_w(self.columns, 1), column)
        odd = ir.compare_w("ne", ir.and_w(group, 1), 0)
        return row, ir.select_w(odd, backwards, column), batch
