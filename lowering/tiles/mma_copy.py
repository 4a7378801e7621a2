"""Copies of A and B from global to workgroup memory: asynchronous ones, and through registers.

What lies outside the matrix becomes zero, and its address is never read. A lane copies the same
chunk of several rows, ``threads / chunks`` rows apart. This is the seam for other sources of an
operand: what :class:`RegisterCopy` does may make its words in any way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .mma_shape import CHUNK, MmaShape, StagedRows
from .ptx_text import PtxText, Word

_WORDS = CHUNK // 4


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where an operand's tiles are read from: its first element, sizes and row stride in bytes.

    ``outer`` counts rows left from the tile's first, ``inner`` elements left along a row; the one
    that is K is None and comes with each tile.
    """

    address: str
    stride: str
    outer: Word | None
    inner: Word | None


class OperandCopy:
    """What both kinds of copies share: the lane's place in a tile, and how it moves along K."""

    def __init__(
        self, ir: PtxText, shape: MmaShape, staged: StagedRows, window: Window, lane: Word
    ) -> None:
        self.ir, self.shape, self.staged, self.window = ir, shape, staged, window
        self.row, self.chunk = ir.div_w(lane, staged.chunks), ir.rem_w(lane, staged.chunks)
        self.step = shape.threads // staged.chunks
        self.count = staged.passes(shape.threads)
        self._places = {
            phase: staged.place(ir, ir.add_w(self.row, phase), self.chunk)
            for phase in staged.phases(shape.threads)[: self.count]
        }
        self._left = (
            window.outer if window.outer is None else ir.sub_w(window.outer, self.row),
            window.inner if window.inner is None else ir.sub_w(window.inner, self._element),
        )
        self._rows_left = ir.sub_w(staged.rows, self.row) if staged.rows % self.step else None
        self._pass_bytes = ir.long("muli", window.stride, self.step)
        self.start = self._first_address()

    @property
    def _element(self) -> Word:
        """The lane's first element along a row."""
        return self.ir.mul_w(self.chunk, self.shape.per)

    def _first_address(self) -> str:
        ir = self.ir
        down = ir.long("muli", ir.wide(self.row), self.window.stride)
        across = ir.wide(ir.mul_w(self.chunk, CHUNK))
        return ir.long("addi", self.window.address, ir.long("addi", down, across))

    def advance(self, address: str) -> str:
        """The address in the next tile along K."""
        ir, k = self.ir, self.shape.tile.k
        if self.staged.k_inner:
            return ir.long("addi", address, k * self.shape.bytes)
        return ir.long("addi", address, ir.long("muli", self.window.stride, k))

    def left(self, k_left: Word) -> tuple[str, str]:
        """(rows, elements of a row) that this lane has left in the tile with ``k_left`` of K."""
        ir, (outer, inner) = self.ir, self._left
        if outer is None:
            outer = ir.sub_w(k_left, self.row)
        if inner is None:
            inner = ir.sub_w(k_left, self._element)
        return ir.word(outer), ir.word(inner)

    def next_pass(self, address: str) -> str:
        """The address of the lane's next row."""
        return self.ir.long("addi", address, self._pass_bytes)

    def place(self, slot: Word, index: int) -> tuple[str, int]:
        """(address, bytes to add) in workgroup memory of one pass; ``slot`` is the stage's own."""
        first = index * self.step
        phase = first % self.staged.period
        base = self.ir.word(self.ir.add_w(slot, self._places[phase]))
        return base, (first - phase) * self.staged.row_bytes

    def guard(self, index: int, operand: int) -> tuple[str, str, list[tuple[str, str]]]:
        """PTX that keeps lanes without a row in the tile from writing: (test, prefix, operands).

        Only the last pass may be partial.
        """
        if self._rows_left is None or (index + 1) * self.step <= self.staged.rows:
            return "", "", []
        test = f"setp.gt.s32 g, ${operand}, {index * self.step}; "
        return f".reg .pred g; {test}", "@g ", [(self.ir.word(self._rows_left), "i32")]


class AsyncCopy(OperandCopy):
    """``cp.async``, 16 or 4 bytes each; a source size of 0 fills with zeros."""

    def issue(self, address: str, slot: Word, left: tuple[str, str], passes: Iterable[int]) -> str:
        """Copy these passes, the first of them at ``address``; the address after the last."""
        for index in passes:
            where, offset = self.place(slot, index)
            self._chunk(address, where, offset, left, index)
            if index + 1 < self.count:
                address = self.next_pass(address)
        return address

    def _chunk(
        self, address: str, where: str, offset: int, left: tuple[str, str], index: int
    ) -> None:
        width = self.shape.copy_bytes
        test, prefix, more = self.guard(index, 4)
        kind = "cg" if width == CHUNK else "ca"  # only 16 bytes may bypass the first cache
        text = f"{{ .reg .pred p, q; .reg .b32 s; {test}setp.gt.s32 p, $2, {index * self.step}; "
        for part in range(0, CHUNK, width):
            text += (
                f"setp.gt.and.s32 q, $3, {part // self.shape.bytes}, p; "
                f"selp.b32 s, {width}, 0, q; "
                f"{prefix}cp.async.{kind}.shared.global [$0+{offset + part}], [$1+{part}], "
                f"{width}, s; "
            )
        operands = [(where, "i32"), (address, "i64"), (left[0], "i32"), (left[1], "i32"), *more]
        self.ir.asm(text + "}", operands)


class RegisterCopy(OperandCopy):
    """Element by element into registers, and from there, a chunk at a time: any stride will do."""

    def fetch(self, address: str, left: tuple[str, str]) -> list[str]:
        """This lane's part of a tile as 32-bit words, four to a chunk."""
        words = []
        for index in range(self.count):
            words += [self._word(address, left, index, w) for w in range(_WORDS)]
            if index + 1 < self.count:
                address = self.next_pass(address)
        return words

    def _word(self, address: str, left: tuple[str, str], index: int, word: int) -> str:
        size = self.shape.bytes
        per = 4 // size
        load = {1: "ld.global.u8", 2: "ld.global.u16"}[size]
        text = f"{{ .reg .pred p, q; .reg .b32 t; setp.gt.s32 p, $2, {index * self.step}; "
        text += "mov.b32 $0, 0; "
        for i in range(per):
            element = word * per + i
            text += f"setp.gt.and.s32 q, $3, {element}, p; mov.b32 t, 0; "
            text += f"@q {load} t, [$1+{element * size}]; "
            text += f"shl.b32 t, t, {8 * size * i}; or.b32 $0, $0, t; "
        operands = [(address, "i64"), (left[0], "i32"), (left[1], "i32")]
        return self.ir.asm(text + "}", operands, result="i32", early=True)

    def put(self, words: list[str], slot: Word) -> None:
        """Store what :meth:`fetch` returned."""
        for index in range(self.count):
            where, offset = self.place(slot, index)
            mine = words[index * _WORDS : (index + 1) * _WORDS]
            test, prefix, more = self.guard(index, 1 + _WORDS)
            self.ir.asm(
                f"{{ {test}{prefix}st.shared.v4.b32 [$0+{offset}], {{$1, $2, $3, $4}}; }}",
                [(where, "i32"), *((w, "i32") for w in mine), *more],
            )
