"""Elementwise work on accumulated values, on scalars and vectors alike."""

from __future__ import annotations

from collections.abc import Callable

from dialects.errors import UnsupportedError
from dialects.operands import Contraction, EpilogueStep, Operand
from dialects.types import ElementType, element_type

from .kernel_text import KernelText

LoadOperand = Callable[[Operand, str], str]  # (operand, wanted scalar type name) -> value

FLOAT_OPS = {"add": "addf", "mul": "mulf", "max": "maximumf", "min": "minimumf"}
INTEGER_OPS = {"add": "addi", "mul": "muli", "max": "maxsi", "min": "minsi"}


def shaped(mlir: str, lanes: int) -> str:
    """The MLIR type of a scalar (lanes 0) or a vector."""
    return f"vector<{lanes}x{mlir}>" if lanes else mlir


def convert(ir: KernelText, value: str, source: str, result: str, lanes: int = 0) -> str:
    """Convert between element types by name, keeping the sign that the type names state."""
    have, want = element_type(source), element_type(result)
    if have.mlir == want.mlir:
        return value
    if {have.name, want.name} == {"f16", "bf16"}:
        return convert(ir, convert(ir, value, source, "f32", lanes), "f32", result, lanes)
    types = f"{shaped(have.mlir, lanes)} to {shaped(want.mlir, lanes)}"
    return ir.value(f"arith.{_conversion(have, want)} {value} : {types}")


def _conversion(have: ElementType, want: ElementType) -> str:
    wider = want.bits > have.bits
    if have.kind == "float" and want.kind == "float":
        return "extf" if wider else "truncf"
    if have.kind == "float":
        return "fptosi" if want.kind == "signed" else "fptoui"
    if want.kind == "float":
        return "sitofp" if have.kind == "signed" else "uitofp"
    if not wider:
        return "trunci"
    return "extsi" if have.kind == "signed" else "extui"


def compute_type(contraction: Contraction) -> str:
    """The type that products are summed in, see :func:`sum_type`."""
    return sum_type(contraction.accumulator)


def sum_type(accumulator: str) -> str:
    """Narrow floats are summed in f32 and narrowed once."""
    element = element_type(accumulator)
    return "f32" if element.kind == "float" and element.bits < 32 else element.name


def apply_epilogue(
    ir: KernelText,
    contraction: Contraction,
    value: str,
    *,
    lanes: int,
    load: LoadOperand,
    current: str | None = None,
) -> str:
    """Map one accumulated value (of type ``current`` or :func:`compute_type`) to one stored in C.

    A narrow accumulator is rounded to its own type before the epilogue reads it, as the IR says.
    """
    current = current or compute_type(contraction)
    if contraction.accumulator != current:
        value = convert(ir, value, current, contraction.accumulator, lanes)
        current = contraction.accumulator
    for step in contraction.epilogue:
        if step.op == "cast":
            assert step.type is not None
            value = convert(ir, value, current, step.type, lanes)
            current = step.type
        else:
            value = _binary(ir, contraction, step, value, current, lanes, load)
    if element_type(current).mlir != element_type(contraction.c.type).mlir:
        raise UnsupportedError(
            f"epilogue ends in {current}, the result is {contraction.c.type}: add a cast"
        )
    return value


def _binary(
    ir: KernelText,
    contraction: Contraction,
    step: EpilogueStep,
    value: str,
    current: str,
    lanes: int,
    load: LoadOperand,
) -> str:
    scalar = element_type(current)
    type_ = shaped(scalar.mlir, lanes)
    if step.operand is not None:
        operand = next(o for o in contraction.extras if o.name == step.operand)
        other = load(operand, current)
    else:
        other = ir.constant(step.constant or 0.0, type_)
    ops = FLOAT_OPS if scalar.kind == "float" else INTEGER_OPS
    op = ops[step.op].replace("si", "ui") if scalar.kind == "unsigned" else ops[step.op]
    return ir.value(f"arith.{op} {value}, {other} : {type_}")


def add(ir: KernelText, a: str, b: str, type_name: str, lanes: int = 0) -> str:
    """a + b of one element type."""
    element = element_type(type_name)
    op = FLOAT_OPS["add"] if element.kind == "float" else INTEGER_OPS["add"]
    return ir.value(f"arith.{op} {a}, {b} : {shaped(element.mlir, lanes)}")
