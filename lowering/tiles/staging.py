"""How a workgroup copies an operand, and what every source of its elements is made from."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from dialects.block_formats import block_format
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .interface import KernelValues, bind_buffer
from .kernel_text import KernelText

WORD = 4  # bytes of the words that wide copies are made of
WIDE_BYTES = 16  # the widest load of every GPU
LONGEST_RUN = 16  # elements of a block decoded at a time: half a block, five words in registers


@dataclass(frozen=True, kw_only=True)
class Staging:
    """How a workgroup of ``threads`` lanes copies ``extent`` x ``outer`` elements of an operand.

    ``extent`` is the tile's size along the operand's contiguous axis. ``words`` says that elements
    of 8 and 16 bits are cut out of 32-bit words, for parts that cannot load them.
    """

    operand: Operand
    extent: int
    outer: int
    threads: int
    wide: bool
    words: bool

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
        """What the operand's strides, its innermost size and its start must be multiples of."""
        if self.operand.source is not None:
            # a scale must not straddle two words; whole blocks are a rule of their own
            return block_alignment(self.operand) | {self.operand.name: WORD}
        if self.run == 1:
            return {}
        return dict.fromkeys((*self.operand.strides, self.operand.dims[-1]), self.run)

    @property
    def in_words(self) -> bool:
        """Whether the buffer is read in 32-bit words, of which the last must be whole."""
        operand = self.operand
        narrow = element_type(operand.stored_type).bytes < WORD
        return operand.source is not None or (self.words and narrow)

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


def block_alignment(operand: Operand) -> dict[str, int]:
    """What the strides of an operand that comes in blocks must be multiples of."""
    assert operand.source is not None
    return dict.fromkeys(operand.strides, block_format(operand.source).alignment)


def copied_contraction(
    contraction: Contraction, extents: dict[str, int], threads: int, *, wide: bool, words: bool
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
            words=words,
        )

    return staging(contraction.a), staging(contraction.b)


@dataclass(frozen=True, kw_only=True)
class Bound:
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


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A run in flight: what was loaded, and whether it lies inside the operand."""

    loaded: tuple[str, ...]
    inside: str
