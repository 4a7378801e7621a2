"""Reads the elementwise epilogue of a contraction as steps on the value that it transforms."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from dialects.errors import UnsupportedError
from dialects.operands import EpilogueStep, StepKind

from .generics import Generic, defining_op, scalar_type
from .ir import mlir

_STEPS: dict[str, StepKind] = {
    "arith.addf": "add",
    "arith.addi": "add",
    "arith.mulf": "mul",
    "arith.muli": "mul",
    "arith.maximumf": "max",
    "arith.maxsi": "max",
    "arith.minimumf": "min",
    "arith.minsi": "min",
}
_CASTS = (
    "arith.truncf",
    "arith.extf",
    "arith.sitofp",
    "arith.fptosi",
    "arith.trunci",
    "arith.extsi",
)

NameOperand = Callable[[mlir.Value, tuple[int, ...]], str]  # (tensor argument, map) -> its name


def read_elementwise(
    generic: Generic, previous: mlir.Operation, operand: NameOperand
) -> list[EpilogueStep]:
    """The steps of one all-parallel op on the result of ``previous``.

    ``operand`` gives the name of a further tensor that the op reads.

    Raises:
        UnsupportedError: an op that is no step, or one that does not continue the chain.
    """
    if generic.maps[-1] != generic.identity:
        raise UnsupportedError("an elementwise op must store its result in the order of its loops")
    return _Elementwise(generic, previous, operand).steps()


class _Elementwise:
    """Follows the running value through the scalar ops."""

    def __init__(self, generic: Generic, previous: mlir.Operation, operand: NameOperand) -> None:
        self.body, self.operand = generic.body, operand
        arguments = list(generic.block.arguments)
        self.inputs = list(zip(arguments, generic.inputs, generic.maps, strict=False))
        mains = [a for a, value, _ in self.inputs if value == previous.results[0]]
        if len(mains) != 1:
            raise UnsupportedError("an elementwise op of the result must read it exactly once")
        self.running: mlir.Value = mains[0]

    def steps(self) -> list[EpilogueStep]:
        *ops, last = self.body
        result = []
        for op in ops:
            uses = sum(o == self.running for o in op.operands)
            if uses > 1:
                raise UnsupportedError(f"epilogue op '{op.name}' reads the running value twice")
            if uses:
                result.append(self._step(op))
                self.running = op.results[0]
        if last.operands[0] != self.running:
            raise UnsupportedError("an elementwise op must yield what it computed")
        return result

    def _step(self, op: mlir.Operation) -> EpilogueStep:
        if op.name in _CASTS:
            return EpilogueStep(op="cast", type=scalar_type(op.results[0].type))
        if op.name not in _STEPS:
            raise UnsupportedError(
                f"epilogue op '{op.name}' is not one of {', '.join([*_STEPS, *_CASTS])}"
            )
        other = next(o for o in op.operands if o != self.running)
        return self._binary(_STEPS[op.name], op.name, other)

    def _binary(self, kind: StepKind, name: str, other: mlir.Value) -> EpilogueStep:
        made_by = defining_op(other)
        if made_by is not None and made_by.name == "arith.constant":
            return EpilogueStep(op=kind, constant=_constant(made_by))
        if made_by is not None and made_by.name in _CASTS:
            other = made_by.operands[0]  # an operand of another type: converted as it is read
        for argument, value, map_ in self.inputs:
            if argument != other:
                continue
            source = defining_op(value)
            if source is not None:
                return EpilogueStep(op=kind, constant=_constant(source))
            return EpilogueStep(op=kind, operand=self.operand(value, map_))
        found = defining_op(other)
        what = f"'{found.name}'" if found is not None else "its own output"
        raise UnsupportedError(
            f"epilogue op '{name}' reads arguments and constants besides the running value, "
            f"found {what}"
        )


def _constant(op: mlir.Operation) -> float:
    if op.name != "arith.constant":
        raise UnsupportedError(f"an epilogue reads arguments and constants, found '{op.name}'")
    attribute = op.attributes["value"]
    if not isinstance(attribute, mlir.FloatAttr | mlir.IntegerAttr):
        raise UnsupportedError(f"an epilogue constant must be a number, found {attribute.type}")
    value = float(attribute.value)
    if not isfinite(value):
        raise UnsupportedError(f"an epilogue constant must be finite, found {value}")
    return value
