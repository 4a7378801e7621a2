"""Where the elements of an operand come from: the ``stage(k)`` seam of every GPU body.

A body copies an operand in runs of consecutive elements along its contiguous axis. A source binds
the operand's buffer once, then fetches runs (:meth:`OperandSource.fetch`, global loads and nothing
that waits for them) and decodes what it has fetched into the compute type (:meth:`decode`), so that
a body can put its products in between. Dense operands come element by element or in 16-byte words;
block formats come with one scale a run. Transposes, batches and leading dimensions are all in the
indices that a body passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from dialects.block_formats import Q8_0, block_format
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import convert
from .interface import STORAGE, KernelValues, bind_buffer, storage_type
from .kernel_text import Index, KernelText

DECODED = (Q8_0.name,)  # block formats that :func:`bind_source` serves
WORD = 4  # bytes of the words that wide copies are made of
WIDE_BYTES = 16  # the widest load of every GPU
LONGEST_RUN = 16  # elements of a block decoded at a time: half a block, eight words in registers


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A run in flight: what was loaded, and whether it lies inside the operand."""

    loaded: tuple[str, ...]
    inside: str


class OperandSource(Protocol):
    """One bound operand. ``run`` is how many elements come at a time."""

    run: int

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """Load the run that starts at ``indices``, one for each of the operand's dims.

        The last index must be a multiple of ``run``. Not ``inside``, some valid address is read.
        """
        ...

    def decode(self, fetched: Fetched) -> list[str]:
        """The run's elements in the compute type; zeros where it was not inside."""
        ...


@dataclass(frozen=True, kw_only=True)
class Staging:
    """How a workgroup of ``threads`` lanes copies ``extent`` x ``outer`` elements of an operand.

    ``extent`` is the tile's size along the operand's contiguous axis.
    """

    operand: Operand
    extent: int
    outer: int
    threads: int
    wide: bool

    @property
    def run(self) -> int:
        """Elements a lane copies at a time: the longest run that leaves no lane without one."""
        operand = self.operand
        if operand.source is not None:
            longest = gcd(LONGEST_RUN, gcd(block_format(operand.source).elements, self.extent))
        else:
            longest = WIDE_BYTES // element_type(operand.type).bytes if self.wide else 1
        runs = [r for r in (16, 8, 4, 2) if r <= longest and self.extent % r == 0]
        return next((r for r in runs if self.extent * self.outer // r >= self.threads), 1)

    @property
    def passes(self) -> int:
        """Runs that a lane copies for each tile."""
        return -(-self.extent * self.outer // (self.run * self.threads))

    @property
    def alignment(self) -> dict[str, int]:
        """What the operand's strides and its innermost size must be multiples of."""
        if self.operand.source is not None:
            # rows of 16-bit words; whole blocks are a rule of their own
            return dict.fromkeys(self.operand.strides, 2)
        if self.run == 1:
            return {}
        return dict.fromkeys((*self.operand.strides, self.operand.dims[-1]), self.run)

    @property
    def refusal(self) -> str | None:
        """Why these runs cannot be loaded, or None."""
        operand = self.operand
        if operand.source is not None and self.run == 1:
            return f"{operand.source} is read in pairs, each lane would copy one element"
        if operand.source is None and self.wide and self.run < WORD:
            return (
                f"each lane would copy {self.run} < {WORD} elements of '{operand.name}' at a time"
            )
        return None


def copied_contraction(
    contraction: Contraction, extents: dict[str, int], threads: int, *, wide: bool
) -> tuple[Staging, Staging]:
    """How A and B are copied; ``extents`` are the tile's sizes by the names of the sizes."""

    def staging(operand: Operand) -> Staging:
        outer, inner = operand.dims[-2:]
        return Staging(
            operand=operand,
            extent=extents[inner],
            outer=extents[outer],
            threads=threads,
            wide=wide,
        )

    return staging(contraction.a), staging(contraction.b)


def bind_source(
    ir: KernelText,
    staging: Staging,
    *,
    layout: str,
    binding: int,
    values: KernelValues,
    type_name: str,
) -> OperandSource:
    """Bind the buffer of an operand; its elements come as ``type_name``."""
    bound = _Bound(
        ir=ir, staging=staging, layout=layout, binding=binding, values=values, type_name=type_name
    )
    if staging.operand.source is not None:
        return Q8Blocks(bound)
    return DenseWords(bound) if staging.run > 1 else DenseElements(bound)


@dataclass(frozen=True, kw_only=True)
class _Bound:
    """What every source is made from."""

    ir: KernelText
    staging: Staging
    layout: str
    binding: int
    values: KernelValues
    type_name: str

    def view(self, mlir: str, nbytes: int) -> str:
        """The buffer in units of that type; each holds a whole number of stored elements."""
        operand, ir = self.staging.operand, self.ir
        span = self.values.span(ir, operand)
        return bind_buffer(
            ir,
            layout=self.layout,
            binding=self.binding,
            type_name=operand.stored_type,
            count=ir.ceildiv(span, nbytes // element_type(operand.stored_type).bytes),
            read_only=True,
            unit=(mlir, nbytes),
        )

    def zero(self) -> str:
        """Zero in the compute type."""
        return self.ir.constant(0, element_type(self.type_name).mlir)


class DenseElements:
    """A dense operand, one element at a time: any size, stride and type."""

    run = 1

    def __init__(self, bound: _Bound) -> None:
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


class DenseWords:
    """A dense operand, 4 to 16 bytes at a time: rows and sizes must be whole runs."""

    def __init__(self, bound: _Bound) -> None:
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


def elements_of_word(ir: KernelText, word: str, stored: str, wanted: str) -> list[str]:
    """The 1, 2 or 4 elements of a 32-bit word, lowest first, converted."""
    element = element_type(stored)
    if element.bits == 32:
        value = word if element.mlir == "i32" else ir.value(f"arith.bitcast {word} : i32 to f32")
        return [convert(ir, value, stored, wanted)]
    return [_part(ir, word, shift, stored, wanted) for shift in range(0, 8 * WORD, element.bits)]


def _part(ir: KernelText, word: str, shift: int, stored: str, wanted: str) -> str:
    element = element_type(stored)
    if element.name == "bf16":  # the upper half of an f32
        if shift:
            high = ir.value(f"arith.andi {word}, {ir.constant(-65536, 'i32')} : i32")
        else:
            high = ir.value(f"arith.shli {word}, {ir.constant(16, 'i32')} : i32")
        return convert(ir, ir.value(f"arith.bitcast {high} : i32 to f32"), "f32", wanted)
    if element.kind == "float":
        low = word
        if shift:
            low = ir.value(f"arith.shrui {word}, {ir.constant(shift, 'i32')} : i32")
        half = ir.value(f"arith.trunci {low} : i32 to i16")
        return convert(ir, ir.value(f"arith.bitcast {half} : i16 to f16"), stored, wanted)
    above = 8 * WORD - element.bits - shift
    top = ir.value(f"arith.shli {word}, {ir.constant(above, 'i32')} : i32") if above else word
    down = "shrsi" if element.kind == "signed" else "shrui"
    amount = ir.constant(8 * WORD - element.bits, "i32")
    return convert(ir, ir.value(f"arith.{down} {top}, {amount} : i32"), "i32", wanted)


class Q8Blocks:
    """GGUF q8_0 along the innermost axis, through one view of 16-bit words, 17 a block.

    A block's address is a multiple of 2 and no more, so its bytes come in pairs. The scale is read
    once for a run, which never leaves its block.
    """

    def __init__(self, bound: _Bound) -> None:
        self._bound, self._ir, self._operand = bound, bound.ir, bound.staging.operand
        self.run = bound.staging.run
        self._view = bound.view("i16", 2)

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """The scale, and two quants a word."""
        ir = self._ir
        *outer, k = indices
        row = self._bound.values.offset(ir, self._operand, [*outer, 0])  # bytes
        block = ir.mul(ir.div(k, Q8_0.elements), Q8_0.bytes // 2)
        base = ir.index(ir.add(ir.div(row, 2), block))
        safe = ir.select(inside, base, ir.index(0), "index")
        first = ir.add(ir.add(safe, 1), ir.div(ir.rem(k, Q8_0.elements), 2))
        places = [safe, *(ir.add(first, i) for i in range(self.run // 2))]
        loaded = tuple(
            ir.value(f"memref.load {self._view}[{ir.index(p)}] : memref<?xi16, {STORAGE}>")
            for p in places
        )
        return Fetched(loaded=loaded, inside=inside)

    def decode(self, fetched: Fetched) -> list[str]:
        """d * q in f32, rounded to the operand's type; the scale of what is outside is 0."""
        ir = self._ir
        scale, *words = fetched.loaded
        half = ir.value(f"arith.bitcast {scale} : i16 to f16")
        scale = ir.value(f"arith.extf {half} : f16 to f32")
        scale = ir.select(fetched.inside, scale, ir.constant(0, "f32"), "f32")
        elements = []
        for pair in words:
            word = ir.value(f"arith.extui {pair} : i16 to i32")
            for up in (24, 16):
                top = ir.value(f"arith.shli {word}, {ir.constant(up, 'i32')} : i32")
                quant = ir.value(f"arith.shrsi {top}, {ir.constant(24, 'i32')} : i32")
                value = ir.value(f"arith.sitofp {quant} : i32 to f32")
                elements.append(ir.value(f"arith.mulf {value}, {scale} : f32"))
        return [self._rounded(e) for e in elements]

    def _rounded(self, value: str) -> str:
        value = convert(self._ir, value, "f32", self._operand.type)
        return convert(self._ir, value, self._operand.type, self._bound.type_name)
