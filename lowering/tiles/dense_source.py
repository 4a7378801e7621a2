"""Dense operands: one element at a time, or up to four 32-bit words."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.types import element_type

from .epilogue import convert
from .interface import STORAGE, storage_type
from .kernel_text import Index
from .staging import WORD, Bound, Fetched
from .word_parts import bits_up, elements_of_word, load_word, part_of_word


class DenseElements:
    """A dense operand, one element at a time: any size, stride and type."""

    run = 1

    def __init__(self, bound: Bound) -> None:
        self._bound, self._ir, self._operand = bound, bound.ir, bound.staging.operand
        self._mlir = storage_type(self._operand.type)
        self._view = bound.view(self._mlir, element_type(self._operand.type).bytes)

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """One element."""
        ir = self._ir
        position = ir.index(self._bound.values.offset(ir, self._operand, indices))
        safe = ir.select(inside, position, ir.index(0), "index")
        raw = ir.value(f"memref.load {self._view}[{safe}] : memref<?x{self._mlir}, {STORAGE}>")
        return Fetched(loaded=(raw,), inside=inside)

    def decode(self, fetched: Fetched) -> list[str]:
        """Widened to the compute type."""
        ir, type_name = self._ir, self._bound.type_name
        value = convert(ir, fetched.loaded[0], self._operand.type, type_name)
        mlir = element_type(type_name).mlir
        return [ir.select(fetched.inside, value, self._bound.zero(), mlir)]


class DensePart:
    """A dense operand of 8 or 16 bits, one element at a time, each cut out of a 32-bit word."""

    run = 1

    def __init__(self, bound: Bound) -> None:
        self._bound, self._ir, self._operand = bound, bound.ir, bound.staging.operand
        self._bits = element_type(self._operand.type).bits
        self._view = bound.view("i32", WORD)

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """The word that holds the element, and how far up in it that is, in bits."""
        ir, per = self._ir, 8 * WORD // self._bits
        position = ir.index(self._bound.values.offset(ir, self._operand, indices))
        safe = ir.select(inside, position, ir.index(0), "index")
        word = load_word(ir, self._view, ir.div(safe, per))
        return Fetched(loaded=(word, bits_up(ir, ir.rem(safe, per), self._bits)), inside=inside)

    def decode(self, fetched: Fetched) -> list[str]:
        """Moved to the bottom of the word and converted."""
        ir = self._ir
        word, up = fetched.loaded
        word = ir.select(fetched.inside, word, ir.constant(0, "i32"), "i32")
        low = ir.value(f"arith.shrui {word}, {up} : i32")
        return [part_of_word(ir, low, 0, self._operand.type, self._bound.type_name)]


class DenseWords:
    """A dense operand, 4 to 16 bytes at a time: rows and sizes must be whole runs."""

    def __init__(self, bound: Bound) -> None:
        self._bound, self._ir, self._operand = bound, bound.ir, bound.staging.operand
        self.run = bound.staging.run
        self._words = self.run * element_type(self._operand.type).bytes // WORD
        self._unit = "i32" if self._words == 1 else f"vector<{self._words}xi32>"
        self._view = bound.view(self._unit, self._words * WORD)

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """All words of the run in one load."""
        ir = self._ir
        position = ir.div(self._bound.values.offset(ir, self._operand, indices), self.run)
        safe = ir.select(inside, ir.index(position), ir.index(0), "index")
        raw = ir.value(f"memref.load {self._view}[{safe}] : memref<?x{self._unit}, {STORAGE}>")
        return Fetched(loaded=(raw,), inside=inside)

    def decode(self, fetched: Fetched) -> list[str]:
        """Each word cut into its elements."""
        ir = self._ir
        (raw,) = fetched.loaded
        words = [raw]
        if self._words > 1:
            words = [
                ir.value(f"vector.extract {raw}[{i}] : i32 from {self._unit}")
                for i in range(self._words)
            ]
        elements = []
        for word in words:
            word = ir.select(fetched.inside, word, ir.constant(0, "i32"), "i32")
            elements += elements_of_word(ir, word, self._operand.type, self._bound.type_name)
        return elements
