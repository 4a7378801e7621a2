"""What is multiplied with what: operands, contractions, and the operand groups that get a tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, lcm, prod
from typing import Literal

from .block_formats import DECODED_TYPES, RAW_TYPE, block_format
from .errors import FormatError
from .types import element_type

Tier = Literal["native", "software"]
TIERS: tuple[Tier, ...] = ("native", "software")
StepKind = Literal["add", "mul", "max", "min", "cast"]


@dataclass(frozen=True, kw_only=True)
class Operand:
    """A tensor argument or result.

    ``dims`` are the names of its sizes, outermost first; the innermost is contiguous, each other
    one has a stride of its own at run time. A transposed B is one whose dims are (N, K).
    ``source`` says where elements of ``type`` come from: null is dense, a name is the block format
    (:mod:`.block_formats`) that raw bytes are decoded from.
    """

    name: str
    type: str
    dims: tuple[str, ...]
    source: str | None = None

    @property
    def stored_type(self) -> str:
        """The element type of the tensor that a caller passes."""
        return self.type if self.source is None else RAW_TYPE

    @property
    def strides(self) -> tuple[str, ...]:
        """Names of the strides that a launch passes, in stored elements, outermost first."""
        return tuple(f"{self.name}.{i}" for i in range(len(self.dims) - 1))


@dataclass(frozen=True, kw_only=True)
class EpilogueStep:
    """One elementwise step on the accumulated value: with an operand, a constant, or a cast."""

    op: StepKind
    operand: str | None = None
    constant: float | None = None
    type: str | None = None


@dataclass(frozen=True, kw_only=True)
class Product:
    """A further A * B over the same sizes, summed in a type of its own and then added to C's sum.

    A sum in another kind of type than C's is converted as it is added.
    """

    a: Operand
    b: Operand
    accumulator: str


@dataclass(frozen=True, kw_only=True)
class Contraction:
    """C[batch, m, n] (+)= sum over k of A * B, plus further products, then the epilogue.

    The names in ``batch, m, n, k`` are the kernel's size names. ``extras`` are the operands that
    only the epilogue reads. ``accumulate`` says that C is read as the starting value. ``more`` are
    products that only a kernel in cooperative-matrix IR can have.
    """

    batch: str | None = None
    m: str
    n: str
    k: str
    a: Operand
    b: Operand
    c: Operand
    accumulator: str
    accumulate: bool = False
    more: tuple[Product, ...] = ()
    extras: tuple[Operand, ...] = ()
    epilogue: tuple[EpilogueStep, ...] = ()

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the sizes, batch first."""
        sizes = (self.m, self.n, self.k)
        return (self.batch, *sizes) if self.batch else sizes

    @property
    def transposed_a(self) -> bool:
        """A is stored (K, M)."""
        return self.a.dims[-1] == self.m

    @property
    def transposed_b(self) -> bool:
        """B is stored (N, K)."""
        return self.b.dims[-1] == self.k

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """All operands in binding order: A, B, further products', the epilogue's, C last."""
        further = (o for p in self.more for o in (p.a, p.b))
        return (self.a, self.b, *further, *self.extras, self.c)

    @cached_property
    def blocks(self) -> dict[str, int]:
        """The sizes that are stored in blocks of a format, with the elements of one."""
        found: dict[str, int] = {}
        for operand in self.operands:
            if operand.source is not None:
                size, elements = operand.dims[-1], block_format(operand.source).elements
                found[size] = lcm(elements, found.get(size, 1))
        return found

    @property
    def products(self) -> tuple[Contraction, ...]:
        """Each product by itself, without what is added to it or done with it."""
        alone = replace(self, accumulate=False, more=(), extras=(), epilogue=())
        further = (replace(alone, a=p.a, b=p.b, accumulator=p.accumulator) for p in self.more)
        return (alone, *further)

    def indexing_map(self, operand: Operand) -> str:
        """An operand's map from the loops, which are the sizes in order, as MLIR spells it."""
        loops = ", ".join(f"d{i}" for i in range(len(self.dims)))
        axes = ", ".join(f"d{self.dims.index(d)}" for d in operand.dims)
        return f"affine_map<({loops}) -> ({axes})>"

    @property
    def signature(self) -> str:
        """The types that decide a tier: ``f16*f16->f32``."""
        return f"{self.a.type}*{self.b.type}->{self.accumulator}"


def check_contraction(contraction: Contraction) -> None:
    """Refuse what no emitter or checker could make sense of.

    Raises:
        FormatError: sizes or operands without a name of their own, an operand whose dims are not
            distinct sizes, blocks that do not run along K, an epilogue step that reads what is not
            there.
        UnsupportedError: an unknown element type or block format.
    """
    for product in contraction.products:
        element_type(product.accumulator)
    for what, names in (
        ("sizes", contraction.dims),
        ("operands", tuple(o.name for o in contraction.operands)),
    ):
        if len(set(names)) != len(names) or not all(names):
            raise FormatError(f"{what} {list(names)} are not distinct names")
    for operand in contraction.operands:
        element_type(operand.type)
        dims = set(operand.dims)
        if not dims or len(dims) != len(operand.dims) or not dims <= set(contraction.dims):
            raise FormatError(
                f"dims {list(operand.dims)} of '{operand.name}' are not distinct sizes of "
                f"{list(contraction.dims)}"
            )
        if operand.source is not None:
            _check_blocks(contraction, operand)
    for step in contraction.epilogue:
        _check_step(step, {o.name for o in contraction.extras})


def _check_blocks(contraction: Contraction, operand: Operand) -> None:
    block_format(operand.source or "")
    if operand not in (contraction.a, contraction.b) or operand.dims[-1] != contraction.k:
        raise FormatError(
            f"{operand.source} blocks run along {contraction.k}, which must be the last axis of a "
            f"factor, found {list(operand.dims)} of '{operand.name}'"
        )
    if operand.type not in DECODED_TYPES:
        raise FormatError(
            f"'{operand.name}' is decoded from {operand.source} to {operand.type}, required one "
            f"of {', '.join(DECODED_TYPES)}"
        )


def _check_step(step: EpilogueStep, extras: set[str]) -> None:
    given = [step.operand, step.constant, step.type]
    if sum(g is not None for g in given) != 1 or (step.op == "cast") != (step.type is not None):
        raise FormatError(f"epilogue step '{step.op}' needs a type to cast to, or one operand")
    if step.type is not None:
        element_type(step.type)
    if step.operand is not None and step.operand not in extras:
        raise FormatError(f"epilogue step '{step.op}' reads '{step.operand}', which is not there")
    if step.constant is not None and not isfinite(step.constant):
        raise FormatError(f"epilogue step '{step.op}' reads the constant {step.constant}")


@dataclass(frozen=True, kw_only=True)
class OperandGroup:
    """The tiles that meet in one multiply-accumulate, and the tier all of them get.

    ``shape`` is the (m, n, k) of the instruction when native. ``count`` is how many such
    instructions the artifact holds, null before it was read. ``macs_per_clock`` are the most
    multiply-adds that a multiprocessor's ISA does in a clock, null where that is not known.
    """

    a: str
    b: str
    acc: str
    shape: tuple[int, ...] | None = None
    tier: Tier
    instruction: str | None = None
    count: int | None = None
    macs_per_clock: int | None = None
    reason: str


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of all axes but the innermost of a dense row-major array, in elements."""
    return tuple(prod(sizes[axis:]) for axis in range(1, len(sizes)))


def operand_span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements a buffer must hold: from the first element to the last, at least 1.

    ``strides`` are those of all axes but the innermost, in elements. A size of zero counts as the
    kernels count it, so that a buffer sized by this is always accepted.
    """
    last = sizes[-1]
    for size, stride in zip(sizes, strides, strict=False):
        last += (max(size, 1) - 1) * stride
    return max(last, 1)
