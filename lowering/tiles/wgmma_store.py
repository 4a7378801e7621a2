"""How a warpgroup's words reach C: staged through the copy engine, or one by one."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.types import element_type

from .ptx_text import PtxText, Word
from .tensor_map import ROW_BYTES

CHUNK_ROWS = 64
CHUNK_BYTES = CHUNK_ROWS * ROW_BYTES  # staged at a time by one warpgroup
BUFFERS = 2


@dataclass(frozen=True, kw_only=True)
class StagedStore:
    """One warpgroup's 64 rows leave in chunks of 128 bytes a row, through the copy engine.

    The engine clips what lies outside of C. ``buffer`` is the warpgroup's own staging memory,
    ``barrier`` its named barrier, ``thread`` the place in the warpgroup, ``tensor`` the map of C.
    """

    ir: PtxText
    type: str
    buffer: Word
    barrier: Word
    thread: Word
    tensor: str

    @property
    def columns(self) -> int:
        """Columns of one chunk."""
        return ROW_BYTES // element_type(self.type).bytes

    def addresses(self) -> list[Word]:
        """Where this lane writes its four 16-byte columns of a chunk, swizzled."""
        ir = self.ir
        warp, lane = ir.shr_w(self.thread, 5), ir.and_w(self.thread, 31)
        if element_type(self.type).bytes == 2:  # stmatrix: lanes 8i to 8i+7 name the rows of i
            matrix, row = ir.shr_w(lane, 3), ir.and_w(lane, 7)
            line = ir.add_w(ir.mul_w(warp, 16), ir.mul_w(ir.and_w(matrix, 1), 8))
            start = ir.add_w(self.buffer, ir.mul_w(ir.add_w(line, row), ROW_BYTES))
            column = ir.shr_w(matrix, 1)
        else:
            row = ir.shr_w(lane, 2)
            line = ir.add_w(ir.mul_w(warp, 16), row)
            start = ir.add_w(self.buffer, ir.mul_w(line, ROW_BYTES))
            start = ir.add_w(start, ir.mul_w(ir.and_w(lane, 1), 8))
            column = ir.and_w(ir.shr_w(lane, 1), 1)
        return [
            ir.add_w(start, ir.shl_w(ir.xor_w(ir.add_w(column, 2 * i), row), 4)) for i in range(4)
        ]

    def chunk(
        self,
        index: int,
        chunks: int,
        addresses: list[Word],
        words: list[str],
        coordinates: list[Word],
    ) -> None:
        """Stage ``words``, for every 8 columns those of both rows, and have the engine store them.

        A buffer is written once the engine has read what the chunk before it there left.
        """
        ir = self.ir
        offset = index % BUFFERS * CHUNK_BYTES
        pending = _pending(index, chunks)
        text = (
            "{ .reg .pred p; .reg .b32 y; setp.eq.u32 p, $4, 0; "
            f"@p cp.async.bulk.wait_group.read {pending}; bar.sync $5, 128; "
        )
        first = 8 + len(coordinates)
        per = 4 if element_type(self.type).bytes == 2 else 2
        for i in range(4):
            names = [f"${first + 4 * i + j}" for j in range(4)]
            if per == 4:
                text += (
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 "
                    f"[${i}+{offset}], {{{', '.join(names)}}}; "
                )
            else:
                for half in range(2):
                    pair = ", ".join(names[2 * half : 2 * half + 2])
                    text += f"st.shared.v2.b32 [${i}+{offset + half * 8 * ROW_BYTES}], {{{pair}}}; "
        where = ", ".join(f"${8 + i}" for i in range(len(coordinates)))
        text += (
            f"fence.proxy.async.shared::cta; bar.sync $5, 128; add.s32 y, $6, {offset}; "
            f"@p cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.bulk_group "
            f"[$7, {{{where}}}], [y]; @p cp.async.bulk.commit_group; }}"
        )
        operands = [(ir.word(a), "i32") for a in addresses]
        operands += [(ir.word(w), "i32") for w in (self.thread, self.barrier, self.buffer)]
        operands += [(self.tensor, "i64"), *((ir.word(c), "i32") for c in coordinates)]
        ir.asm(text, [*operands, *((w, "i32") for w in words)])

    def drain(self) -> None:
        """Until the engine has stored everything."""
        text = "{ .reg .pred p; setp.eq.u32 p, $0, 0; @p cp.async.bulk.wait_group 0; }"
        self.ir.asm(text, [(self.ir.word(self.thread), "i32")])


def _pending(index: int, chunks: int) -> int:
    """Stores that may still read while this chunk's buffer is written; chunks go round."""
    distance = 1
    while ((index - distance) % chunks) % BUFFERS != index % BUFFERS:
        distance += 1
    return distance - 1


def store_directly(
    ir: PtxText, type_: str, row: str, columns_left: Word, column: int, words: list[str]
) -> None:
    """Store two neighbours where they are inside; any alignment will do.

    ``row`` is the address of this lane's first element in its row (i64), ``columns_left`` how many
    columns there are from it on, at most 0 outside; ``column`` is the first one's distance.
    """
    size = element_type(type_).bytes
    text = f"{{ .reg .pred p, q; setp.gt.s32 p, $1, {column}; setp.gt.s32 q, $1, {column + 1}; "
    names = ["$2", "$3"]
    if size == 2:
        text += ".reg .b16 a, b; mov.b32 {a, b}, $2; "
        names = ["a", "b"]
    for predicate, name, offset in zip("pq", names, (column, column + 1), strict=True):
        text += f"@{predicate} st.global.b{8 * size} [$0+{offset * size}], {name}; "
    operands = [(row, "i64"), (ir.word(columns_left), "i32"), *((w, "i32") for w in words)]
    ir.asm(f"{text}}}", operands)
