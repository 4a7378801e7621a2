"""Block-quantised operands on their way to ``mma.sync``: through registers, decoded to f16.

Two neighbouring lanes share a q8_0 block, so that a wave reads whole rows of a tile. An int8 is
exact in f16, and its product with the scale in f32: one packed f16 product rounds as that product,
rounded to f16, does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from dialects.block_formats import Q8_0

from .mma_copy import HeldCopy
from .ptx_text import Word

_QUANTS = 2  # bytes of the scale, after which the quants start
_WORDS = 4  # of a half block
# f16 1024 + x has x in its low byte: a byte q + 128 put there is 1152 + q
_SIGNS, _HIGH, _BIAS = -0x7F7F7F80, 0x64646464, 0x64806480
_LOW_PAIR, _HIGH_PAIR, _TWICE = "0x4140", "0x4342", "0x1010"  # bytes that prmt takes


class BlockCopy(HeldCopy):
    """GGUF q8_0 along K, half a block a lane and pass.

    Blocks start at multiples of 2 bytes, so that quants are loaded in aligned words and shifted
    into place: held are the five words that they lie in, the scale, and how many bits up in the
    first word they start. Nothing outside the block is read.
    """

    span: ClassVar[int] = 2
    held: ClassVar[int] = _WORDS + 3

    @property
    def _half(self) -> Word:
        """Halves of blocks from the start of a row to the lane's."""
        return self.ir.div_w(self.chunk, self.span)

    @property
    def _across(self) -> Word:
        return self.ir.mul_w(self.ir.shr_w(self._half, 1), Q8_0.bytes)

    def _row_bytes(self, elements: int) -> int:
        return elements // Q8_0.elements * Q8_0.bytes

    def load(self, address: str, left: tuple[str, str], index: int) -> list[str]:
        """See :class:`.mma_copy.HeldCopy`."""
        ir = self.ir
        quants = ir.add_w(ir.mul_w(ir.bit_w(self._half, 0), Q8_0.elements // 2), _QUANTS)
        first = ir.add_d(address, ir.wide(quants))
        low = ir.long("andi", first, 2)
        odd = ir.value(f"arith.cmpi ne, {low}, {ir.index(0, 'i64')} : i64", "p")
        half = ir.word(ir.select_w(odd, 2, 0))
        inputs = [
            *((ir.long("subi", first, ir.wide(half)), "i64"), (address, "i64")),
            *((left[0], "i32"), (left[1], "i32"), (half, "i32")),
        ]
        loaded = ir.asm_values(self._loads(index), ["i32"] * (_WORDS + 2), inputs, early=True)
        return [*loaded, ir.word(ir.mul_w(half, 8))]

    def _loads(self, index: int) -> str:
        """PTX: results are the words and the scale, then the words' and the block's address."""
        scale = _WORDS + 1
        words, block, rows, elements, half = (f"${scale + i}" for i in range(1, 6))
        text = f"{{ .reg .pred p, q; setp.gt.s32 p, {rows}, {index * self.step}; "
        text += f"setp.gt.and.s32 p, {elements}, 0, p; setp.gt.and.s32 q, {half}, 0, p; "
        text += "".join(f"mov.b32 ${i}, 0; " for i in range(scale + 1))
        for word in range(_WORDS):
            text += f"@p ld.global.u32 ${word}, [{words}+{4 * word}]; "
        text += f"@q ld.global.u16 ${_WORDS}, [{words}+{4 * _WORDS}]; "
        return text + f"@p ld.global.u16 ${scale}, [{block}]; }}"

    def chunks_of(self, words: Sequence[str]) -> Sequence[str]:
        """See :class:`.mma_copy.HeldCopy`."""
        *quants, scale, up = words
        scale = self._pure(f"prmt.b32 $0, $1, $1, {_TWICE};", scale)
        made = []
        for low, high in pairwise(quants):
            four = self._pure("shf.r.wrap.b32 $0, $1, $2, $3;", low, high, up)
            four = self.ir.word(self.ir.xor_w(four, _SIGNS))
            made += [self._decoded(four, scale, pair) for pair in (_LOW_PAIR, _HIGH_PAIR)]
        return made

    def _decoded(self, four: str, scale: str, pair: str) -> str:
        """Two of four bytes q + 128 as f16, times the scale, rounded once."""
        ir = self.ir
        text = f"{{ .reg .b32 t; prmt.b32 t, $1, $2, {pair}; "
        text += "sub.rn.f16x2 t, t, $3; mul.rn.f16x2 $0, t, $4; }"
        return self._pure(text, four, ir.word(_HIGH), ir.word(_BIAS), scale)

    def _pure(self, text: str, *operands: str) -> str:
        return self.ir.asm(text, [(o, "i32") for o in operands], result="i32", pure=True)
