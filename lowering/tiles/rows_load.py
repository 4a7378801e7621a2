"""Fragments of the body of few rows: what each wave copies of A and B, and how it takes it up.

The columns of C are the rows of the instruction, so that few rows of C waste little of it. K may be
counted in any order as long as A and B agree, and so may the columns of C: what a lane takes from
workgroup memory, 16 bytes at a time, is by that order a fragment (PTX ISA, section 9.7.14). A wave
reads only what it has copied itself, so that waves never wait for each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from .global_operand import GlobalOperand
from .mma_shape import WAVE
from .ptx_text import PtxText, Word
from .rows_shape import CHUNK, GROUP, ROWS, RowsShape

_LOW, _HIGH = "0x5410", "0x7632"  # halves of two registers that prmt takes


@dataclass(frozen=True, kw_only=True)
class Place:
    """The wave's first row of A and column of B, what is left from there, and the lane."""

    row: Word
    rows_left: Word
    column: Word
    columns_left: Word
    lane: Word


@dataclass(frozen=True, kw_only=True)
class Copy:
    """16 bytes that a lane copies each turn.

    ``place`` is where to, from the operand's part of a slot; ``line`` the distance of its line in
    global memory (i64, None for the first), ``offset`` bytes from there, ``k`` its distance along
    K from the lane's first, ``inside`` 0 where it lies outside of the matrix.
    """

    place: Word
    line: str | None
    offset: int
    k: int
    inside: Word


@dataclass(frozen=True, kw_only=True)
class Take:
    """``words`` 32-bit words that a lane reads, from the operand's part of a slot."""

    place: Word
    offset: int
    words: int


@dataclass(frozen=True, kw_only=True)
class Stream:
    """One operand: its copies and takes, the lane's first address, and its first element of K."""

    first: str
    first_k: Word
    copies: Sequence[Copy]
    takes: Sequence[Take]


class RowsLoad(ABC):
    """Copies one turn of a wave, ``tile.k`` elements of K, and makes fragments of it."""

    def __init__(
        self, ir: PtxText, shape: RowsShape, a: GlobalOperand, b: GlobalOperand, place: Place
    ) -> None:
        self.ir, self.shape, self.place = ir, shape, place
        self.stride_b = b.stride
        self.b, self.a = self._stream_b(b), self._stream_a(a)

    @abstractmethod
    def _stream_b(self, b: GlobalOperand) -> Stream: ...

    @abstractmethod
    def _stream_a(self, a: GlobalOperand) -> Stream: ...

    @abstractmethod
    def advance_b(self, turn: Word) -> str:
        """Bytes from the first turn of B to another one, an i64."""

    @abstractmethod
    def fragment_b(self, words: Sequence[str], group: int, step: int) -> list[str]:
        """Four registers of 16 columns of B at one step of K."""

    @abstractmethod
    def fragment_a(self, words: Sequence[str], block: int, step: int) -> list[str]:
        """Two registers of eight rows of A at one step of K."""

    @abstractmethod
    def slot(self, column: Word) -> tuple[Word, Word, Word]:
        """(group, half, lane row) whose sum is that of a wave's column."""

    def advance_a(self, turn: Word) -> str:
        """Bytes from the first turn of A to another one, an i64."""
        bytes_ = self.shape.tile.k * self.shape.bytes
        return self.ir.long("muli", self.ir.wide(turn), bytes_)

    def issue(self, slot: Word, source_b: str, source_a: str, k_left: Word) -> None:
        """Copy one turn to a slot; what lies outside becomes zero.

        ``k_left`` counts from the turn's first element of K.
        """
        ir = self.ir
        for stream, source, base in (
            (self.b, source_b, 0),
            (self.a, source_a, self.shape.bytes_b),
        ):
            left = ir.word(ir.sub_w(k_left, stream.first_k))
            for copy in stream.copies:
                to = ir.word(ir.add_w(slot, copy.place))
                address = source if copy.line is None else ir.long("addi", source, copy.line)
                text = (
                    f"{{ .reg .pred p; .reg .b32 s; setp.gt.s32 p, $2, {copy.k}; "
                    f"setp.ne.and.s32 p, $3, 0, p; selp.b32 s, {CHUNK}, 0, p; "
                    f"cp.async.cg.shared.global [$0+{base}], [$1+{copy.offset}], {CHUNK}, s; }}"
                )
                operands = [(to, "i32"), (address, "i64"), (left, "i32")]
                ir.asm(text, [*operands, (ir.word(copy.inside), "i32")])

    def arrived(self, pending: int) -> None:
        """All turns but the last ``pending`` are there for the whole wave.

        By then all lanes have taken the turn before, whose slot may be filled again.
        """
        self.ir.asm(f"cp.async.wait_group {pending}; bar.warp.sync 0xffffffff;")

    def take(self, slot: Word) -> tuple[list[str], list[str]]:
        """The words of B and of A of a turn that has arrived."""
        return self._taken(self.b, slot, 0), self._taken(self.a, slot, self.shape.bytes_b)

    def _taken(self, stream: Stream, slot: Word, base: int) -> list[str]:
        ir, words = self.ir, []
        for take in stream.takes:
            place, count = ir.word(ir.add_w(slot, take.place)), take.words
            names = ", ".join(f"${i}" for i in range(count))
            text = f"ld.shared.v{count}.b32 {{{names}}}, [${count}+{base + take.offset}];"
            words += ir.asm_values(text, ["i32"] * count, [(place, "i32")])
        return words

    def _start(self, operand: GlobalOperand, lines: Word, along: Word) -> str:
        """The address ``lines`` lines down and ``along`` elements further."""
        ir = self.ir
        down = ir.long("muli", ir.wide(lines), operand.stride)
        across = ir.long("muli", ir.wide(along), self.shape.bytes)
        return ir.long("addi", operand.address, ir.long("addi", down, across))

    def _inside(self, left: Word, offset: Word = 0) -> Word:
        """1 where more than ``offset`` are left, else 0."""
        ir = self.ir
        return ir.select_w(ir.compare_w("sgt", left, offset), 1, 0)


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
        inside = self._inside(self.place.columns_left, column)
        copies = []
        for first in range(0, shape.tile.k, lines):
            line = ir.add_w(row, first)
            swizzled = ir.xor_w(chunk, self._swizzle_b(line))
            at = ir.add_w(ir.mul_w(line, chunks), swizzled)
            below = ir.long("muli", b.stride, first) if first else None
            copies.append(
                Copy(place=ir.mul_w(at, CHUNK), line=below, offset=0, k=first, inside=inside)
            )
        start = self._start(b, row, ir.add_w(self.place.column, column))
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
        start = self._start(a, ir.add_w(self.place.row, row), along)
        return Stream(first=start, first_k=along, copies=copies, takes=self._takes_a())

    def _row_inside(self, row: Word, first: int) -> Word:
        """Rows of the tile beyond the wave's copies, where those hold more, are outside too."""
        ir = self.ir
        left = ir.least_w(self.place.rows_left, self.shape.tile.m)
        return self._inside(left, ir.add_w(row, first))

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
            inside = self._inside(own_left, line)
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
        start = self._start(operand, ir.add_w(first, g), along)
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
