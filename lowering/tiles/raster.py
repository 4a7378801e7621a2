"""The order in which workgroups take the tiles of C."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.member import Tile

from .ptx_text import PtxText, Word

# What runs at once on a large part, 132 multiprocessors with one 128 x 256 tile each, is as high as
# wide, and so reads the fewest rows of A and columns of B, when it is some 2048 rows high.
GROUP_ROWS = 2048


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


def grouped_tile(ir: PtxText, m: Word, n: Word, tile: Tile) -> tuple[Word, Word]:
    """(first row, first column) of this workgroup's tile in a linear grid."""
    order = TileOrder(
        rows=ir.ceildiv_w(m, tile.m),
        columns=ir.ceildiv_w(n, tile.n),
        batches=1,
        group=max(GROUP_ROWS // tile.m, 1),
    )
    workgroup = ir.from_index(ir.value("hal.interface.workgroup.id[0] : index", "wg"))
    row, column, _ = order.place(ir, workgroup)
    return ir.mul_w(row, tile.m), ir.mul_w(column, tile.n)
