"""What a wave loads of few rows where the columns of B are contiguous."""

from __future__ import annotations

from collections.abc import Sequence

from .global_operand import GlobalOperand
from .mma_shape import WAVE
from .ptx_text import Word
from .rows_load import Copy, RowsLoad, Stream, Take
from .rows_shape import CHUNK, GROUP, ROWS

_LOW, _HIGH = "0x5410", "0x7632"  # halves of two registers that prmt takes


class AcrossLoad(RowsLoad):
    """B stored (K, N), of 16 bits.

    The wave copies lines of its columns, lane by lane along them. Lane 4g + t then takes the
    columns of its g, of rows 4t to 4t+3 of sixteen; ``prmt`` pairs two rows. Of A it takes four
    elements of K. Chunks are swizzled so that neither meets in a bank.
    """

    def _stream_b(self, b: GlobalOperand) -> Stream:
        ir, shape, lane = self.ir, self.shape, self.place.lane
        chunks = shape.wave_n * shape.bytes // CHUNK  # of a line
        lines = WAVE // chunks  # that are copied at once
        row, chunk = ir.div_w(lane, chunks), ir.rem_w(lane, chunks)
        column = ir.mul_w(chunk, CHUNK // shape.bytes)
        inside = self.inside(self.place.columns_left, column)
        copies = []
        for first in range(0, shape.tile.k, lines):
            line = ir.add_w(row, first)
            swizzled = ir.xor_w(chunk, self._swizzle_b(line))
            at = ir.add_w(ir.mul_w(line, chunks), swizzled)
            below = ir.long("muli", b.stride, first) if first else None
            copies.append(
                Copy(place=ir.mul_w(at, CHUNK), line=below, offset=0, k=first, inside=inside)
            )
        start = self.start(b, row, ir.add_w(self.place.column, column))
        return Stream(first=start, first_k=row, copies=copies, takes=self._takes_b(chunks))

    def _swizzle_b(self, line: Word) -> Word:
        """By the lane that takes it: the four that share a g find four pairs of banks."""
        ir = self.ir
        most = self.shape.wave_n * self.shape.bytes // CHUNK - 1
        return ir.and_w(ir.mul_w(ir.and_w(ir.shr_w(line, 2), 3), 2), min(most, 7))

    def _takes_b(self, chunks: int) -> list[Take]:
        ir, shape, lane = self.ir, self.shape, self.place.lane
        g, t = ir.shr_w(lane, 2), ir.and_w(lane, 3)
        line = ir.mul_w(t, 4)
        width = self._words * 4
        takes = []
        for block in range(shape.groups // self._words):
            byte = ir.add_w(ir.mul_w(g, width), block * 8 * width)
            chunk = ir.xor_w(ir.shr_w(byte, 4), self._swizzle_b(line))
            at = ir.add_w(ir.mul_w(ir.mul_w(line, chunks), CHUNK), ir.mul_w(chunk, CHUNK))
            place = ir.add_w(at, ir.and_w(byte, CHUNK - 1))
            takes += [
                Take(place=place, offset=(GROUP * step + row) * chunks * CHUNK, words=self._words)
                for step in range(shape.steps)
                for row in range(4)
            ]
        return takes

    @property
    def _words(self) -> int:
        """That a lane takes of a line at a time: two columns each."""
        return min(self.shape.groups, 4)

    def _stream_a(self, a: GlobalOperand) -> Stream:
        ir, shape, lane = self.ir, self.shape, self.place.lane
        chunks = shape.chunks_a
        lines = WAVE // chunks
        row, chunk = ir.div_w(lane, chunks), ir.rem_w(lane, chunks)
        along = ir.mul_w(chunk, CHUNK // shape.bytes)
        copies = []
        for first in range(0, shape.tile.m, lines):
            line = ir.add_w(row, first)
            at = ir.add_w(ir.mul_w(line, chunks), ir.xor_w(chunk, self._swizzle_a(line)))
            below = ir.long("muli", a.stride, first) if first else None
            copies.append(
                Copy(
                    place=ir.mul_w(at, CHUNK),
                    line=below,
                    offset=0,
                    k=0,
                    inside=self._row_inside(row, first),
                )
            )
        start = self.start(a, ir.add_w(self.place.row, row), along)
        return Stream(first=start, first_k=along, copies=copies, takes=self._takes_a())

    def _row_inside(self, row: Word, first: int) -> Word:
        """Rows of the tile beyond the wave's copies, where those hold more, are outside too."""
        ir = self.ir
        left = ir.least_w(self.place.rows_left, self.shape.tile.m)
        return self.inside(left, ir.add_w(row, first))

    def _swizzle_a(self, line: Word) -> Word:
        """Four rows that are taken together find four pairs of banks."""
        ir, chunks = self.ir, self.shape.chunks_a
        return ir.and_w(ir.mul_w(ir.div_w(line, max(8 // chunks, 1)), 2), chunks - 1)

    def _takes_a(self) -> list[Take]:
        ir, shape, lane = self.ir, self.shape, self.place.lane
        row, t = ir.shr_w(lane, 2), ir.and_w(lane, 3)
        chunks, takes = shape.chunks_a, []
        places = []
        for step in range(shape.steps):
            chunk = ir.xor_w(ir.add_w(ir.shr_w(t, 1), 2 * step), self._swizzle_a(row))
            at = ir.mul_w(ir.add_w(ir.mul_w(row, chunks), chunk), CHUNK)
            places.append(ir.add_w(at, ir.mul_w(ir.and_w(t, 1), 8)))
        for block in range(shape.blocks):
            offset = ROWS * block * chunks * CHUNK
            takes += [Take(place=place, offset=offset, words=2) for place in places]
        return takes

    def advance_b(self, turn: Word) -> str:
        ir = self.ir
        rows = ir.long("muli", ir.wide(turn), self.shape.tile.k)
        return ir.long("muli", rows, self.stride_b)

    def fragment_b(self, words: Sequence[str], group: int, step: int) -> list[str]:
        block, word = divmod(group, self._words)
        first = (block * self.shape.steps + step) * 4
        rows = [words[(first + row) * self._words + word] for row in range(4)]
        return [
            self._permute(rows[pair], rows[pair + 1], halves)
            for pair in (0, 2)
            for halves in (_LOW, _HIGH)
        ]

    def fragment_a(self, words: Sequence[str], block: int, step: int) -> list[str]:
        first = (block * self.shape.steps + step) * 2
        return list(words[first : first + 2])

    def slot(self, column: Word) -> tuple[Word, Word, Word]:
        ir, words = self.ir, self._words
        word = ir.rem_w(ir.shr_w(column, 1), words)
        block = ir.div_w(column, 16 * words)
        down = ir.and_w(ir.div_w(column, 2 * words), 7)
        return ir.add_w(ir.mul_w(block, words), word), ir.and_w(column, 1), down

    def _permute(self, low: str, high: str, select: str) -> str:
        text = f"prmt.b32 $0, $1, $2, {select};"
        return self.ir.asm(text, [(low, "i32"), (high, "i32")], result="i32", pure=True)
