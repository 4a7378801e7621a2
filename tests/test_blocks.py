"""Block formats in numpy: raw bytes stand for what the GGUF reference makes of them."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dialects.block_formats import Q8_0, block_format, stored_sizes
from dialects.errors import OperandError, UnsupportedError
from runtime.blocks import decode_blocks, pack_q8_0

SHAPES = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda s: (s[0], 32 * s[1]))
QUANTS = SHAPES.flatmap(lambda s: arrays.arrays(np.int8, s))


@settings(max_examples=50)
@given(quants=QUANTS, exponents=st.integers(-12, 12), signed=st.booleans())
def test_what_is_packed_is_decoded(quants: np.ndarray, exponents: int, signed: bool) -> None:
    """Exactly, for scales that are powers of two, as signed or unsigned bytes."""
    rows, blocks = quants.shape[0], quants.shape[1] // 32
    scales = 2.0 ** (exponents + np.arange(rows * blocks).reshape(rows, blocks) % 3)
    raw = pack_q8_0(quants, scales)
    assert raw.shape == (rows, 34 * blocks)
    got = decode_blocks(raw.view(np.int8) if signed else raw, "q8_0")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, quants * np.repeat(scales, 32, axis=1))


def test_the_reference_decodes_the_same(gguf: ModuleType) -> None:
    """Bytes of every value and scales of every magnitude."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, (7, 5 * 34), np.uint8)
    scales = raw.reshape(7, 5, 34)[..., :2].copy().view(np.float16)
    raw.reshape(7, 5, 34)[..., :2] = np.where(np.isfinite(scales), scales, 1).view(np.uint8)
    want = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(decode_blocks(raw, "q8_0"), want)


def test_the_reference_encodes_what_is_decoded(gguf: ModuleType) -> None:
    """Values of a whole block that are integers up to 127 survive: the scale is then 1."""
    rng = np.random.default_rng(1)
    values = rng.integers(-127, 128, (6, 96)).astype(np.float32)
    values[:, ::32] = 127
    raw = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(decode_blocks(raw, "q8_0"), values)
    ones = np.ones((6, 3))
    np.testing.assert_array_equal(raw, pack_q8_0(values.astype(np.int8), ones))
    blocks = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.Q8_0]
    assert blocks == (Q8_0.elements, Q8_0.bytes)


def test_what_is_no_block_is_refused() -> None:
    with pytest.raises(OperandError, match=r"whole q8_0 blocks of 34 B, found 2x33 uint8"):
        decode_blocks(np.zeros((2, 33), np.uint8), "q8_0")
    with pytest.raises(OperandError, match=r"found 2x34 float32"):
        decode_blocks(np.zeros((2, 34), np.float32), "q8_0")
    with pytest.raises(OperandError, match=r"rows of whole blocks of 32, found 2x33 int8"):
        pack_q8_0(np.zeros((2, 33), np.int8), np.ones((2, 1)))
    with pytest.raises(OperandError, match=r"found 2x32 int16"):
        pack_q8_0(np.zeros((2, 32), np.int16), np.ones((2, 1)))
    with pytest.raises(OperandError, match=r"one scale a block, \(2, 1\), found \(2, 2\)"):
        pack_q8_0(np.zeros((2, 32), np.int8), np.ones((2, 2)))


def test_names_and_sizes() -> None:
    assert block_format("q8_0") is Q8_0
    with pytest.raises(UnsupportedError, match="here: block format 'q9' is not one of q8_0"):
        block_format("q9", where="here")
    assert stored_sizes((3, 5, 64), "q8_0") == (3, 5, 68)
    assert stored_sizes((5, 33), "q8_0") == (5, 68)  # no whole blocks: a rule refuses them
    assert stored_sizes((5, 33), None) == (5, 33)
