"""Copies of A and B from global to workgroup memory: asynchronous ones, and through registers.

What lies outside the matrix becomes zero, and its address is never read. A lane copies the same
chunk of several rows, ``threads / chunks`` rows apart. This is the seam for other sources of an
operand: a :class:`HeldCopy` may make its chunks of any words.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .mma_shape import CHUNK, MmaShape, StagedRows
from .ptx_text import PtxText, Word

_WORDS = CHUNK // 4


@dataclass(frozen=True, kw_only=True)
class Window:
    """Where an operand's tiles are read from: its first element, sizes and row stride in bytes.

    ``outer`` counts rows left from the tile's first, ``inner`` elements left along a row; the one
    that is K is None and comes with each tile. ``bounds`` are the addresses at which the whole
    operand, all batches of it, begins and ends, where the copies ask for them.
    """

    address: str
    stride: str
    outer: Word | None
    inner: Word | None
    bounds: tuple[str, str] | None = None


class OperandCopy:
    """What all copies share: a lane's place in a tile, and how it moves along K.

    A lane copies ``span`` neighbouring chunks of a row at a time.
    """

    span: ClassVar[int] = 1

    def __init__(
        self, ir: PtxText, shape: MmaShape, staged: StagedRows, window: Window, lane: Word
    ) -> None:
        self.ir, self.shape, self.staged, self.window = ir, shape, staged, window
        lanes, at_once = staged.chunks // self.span, shape.threads * self.span
        self.row = ir.div_w(lane, lanes)
        self.chunk = ir.mul_w(ir.rem_w(lane, lanes), self.span)
        self.step = shape.threads // lanes
        self.count = staged.passes(at_once)
        self._places = {
            phase: [
                staged.place(ir, ir.add_w(self.row, phase), ir.add_w(self.chunk, part))
                for part in range(self.span)
            ]
            for phase in staged.phases(at_once)[: self.count]
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

    @property
    def _across(self) -> Word:
        """Bytes from the start of a row to the lane's part of it."""
        return self.ir.mul_w(self.chunk, CHUNK)

    def _row_bytes(self, elements: int) -> int:
        """Bytes that neighbouring elements of a row take."""
        return elements * self.shape.bytes

    def _first_address(self) -> str:
        ir = self.ir
        down = ir.long("muli", ir.wide(self.row), self.window.stride)
        across = ir.wide(self._across)
        return ir.long("addi", self.window.address, ir.long("addi", down, across))

    def advance(self, address: str) -> str:
        """The address in the next tile along K."""
        ir, k = self.ir, self.shape.tile.k
        if self.staged.k_inner:
            return ir.long("addi", address, self._row_bytes(k))
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

    def place(self, slot: Word, index: int, part: int = 0) -> tuple[str, int]:
        """(address, bytes to add) of a pass's chunk in the stage at ``slot``."""
        first = index * self.step
        phase = first % self.staged.period
        base = self.ir.word(self.ir.add_w(slot, self._places[phase][part]))
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


class HeldCopy(OperandCopy, ABC):
    """Through registers: a lane's words wait there, ``held`` of them for each pass."""

    held: ClassVar[int]

    def fetch(self, address: str, left: tuple[str, str]) -> list[str]:
        """The words of this lane's part of a tile, loaded but not looked at."""
        words = []
        for index in range(self.count):
            words += self.load(address, left, index)
            if index + 1 < self.count:
                address = self.next_pass(address)
        return words

    def put(self, words: Sequence[str], slot: Word) -> None:
        """Store what :meth:`fetch` returned."""
        for index in range(self.count):
            made = self.chunks_of(words[index * self.held : (index + 1) * self.held])
            for part in range(self.span):
                self._store(made[part * _WORDS : (part + 1) * _WORDS], slot, index, part)

    def _store(self, chunk: Sequence[str], slot: Word, index: int, part: int) -> None:
        where, offset = self.place(slot, index, part)
        test, prefix, more = self.guard(index, 1 + _WORDS)
        self.ir.asm(
            f"{{ {test}{prefix}st.shared.v4.b32 [$0+{offset}], {{$1, $2, $3, $4}}; }}",
            [(where, "i32"), *((w, "i32") for w in chunk), *more],
        )

    @abstractmethod
    def load(self, address: str, left: tuple[str, str], index: int) -> list[str]:
        """The words of one pass."""

    @abstractmethod
    def chunks_of(self, words: Sequence[str]) -> Sequence[str]:
        """What to store of one pass, four words to a chunk."""
