"""Operands whose rows start anywhere, on their way to ``mma.sync``: shifted in registers.

A chunk of 16 bytes at any address lies in two aligned ones. A lane loads those, and takes its chunk
out of them when it puts it into workgroup memory: two wide loads instead of one an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from .mma_copy import HeldCopy
from .mma_shape import CHUNK

_WORDS = CHUNK // 4
_LOADED = 2 * _WORDS


class ShiftedCopy(HeldCopy):
    """For any stride. Nothing outside of the operand is read.

    Held are eight words, the byte of them at which the chunk starts, and how many bytes of it are
    inside of the matrix. Where an aligned chunk reaches beyond the operand, elements are loaded one
    by one.
    """

    held: ClassVar[int] = _LOADED + 2

    def load(self, address: str, left: tuple[str, str], index: int) -> list[str]:
        """See :class:`.mma_copy.HeldCopy`."""
        inputs = [(address, "i64"), (left[0], "i32"), (left[1], "i32")]
        assert self.window.bounds is not None
        inputs += [(bound, "i64") for bound in self.window.bounds]
        text = self._aligned(index) + self._one_by_one()
        return self.ir.asm_values(text, ["i32"] * self.held, inputs, early=True)

    def _aligned(self, index: int) -> str:
        """PTX: results are the words, where the chunk starts in them, and its bytes."""
        start, count = (f"${_LOADED + i}" for i in range(2))
        address, rows, elements, begin, end = (f"${self.held + i}" for i in range(5))
        first, second = (", ".join(f"${i + j}" for j in range(_WORDS)) for i in (0, _WORDS))
        size = self.shape.bytes
        return (
            "{ .reg .pred p, q, f, s; .reg .b32 t; .reg .b64 b, c; "
            + "".join(f"mov.b32 ${i}, 0; " for i in range(_LOADED))
            + f"setp.gt.s32 p, {rows}, {index * self.step}; "
            f"setp.gt.and.s32 p, {elements}, 0, p; min.s32 {count}, {elements}, {self.shape.per}; "
            f"mul.lo.s32 {count}, {count}, {size}; selp.b32 {count}, {count}, 0, p; "
            f"cvt.u32.u64 {start}, {address}; and.b32 {start}, {start}, {CHUNK - 1}; "
            f"cvt.u64.u32 b, {start}; sub.s64 b, {address}, b; "
            f"add.s32 t, {start}, {count}; setp.gt.s32 q, t, {CHUNK}; "
            f"selp.b32 t, {2 * CHUNK}, {CHUNK}, q; cvt.u64.u32 c, t; add.s64 c, b, c; "
            f"setp.ge.u64 f, b, {begin}; setp.le.and.u64 f, c, {end}, f; "
            "and.pred q, q, f; and.pred f, f, p; "
            f"@f ld.global.v4.b32 {{{first}}}, [b]; "
            f"@q ld.global.v4.b32 {{{second}}}, [b+{CHUNK}]; "
        )

    def _one_by_one(self) -> str:
        size = self.shape.bytes
        per, load = 4 // size, {1: "ld.global.u8", 2: "ld.global.u16"}[size]
        address, elements = f"${self.held}", f"${self.held + 2}"
        text = f"not.pred s, f; and.pred s, s, p; @!s bra D; @s mov.b32 ${_LOADED}, 0; "
        for element in range(self.shape.per):
            word = f"${element // per}"
            text += f"setp.gt.and.s32 q, {elements}, {element}, s; mov.b32 t, 0; "
            text += f"@q {load} t, [{address}+{element * size}]; "
            text += f"shl.b32 t, t, {8 * size * (element % per)}; or.b32 {word}, {word}, t; "
        return text + "D: }"

    def chunks_of(self, words: Sequence[str]) -> Sequence[str]:
        """See :class:`.mma_copy.HeldCopy`."""
        loaded = [f"${_WORDS + i}" for i in range(_LOADED)]
        start, count = (f"${_WORDS + _LOADED + i}" for i in range(2))
        names = [f"a{i}" for i in range(_WORDS + 2)]
        text = f"{{ .reg .pred p; .reg .b32 t, {', '.join(names)}; "
        text += f"and.b32 t, {start}, 8; setp.ne.s32 p, t, 0; "
        for i, name in enumerate(names):
            text += f"selp.b32 {name}, {loaded[i + 2]}, {loaded[i]}, p; "
        text += f"and.b32 t, {start}, 4; setp.ne.s32 p, t, 0; "
        for low, high in pairwise(names):
            text += f"selp.b32 {low}, {high}, {low}, p; "
        text += f"shl.b32 t, {start}, 3; "
        for i in range(_WORDS):
            text += f"shf.r.wrap.b32 ${i}, {names[i]}, {names[i + 1]}, t; "
        text += f"setp.ge.s32 p, {count}, {CHUNK}; @p bra D; "
        for i in range(_WORDS):  # bytes beyond the matrix; shifts by more than 31 give 0
            text += f"sub.s32 t, {count}, {4 * i}; max.s32 t, t, 0; shl.b32 t, t, 3; "
            text += f"shl.b32 t, 0xffffffff, t; not.b32 t, t; and.b32 ${i}, ${i}, t; "
        inputs = [(word, "i32") for word in words]
        return self.ir.asm_values(text + "D: }", ["i32"] * _WORDS, inputs, early=True)
