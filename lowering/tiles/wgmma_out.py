"""A warpgroup's finished words on their way out: chunk by chunk through staging, or two by two."""

from __future__ import annotations

from dialects.types import element_type

from .global_operand import GlobalOperand
from .ptx_text import Word
from .warpgroup_mma import ROWS
from .wgmma_epilogue import Words
from .wgmma_store import StagedStore, store_directly


def stage_out(words: Words, store: StagedStore, addresses: list[Word], blocks: int) -> None:
    """``blocks`` of 64 rows through staging memory, whole chunks of columns."""
    ir, chunks = store.ir, words.columns // store.columns
    groups = range(store.columns // 8)
    tail = [words.batch] if words.contraction.batch else []
    for index in range(blocks * chunks):
        block, chunk = divmod(index, chunks)
        staged = [
            word
            for group in groups
            for half in range(2)
            for word in words.pair(block, chunk * len(groups) + group, half)
        ]
        column = ir.add_w(words.column, chunk * store.columns)
        where = [column, ir.add_w(words.row, block * ROWS), *tail]
        store.chunk(index, blocks * chunks, addresses, staged, where)


def store_out(words: Words, place: GlobalOperand, sizes: tuple[Word, Word], blocks: int) -> None:
    """``blocks`` of 64 rows, two neighbours at a time, at any alignment.

    ``place`` is C in this batch, ``sizes`` are its rows and columns.
    """
    ir, type_ = words.ir, words.contraction.c.type
    m, n = sizes
    size = element_type(type_).bytes
    first = ir.add_d(place.address, ir.mul_d(ir.wide(words.own_column), size))
    left = ir.sub_w(n, words.own_column)
    for block in range(blocks):
        for half in range(2):
            row = ir.add_w(words.own_row, block * ROWS + 8 * half)
            line = ir.add_d(first, ir.mul_d(ir.wide(row), place.stride))
            inside = ir.select_w(ir.compare_w("ult", row, m), left, 0)
            for group in range(words.columns // 8):
                pair = words.pair(block, group, half)
                store_directly(ir, type_, line, inside, 8 * group, pair)
