"""What candidates are judged against: one kernel at one problem on one device, worked out once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from .expressions import evaluate
from .facts import DeviceFacts
from .manifest import MULTIPROCESSORS, SPLITS, UNKNOWN_MULTIPROCESSORS, KernelEntry, Refusal
from .member import Problem
from .operands import contiguous_strides, operand_span
from .types import element_type


@dataclass(frozen=True, kw_only=True)
class Span:
    """What a call reads or writes of one argument, from its first element to its last."""

    name: str
    elements: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Site:
    """``problem`` is None before one is known.

    ``strides`` are those of the operands by name, in stored elements; under an argument's own name
    they may say how many bytes past a 16-byte boundary it starts. Left out, operands are contiguous
    and start at one.
    """

    kernel: KernelEntry
    facts: DeviceFacts
    problem: Problem | None = None
    strides: Mapping[str, int] | None = None

    @cached_property
    def sizes(self) -> dict[str, int] | None:
        """The sizes by name, None before a problem is known."""
        return self.problem.values() if self.problem is not None else None

    @cached_property
    def extent(self) -> tuple[int, int, int, int] | None:
        """(batch, m, n, k), None before a problem is known."""
        return mnk(self.problem) if self.problem is not None else None

    def evaluate(self, text: str, splits: int = 1) -> int:
        """An expression over the sizes, the multiprocessors, and ``splits`` where above 1.

        Candidates of one kernel share most of theirs, so each is evaluated once.
        """
        known = self._values.get((text, splits))
        if known is None:
            values = {**self._names, SPLITS: splits} if splits > 1 else self._names
            known = self._values[text, splits] = evaluate(text, values)
        return known

    @cached_property
    def _names(self) -> dict[str, int]:
        return {**(self.sizes or {}), MULTIPROCESSORS: multiprocessors(self.facts)}

    @cached_property
    def _values(self) -> dict[tuple[str, int], int]:
        return {}

    @cached_property
    def answers(self) -> dict[object, Refusal | None]:
        """What rules said of what candidates share (a grid, a block, a workspace), each once."""
        return {}

    @cached_property
    def fits(self) -> dict[object, tuple[bool, int, int]]:
        """What R5 and R6 recorded of a block tile: whether it fills, its split, its padding."""
        return {}

    @cached_property
    def operand_bytes(self) -> int:
        """Bytes of all arguments together."""
        return sum(span.bytes for span in self.spans)

    @cached_property
    def alignments(self) -> dict[str, int]:
        """The sizes and strides by name, as far as they are known, in elements."""
        if self.problem is None:
            return {}
        strides = self.strides
        if strides is None:
            strides = dense_strides(self.kernel, self.problem)
        arguments = {a.name for a in self.kernel.args}
        known = {name: value for name, value in strides.items() if name not in arguments}
        return {**known, **self.problem.values()}

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """One an argument, none before a problem is known; an argument without elements has 0."""
        if self.problem is None:
            return ()
        values, result = self.problem.values(), []
        for argument in self.kernel.args:
            sizes = argument.stored_shape(values) or (1,)
            strides = contiguous_strides(sizes)
            if self.strides:
                names = (f"{argument.name}.{axis}" for axis in range(len(strides)))
                strides = [self.strides.get(n, s) for n, s in zip(names, strides, strict=True)]
            count = operand_span(sizes, strides) if all(sizes) else 0
            nbytes = count * element_type(argument.type).bytes
            result.append(Span(name=argument.name, elements=count, bytes=nbytes))
        return tuple(result)


def refuse(rule: str, need: int | None, limit: int | None, what: str) -> Refusal:
    """A rule's refusal: what the record needs and the limit it met, where these are amounts."""
    return Refusal(rule=rule, need=need, limit=limit, message=f"{what} ({rule})")


def multiprocessors(facts: DeviceFacts) -> int:
    """How many a persistent grid fills; where it is unknown, every tile has its own workgroup."""
    return facts.multiprocessors or UNKNOWN_MULTIPROCESSORS


def mnk(problem: Problem) -> tuple[int, int, int, int]:
    """(batch, m, n, k) of a contraction's sizes; batch 1 when there is none."""
    sizes = problem.sizes if len(problem.sizes) == 4 else (1, *problem.sizes)
    batch, m, n, k = sizes
    return batch, m, n, k


def dense_strides(kernel: KernelEntry, problem: Problem) -> dict[str, int]:
    """The outer strides of contiguous operands by name, in stored elements."""
    values = problem.values()
    return {
        f"{argument.name}.{axis}": stride
        for argument in kernel.args
        for axis, stride in enumerate(contiguous_strides(argument.stored_shape(values)))
    }
