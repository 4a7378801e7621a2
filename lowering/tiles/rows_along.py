"""What a wave loads of few rows where K is the contiguous axis of B."""

from __future__ import annotations

from collections.abc import Sequence

from .global_operand import GlobalOperand
from .mma_shape import WAVE
from .ptx_text import Word
from .rows_load import Copy, RowsLoad, Stream, Take
from .rows_shape import CHUNK, GROUP, ROWS


class AlongLoad(RowsLoad):
    """B stored (N, K): a lane takes what it has copied, 16 bytes of K of one column or row.

    Lane 4g + t has columns g and g + 8 of sixteen, bytes 16t to 16t+15 of 64; they are two steps.
    """

    def _stream_b(self, b: GlobalOperand) -> Stream:
        halves = [GROUP * j + 8 * h for j in range(self.shape.groups) for h in range(2)]
        return self._stream(b, self.place.column, self.place.columns_left, halves)

    def _stream_a(self, a: GlobalOperand) -> Stream:
        rows = range(0, self.shape.tile.m, ROWS)
        return self._stream(a, self.place.row, self.place.rows_left, rows)

    def _stream(
        self, operand: GlobalOperand, first: Word, left: Word, lines: Sequence[int]
    ) -> Stream:
        """Of ``lines`` the one that is the lane's own, counted from ``first``."""
        ir, shape, lane = self.ir, self.shape, self.place.lane
        g, t = ir.shr_w(lane, 2), ir.and_w(lane, 3)
        along = ir.mul_w(t, CHUNK // shape.bytes)
        place = ir.mul_w(lane, CHUNK)
        own_left = ir.sub_w(left, g)
        copies, takes = [], []
        for line in lines:
            below = ir.long("muli", operand.stride, line) if line else None
            inside = self.inside(own_left, line)
            for pair in range(shape.steps // 2):
                offset = len(takes) * WAVE * CHUNK
                copies.append(
                    Copy(
                        place=ir.add_w(place, offset),
                        line=below,
                        offset=4 * CHUNK * pair,
                        k=4 * CHUNK // shape.bytes * pair,
                        inside=inside,
                    )
                )
                takes.append(Take(place=place, offset=offset, words=4))
        start = self.start(operand, ir.add_w(first, g), along)
        return Stream(first=start, first_k=along, copies=copies, takes=takes)

    def advance_b(self, turn: Word) -> str:
        return self.advance_a(turn)

    def _pair(self, words: Sequence[str], line: int, step: int) -> list[str]:
        first = line * self.shape.steps * 2 + 2 * step
        return list(words[first : first + 2])

    def fragment_b(self, words: Sequence[str], group: int, step: int) -> list[str]:
        low, high = (self._pair(words, 2 * group + half, step) for half in range(2))
        return [low[0], high[0], low[1], high[1]]

    def fragment_a(self, words: Sequence[str], block: int, step: int) -> list[str]:
        return self._pair(words, block, step)

    def slot(self, column: Word) -> tuple[Word, Word, Word]:
        ir = self.ir
        return ir.shr_w(column, 4), ir.and_w(ir.shr_w(column, 3), 1), ir.and_w(column, 7)
