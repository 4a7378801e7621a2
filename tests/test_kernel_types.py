"""Kernels of other types than the samples', run, proven, and timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dialects.errors import OperandError
from packs import build_pack
from problems import DEVICES, candidates, entry_of
from runtime import Session
from runtime.dtypes import dtype_of

SOURCE = Path(__file__).parent / "fixtures" / "kernel_types.mlir"
FRESH = ("matmul_bf16", "matmul_i8", "matmul_f16_f16")
SHAPES = ((1, 1, 1), (37, 33, 70), (15, 37, 0), (0, 4, 4), (130, 67, 600))


@pytest.fixture(scope="module")
def pack(
    tmp_path_factory: pytest.TempPathFactory, compile_cache: Path, targets: tuple[str, ...]
) -> Path:
    """One pack with all the kernels."""
    out = tmp_path_factory.mktemp("kernel-types") / "pack"
    build_pack(SOURCE, out, compile_cache, targets)
    return out


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, pack: Path) -> Iterator[Session]:
    """A session with that pack that never times."""
    with Session(pack, device=request.param, tuning="off") as opened:
        yield opened


def _operands(session: Session, kernel: str, m: int, n: int, k: int) -> list[np.ndarray]:
    """Small integers; few beside 0, so that sums are exact in sixteen bits too."""
    rng = np.random.default_rng(m + n + k)
    result = []
    for argument, shape in zip(entry_of(session, kernel).args[:2], ((m, k), (k, n)), strict=True):
        values = rng.integers(-2, 3, shape) * (rng.random(shape) < 0.5)
        result.append(values.astype(dtype_of(argument.type)))
    return result


@pytest.mark.parametrize("kernel", FRESH)
def test_a_fresh_result(session: Session, kernel: str) -> None:
    for m, n, k in SHAPES:
        a, b = _operands(session, kernel, m, n, k)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        for name in candidates(session, kernel):
            session.override(kernel, name)
            got = getattr(session, kernel)(a, b)
            assert got.dtype == dtype_of(entry_of(session, kernel).result.type)
            np.testing.assert_array_equal(got.astype(np.float64), expected, err_msg=name)


def test_a_result_that_is_added_to(session: Session) -> None:
    """C += A B, on host and device, in place, through a copy, and with K = 0."""
    call = session.accumulate_f32
    for m, n, k in SHAPES:
        a, b = _operands(session, "accumulate_f32", m, n, k)
        c = np.arange(m * n, dtype=np.float32).reshape(m, n)
        expected = c + a @ b
        for name in candidates(session, "accumulate_f32"):
            session.override("accumulate_f32", name)
            for out in (c.copy(), np.asfortranarray(c), c[::-1].copy()[::-1]):
                assert call(a, b, out) is out
                np.testing.assert_array_equal(out, expected, err_msg=name)
            there = session.array(c)
            call(session.array(a), session.array(b), out=there)
            np.testing.assert_array_equal(there.numpy(), expected, err_msg=name)


def test_a_result_that_is_added_to_must_be_given(session: Session) -> None:
    a, b = _operands(session, "accumulate_f32", 3, 4, 5)
    c = np.zeros((3, 4), np.float32)
    with pytest.raises(OperandError, match="kernel 'accumulate_f32' adds to 'c': pass it"):
        session.accumulate_f32(a, b)
    with pytest.raises(OperandError, match=r"takes 3 operands \(a, b, c\), found 1"):
        session.accumulate_f32(a)
    with pytest.raises(OperandError, match=r"takes 3 operands \(a, b, c\), found 3"):
        session.accumulate_f32(a, b, c, out=c)


def test_types_do_not_mix(session: Session) -> None:
    half = np.ones((4, 4), np.float16)
    for wrong in (half.astype(np.float32), half.astype(ml_dtypes.bfloat16)):
        with pytest.raises(OperandError, match=r"operand 'b': type .*, the kernel takes f16"):
            session.matmul_f16_f16(half, wrong)
    with pytest.raises(OperandError, match="operand 'a': type u8, the kernel takes i8"):
        session.matmul_i8(half.astype(np.uint8), half.astype(np.int8))


@pytest.mark.parametrize("kernel", [*FRESH, "accumulate_f32"])
def test_every_type_can_be_proven_and_timed(pack: Path, kernel: str) -> None:
    """At a long sum too, where narrow accumulators stay exact only on few integers."""
    with Session(pack, "local-task", tuning="first_use", budget_ms=2e4) as session:
        for sizes in ((37, 33, 70), (16, 64, 4096), (5, 6, 0)):
            choice = session.choose(kernel, *sizes)
            assert (choice.source, choice.failures) == ("timed", {})
            assert len(choice.medians) == 2
