"""Block-quantised operands in numpy: what the raw bytes of a format stand for."""

from __future__ import annotations

import numpy as np

from dialects.block_formats import Q8_0, block_format
from dialects.errors import OperandError


def decode_blocks(raw: np.ndarray, source: str) -> np.ndarray:
    """The elements of raw bytes, in f32: [..., blocks * bytes] u8 or i8 -> [..., K].

    Raises:
        UnsupportedError: an unknown format.
        OperandError: rows that are no whole blocks of bytes.
    """
    format_ = block_format(source)
    if raw.dtype.itemsize != 1 or not raw.ndim or raw.shape[-1] % format_.bytes:
        raise OperandError(
            f"expected rows of whole {source} blocks of {format_.bytes} B, found "
            f"{'x'.join(str(s) for s in raw.shape)} {raw.dtype}"
        )
    count = raw.shape[-1] // format_.bytes
    blocks = np.ascontiguousarray(raw).view(np.uint8)
    blocks = blocks.reshape(*raw.shape[:-1], count, format_.bytes)
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2").astype(np.float32)
    quants = blocks[..., 2:].view(np.int8).astype(np.float32)
    return (quants * scales).reshape(*raw.shape[:-1], count * format_.elements)


def pack_q8_0(quants: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Raw q8_0 bytes of int8 quants [..., K] and one f16 scale a block [..., K / 32].

    Raises:
        OperandError: sizes that do not fit, or quants that are not int8.
    """
    quants, scales = np.asarray(quants), np.asarray(scales)
    blocks = (*quants.shape[:-1], quants.shape[-1] // Q8_0.elements if quants.ndim else 0)
    if quants.dtype != np.int8 or not quants.ndim or quants.shape[-1] % Q8_0.elements:
        raise OperandError(
            f"expected int8 quants in rows of whole blocks of {Q8_0.elements}, found "
            f"{'x'.join(str(s) for s in quants.shape)} {quants.dtype}"
        )
    if scales.shape != blocks:
        raise OperandError(f"expected one scale a block, {blocks}, found {scales.shape}")
    result = np.empty((*blocks, Q8_0.bytes), np.uint8)
    result[..., :2] = scales.astype("<f2")[..., None].view(np.uint8)
    result[..., 2:] = quants.reshape(*blocks, Q8_0.elements).view(np.uint8)
    return result.reshape(*quants.shape[:-1], blocks[-1] * Q8_0.bytes)
