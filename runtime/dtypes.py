"""Element types as numpy sees them, the narrow floats through ``ml_dtypes``."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dialects.errors import OperandError

DTYPES: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i16": np.dtype(np.int16),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def dtype_of(type_name: str) -> np.dtype:
    """The numpy type of an element type."""
    return DTYPES[type_name]


def type_name(dtype: np.dtype, *, where: str) -> str:
    """The element type of a numpy type.

    Raises:
        OperandError: a type without one, or in the other byte order.
    """
    if dtype in _NAMES:
        return _NAMES[dtype]
    if dtype.newbyteorder("=") in _NAMES:
        raise OperandError(f"byte order of {dtype.str} is not this machine's", where=where)
    raise OperandError(f"type {dtype} has no kernel element type", where=where)
