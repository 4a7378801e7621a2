"""Block-quantised operands, decoded as they are staged."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.block_formats import Q8_0

from .epilogue import convert
from .kernel_text import Index
from .staging import WORD, Bound, Fetched
from .word_parts import bits_up, elements_of_word, load_word, part_of_word


class Q8Blocks:
    """GGUF q8_0 along the innermost axis, through a view of 32-bit words.

    A block's address is a multiple of 2 and no more: quants are shifted into place from pairs of
    words. The scale is read once for a run, which never leaves its block.
    """

    def __init__(self, bound: Bound) -> None:
        self._bound, self._ir, self._operand = bound, bound.ir, bound.staging.operand
        self.run = bound.staging.run
        self._view = bound.view("i32", WORD)

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """The words of the scale and of the quants, and how far up each starts, in bits."""
        ir = self._ir
        *outer, k = indices
        row = self._bound.values.offset(ir, self._operand, [*outer, 0])  # all in bytes
        block = ir.index(ir.add(row, ir.mul(ir.div(k, Q8_0.elements), Q8_0.bytes)))
        safe = ir.select(inside, block, ir.index(0), "index")
        first = ir.add(ir.add(safe, 2), ir.rem(k, Q8_0.elements))
        # the last word that is needed: one more could lie behind the buffer
        last = ir.div(ir.add(first, self.run - 1), WORD)
        places = [*(ir.add(ir.div(first, WORD), i) for i in range(self.run // WORD)), last]
        return Fetched(
            loaded=(
                load_word(ir, self._view, ir.div(safe, WORD)),
                bits_up(ir, ir.rem(safe, WORD), 8),
                bits_up(ir, ir.rem(first, WORD), 8),
                *(load_word(ir, self._view, place) for place in places),
            ),
            inside=inside,
        )

    def decode(self, fetched: Fetched) -> list[str]:
        """d * q in f32, rounded to the operand's type; the scale of what is outside is 0."""
        ir = self._ir
        scale, scale_up, up, *words = fetched.loaded
        scale = part_of_word(
            ir, ir.value(f"arith.shrui {scale}, {scale_up} : i32"), 0, "f16", "f32"
        )
        scale = ir.select(fetched.inside, scale, ir.constant(0, "f32"), "f32")
        quants: list[str] = []
        for word in self._shifted(words, up):
            quants += elements_of_word(ir, word, "i8", "f32")
        values = [ir.value(f"arith.mulf {q}, {scale} : f32") for q in quants[: self.run]]
        return [self._rounded(v) for v in values]

    def _shifted(self, words: list[str], up: str) -> list[str]:
        """Words that start with the first quant: the top of one and the bottom of the next."""
        ir = self._ir
        low = [ir.value(f"arith.shrui {word}, {up} : i32") for word in words]
        if len(words) == 1:
            return low
        # by 1 and by 31 - up, because a shift by 32 is no number
        rest = ir.value(f"arith.subi {ir.constant(31, 'i32')}, {up} : i32")
        result = []
        for bottom, following in zip(low, words[1:], strict=False):
            twice = ir.value(f"arith.shli {following}, {ir.constant(1, 'i32')} : i32")
            top = ir.value(f"arith.shli {twice}, {rest} : i32")
            result.append(ir.value(f"arith.ori {bottom}, {top} : i32"))
        return result

    def _rounded(self, value: str) -> str:
        value = convert(self._ir, value, "f32", self._operand.type)
        return convert(self._ir, value, self._operand.type, self._bound.type_name)
