"""A kernel's IR as a program for :mod:`kernel_emulator`: read through MLIR's own bindings.

What is executed is what the parser and the verifier made of the text, so that an emitter's view of
its own kernel plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from iree.compiler import ir

from lowering.ir import context, parse_module


@dataclass(frozen=True)
class Step:
    """One operation: values are numbered, attributes are Python values or text."""

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    types: tuple[str, ...]
    read_types: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    bodies: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Block:
    """The steps of a region's only block, and what its arguments are numbered."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    """The device function of a module; ``count`` values in all."""

    block: Block
    count: int

    def steps(self) -> Iterator[Step]:
        """Every step, outer ones first."""
        yield from _walk(self.block)


def _walk(block: Block) -> Iterator[Step]:
    for step in block.steps:
        yield step
        for body in step.bodies:
            yield from _walk(body)


def read_program(text: str) -> Program:
    """The only device function of a candidate's module."""
    with context() as ctx:
        module = parse_module(text, "kernel", ctx)
        function, *_ = _functions(module.operation)  # those of slices of K follow
        numbers: dict[ir.Value, int] = {}
        block = _block(function.regions[0].blocks[0], numbers)
        return Program(block, len(numbers))


def _functions(op: ir.Operation) -> list[ir.Operation]:
    found = []
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                if inner.operation.name == "func.func":
                    found.append(inner.operation)
                else:
                    found += _functions(inner.operation)
    return found


def _block(block: ir.Block, numbers: dict[ir.Value, int]) -> Block:
    def number(value: ir.Value) -> int:
        return numbers.setdefault(value, len(numbers))

    arguments = tuple(number(a) for a in block.arguments)
    steps = []
    for op in (o.operation for o in block.operations):
        reads = tuple(number(v) for v in op.operands)
        bodies = tuple(_block(r.blocks[0], numbers) for r in op.regions if len(r.blocks))
        steps.append(
            Step(
                name=op.name,
                reads=reads,
                writes=tuple(number(v) for v in op.results),
                types=tuple(str(v.type) for v in op.results),
                read_types=tuple(str(v.type) for v in op.operands),
                attributes={name: _plain(op.attributes[name]) for name in op.attributes},
                bodies=bodies,
            )
        )
    return Block(arguments, tuple(steps))


def _plain(attribute: ir.Attribute) -> Any:
    """Numbers as numbers, a splat as its number, everything else as text."""
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr):
        return attribute.value
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(attribute)
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        return _plain(attribute.get_splat_value())
    return str(attribute)


@dataclass(frozen=True)
class ConstantUse:
    """One place where a program reads an index constant."""

    step: Step
    operand: int
    value: int

    @property
    def text(self) -> str:
        """``arith.muli operand 1 = 40``."""
        return f"{self.step.name} operand {self.operand} = {self.value}"


def constant_uses(program: Program) -> list[ConstantUse]:
    """Every use of an index constant, in the order of the text."""
    values = {
        step.writes[0]: step.attributes["value"]
        for step in program.steps()
        if step.name == "arith.constant" and step.types == ("index",)
    }
    return [
        ConstantUse(step, at, values[read])
        for step in program.steps()
        for at, read in enumerate(step.reads)
        if read in values
    ]


def changed(program: Program, use: ConstantUse, value: int) -> Program:
    """The program in which that one use reads another constant."""
    number = program.count
    step = use.step
    other = replace(
        step, reads=tuple(number if i == use.operand else r for i, r in enumerate(step.reads))
    )
    constant = Step("arith.constant", (), (number,), ("index",), (), {"value": value})
    block = _replaced(program.block, step, [other])
    return Program(Block(block.arguments, (constant, *block.steps)), program.count + 1)


def with_step(program: Program, old: Step, new: Sequence[Step]) -> Program:
    """The program with other steps in the place of one."""
    return Program(_replaced(program.block, old, new), program.count)


def without(program: Program, step: Step) -> Program:
    """The program without a step that has no results."""
    return with_step(program, step, [])


def _replaced(block: Block, old: Step, new: Sequence[Step]) -> Block:
    steps: list[Step] = []
    for step in block.steps:
        if step is old:
            steps += new
        elif step.bodies:
            bodies = tuple(_replaced(b, old, new) for b in step.bodies)
            steps.append(replace(step, bodies=bodies))
        else:
            steps.append(step)
    return Block(block.arguments, tuple(steps))


_SHAPED = re.compile(r"(?:vector|memref)<((?:[0-9?]+x)*)([a-zA-Z]\w*(?:<[^<>]*>)?)[,>]")


def shaped(text: str) -> tuple[tuple[int, ...], str]:
    """Sizes (-1 where dynamic) and element type of a vector or memref; no sizes for a scalar."""
    found = _SHAPED.match(text)
    if found is None:
        return (), text
    return tuple(-1 if s == "?" else int(s) for s in found[1].split("x")[:-1]), found[2]
