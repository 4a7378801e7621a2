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
from .ptx_text import PtxText, Word
from .rows_shape import CHUNK, RowsShape


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

    def start(self, operand: GlobalOperand, lines: Word, along: Word) -> str:
        """The address ``lines`` lines down and ``along`` elements further."""
        ir = self.ir
        down = ir.long("muli", ir.wide(lines), operand.stride)
        across = ir.long("muli", ir.wide(along), self.shape.bytes)
        return ir.long("addi", operand.address, ir.long("addi", down, across))

    def inside(self, left: Word, offset: Word = 0) -> Word:
        """1 where more than ``offset`` are left, else 0."""
        ir = self.ir
        return ir.select_w(ir.compare_w("sgt", left, offset), 1, 0)
