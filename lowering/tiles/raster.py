"""The order in which workgroups of a linear grid take the tiles of a matrix."""

from __future__ import annotations

from dialects.member import Tile

from .ptx_text import PtxText, Word

# What runs at once on a large part, 132 multiprocessors with one 128 x 256 tile each, is as high as
# wide, and so reads the fewest rows of A and columns of B, when it is some 2048 rows high.
GROUP_ROWS = 2048


def grouped_tile(
    ir: PtxText, m: Word, n: Word, tile: Tile, height: int = GROUP_ROWS
) -> tuple[Word, Word]:
    """(first row, first column) of this workgroup's tile; x counts all tiles of the matrix.

    Tiles go down ``height`` rows of the matrix before they go right, so that those that run at the
    same time share rows of A and columns of B in the cache; the last group may be shorter.
    """
    group = max(height // tile.m, 1)
    workgroup = ir.from_index(ir.value("hal.interface.workgroup.id[0] : index", "wg"))
    rows, columns = ir.ceildiv_w(m, tile.m), ir.ceildiv_w(n, tile.n)
    per_group = ir.mul_w(columns, group)
    first = ir.mul_w(ir.div_w(workgroup, per_group), group)
    rest = ir.rem_w(workgroup, per_group)
    present = ir.least_w(ir.sub_w(rows, first), group)
    row = ir.add_w(first, ir.rem_w(rest, present))
    return ir.mul_w(row, tile.m), ir.mul_w(ir.div_w(rest, present), tile.n)
