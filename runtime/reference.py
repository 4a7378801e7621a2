"""What a kernel computes, in numpy: the oracle that no candidate can have written."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .blocks import decode_blocks
from .dtypes import dtype_of

# (contraction, rows of A, columns of B, wide type) -> their product in that type
Multiply = Callable[[Contraction, np.ndarray, np.ndarray, np.dtype], np.ndarray]
COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def wide_dtype(contraction: Contraction) -> np.dtype:
    """float64 for floats and int64 for integers: exact on the small integers of a proof."""
    kind = element_type(contraction.accumulator).kind
    return np.dtype(np.float64 if kind == "float" else np.int64)


def matmul(contraction: Contraction, a: np.ndarray, b: np.ndarray, wide: np.dtype) -> np.ndarray:
    """A times B in the wide type."""
    return np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))


def evaluate(
    contraction: Contraction,
    operands: Mapping[str, np.ndarray],
    *,
    rows: np.ndarray | slice = slice(None),
    columns: np.ndarray | slice = slice(None),
    wide: np.dtype | None = None,
    multiply: Multiply | None = None,
) -> np.ndarray:
    """C[..., rows, columns] in the wide type, before its last rounding to C's own type.

    ``operands`` are arrays by name in their stored axis order, decoded (:func:`decoded`); C's own
    is needed when the kernel accumulates. ``wide`` replaces the type that sums are taken in, and
    ``multiply`` the way to multiply.
    """
    wide = wide or wide_dtype(contraction)
    a, b = matrices(contraction, operands)
    value = (multiply or matmul)(contraction, a[..., rows, :], b[..., columns], wide)
    if contraction.accumulate:
        value = value + operands[contraction.c.name][..., rows, :][..., columns].astype(wide)
    value = _rounded(value, contraction.accumulator, wide)
    for product in contraction.products[1:]:
        other = evaluate(product, operands, rows=rows, columns=columns, multiply=multiply)
        value = value + other.astype(wide)
        value = _rounded(value, contraction.accumulator, wide)
    for step in contraction.epilogue:
        if step.op == "cast":
            assert step.type is not None
            value = _rounded(value, step.type, value.dtype)
            continue
        if step.operand is None:
            other = np.asarray(step.constant or 0.0).astype(value.dtype)
        else:
            extra = next(o for o in contraction.extras if o.name == step.operand)
            other = _aligned(contraction, extra, operands[extra.name].astype(value.dtype))
            other = _take(contraction, extra, other, rows, columns)
        value = COMBINE[step.op](value, other)
    return value


def _rounded(value: np.ndarray, type_name: str, wide: np.dtype) -> np.ndarray:
    """Through the type's own precision and back; integers wrap as the hardware does."""
    target = dtype_of(type_name)
    if element_type(type_name).kind != "float" and value.dtype.kind == "f":
        wide = np.dtype(np.int64)
    elif element_type(type_name).kind == "float" and value.dtype.kind == "i":
        wide = np.dtype(np.float64)
    if element_type(type_name).kind == "float" and element_type(type_name).bits >= 32:
        return value.astype(wide)
    return value.astype(target).astype(wide)


def decoded(contraction: Contraction, operands: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The operands as elements of their types: raw bytes decoded, dense ones as they are."""
    result = dict(operands)
    for operand in (contraction.a, contraction.b):
        if operand.source is not None:
            values = decode_blocks(operands[operand.name], operand.source)
            result[operand.name] = values.astype(dtype_of(operand.type))
    return result


def matrices(
    contraction: Contraction, operands: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """A as [..., M, K] and B as [..., K, N] of decoded operands, however they are stored."""
    a, b = operands[contraction.a.name], operands[contraction.b.name]
    return (
        np.swapaxes(a, -1, -2) if contraction.transposed_a else a,
        np.swapaxes(b, -1, -2) if contraction.transposed_b else b,
    )


def _aligned(contraction: Contraction, extra: Operand, array: np.ndarray) -> np.ndarray:
    """The operand in C's order of axes, with one of length one for each that it lacks."""
    order = [extra.dims.index(d) for d in contraction.c.dims if d in extra.dims]
    axes = tuple(slice(None) if d in extra.dims else None for d in contraction.c.dims)
    return array.transpose(order)[axes]


def _take(
    contraction: Contraction,
    extra: Operand,
    array: np.ndarray,
    rows: np.ndarray | slice,
    columns: np.ndarray | slice,
) -> np.ndarray:
    if contraction.m in extra.dims:
        array = array[..., rows, :]
    if contraction.n in extra.dims:
        array = array[..., columns]
    return array
