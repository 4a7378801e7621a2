"""Elements of 8 and 16 bits as parts of 32-bit words, for devices without narrow loads."""

from __future__ import annotations

from dialects.types import element_type

from .epilogue import convert
from .interface import STORAGE
from .kernel_text import Index, KernelText
from .staging import WORD


def load_word(ir: KernelText, view: str, position: Index) -> str:
    """One 32-bit word of a view of words."""
    return ir.value(f"memref.load {view}[{ir.index(position)}] : memref<?xi32, {STORAGE}>")


def bits_up(ir: KernelText, place: Index, bits: int) -> str:
    """How many bits above the bottom of its word the ``place``-th part of ``bits`` bits starts."""
    count = ir.index(ir.mul(place, bits))
    return ir.value(f"arith.index_castui {count} : index to i32")


def elements_of_word(ir: KernelText, word: str, stored: str, wanted: str) -> list[str]:
    """The 1, 2 or 4 elements of a 32-bit word, lowest first, converted."""
    element = element_type(stored)
    if element.bits == 32:
        value = word if element.mlir == "i32" else ir.value(f"arith.bitcast {word} : i32 to f32")
        return [convert(ir, value, stored, wanted)]
    return [
        part_of_word(ir, word, shift, stored, wanted) for shift in range(0, 8 * WORD, element.bits)
    ]


def part_of_word(ir: KernelText, word: str, shift: int, stored: str, wanted: str) -> str:
    """The 8- or 16-bit element ``shift`` bits up in a 32-bit word, converted.

    Without 16-bit integers, which a part may lack that has f16.
    """
    element = element_type(stored)
    if element.name == "bf16":  # the upper half of an f32
        if shift:
            high = ir.value(f"arith.andi {word}, {ir.constant(-65536, 'i32')} : i32")
        else:
            high = ir.value(f"arith.shli {word}, {ir.constant(16, 'i32')} : i32")
        return convert(ir, ir.value(f"arith.bitcast {high} : i32 to f32"), "f32", wanted)
    if element.kind == "float":
        one = ir.value(f"vector.broadcast {word} : i32 to vector<1xi32>")
        both = ir.value(f"vector.bitcast {one} : vector<1xi32> to vector<2xf16>")
        half = ir.value(f"vector.extract {both}[{shift // 16}] : f16 from vector<2xf16>")
        return convert(ir, half, stored, wanted)
    above = 8 * WORD - element.bits - shift
    top = ir.value(f"arith.shli {word}, {ir.constant(above, 'i32')} : i32") if above else word
    down = "shrsi" if element.kind == "signed" else "shrui"
    amount = ir.constant(8 * WORD - element.bits, "i32")
    return convert(ir, ir.value(f"arith.{down} {top}, {amount} : i32"), "i32", wanted)
