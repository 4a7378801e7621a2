"""The order in which workgroups of a linear grid take the tiles of a matrix."""

from __future__ import annotations

from dialects.member import Tile

from .ptx_text import PtxText, Word


def grouped_tile(ir: PtxText, m: Word, n: Word, tile: Tile, group: int) -> tuple[Word, Word]:
    """(first row, first column) of this workgroup's tile; x counts all tiles of the matrix.

    Tiles go down ``group`` rows of tiles before they go right, so that those that run at the same
    time share rows of A and columns of B in the cache; the last group may be shorter.
    """
    workgroup = ir.from_index(ir.value("hal.interface.workgroup.id[0] : index", "wg"))
    rows, columns = ir.ceildiv_w(m, tile.m), ir.ceildiv_w(n, tile.n)
    per_group = ir.mul_w(columns, group)
    first = ir.mul_w(ir.div_w(workgroup, per_group), group)
    rest = ir.rem_w(workgroup, per_group)
    height = ir.least_w(ir.sub_w(rows, first), group)
    row = ir.add_w(first, ir.rem_w(rest, height))
    return ir.mul_w(row, tile.m), ir.mul_w(ir.div_w(rest, height), tile.n)
