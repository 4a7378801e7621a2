"""Operands of the sample kernels on small integers, and what the kernels must make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dialects.manifest import KernelEntry
from runtime import Session
from runtime.blocks import pack_q8_0
from runtime.dtypes import dtype_of

LARGEST = 3  # with sums below 2^24 every order of additions gives the same f32
DEVICES = [
    "local-sync",
    "local-task",
    *(pytest.param(kind, marks=pytest.mark.device(kind)) for kind in ("vulkan", "hip")),
]
ANSWERS: dict[str, Callable[..., np.ndarray]] = {
    "matmul_f32": lambda a, b: a @ b,
    "matmul_f16": lambda a, b: a @ b,
    "matmul_transposed_b": lambda a, b: a @ b.swapaxes(-1, -2),
    "batch_matmul": lambda a, b: a @ b,
    "matmul_bias_relu": lambda a, b, bias: np.maximum(a @ b + bias, 0),
}


def entry_of(session: Session, kernel: str) -> KernelEntry:
    """The manifest's entry of a kernel."""
    return session.reference(kernel).entry


def sizes_of(session: Session, kernel: str, m: int, n: int, k: int, batch: int = 2) -> list[int]:
    """Sizes in the kernel's order."""
    return [batch, m, n, k] if "B" in entry_of(session, kernel).dims else [m, n, k]


def integers(session: Session, kernel: str, sizes: Sequence[int]) -> list[np.ndarray]:
    """Operands of small integers, in argument order."""
    entry = entry_of(session, kernel)
    values = dict(zip(entry.dims, sizes, strict=True))
    rng = np.random.default_rng(sum(sizes))
    return [
        rng.integers(-LARGEST, LARGEST + 1, [values[d] for d in argument.dims]).astype(
            dtype_of(argument.type)
        )
        for argument in entry.inputs
    ]


def answer(kernel: str, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The exact result, in float64."""
    return ANSWERS[kernel](*(o.astype(np.float64) for o in operands))


def candidates(session: Session, kernel: str) -> list[str]:
    """Names of every candidate that can run on the session's device."""
    return candidates_at(session, kernel, [1] * len(entry_of(session, kernel).dims))


def candidates_at(session: Session, kernel: str, sizes: Sequence[int]) -> list[str]:
    """Names of every candidate that can run there at these sizes."""
    return [v.record.name for v in session.explain(kernel, *sizes).verdicts if v.ok]


def call(session: Session, kernel: str, *operands: Any, **options: Any) -> Any:
    """Call a kernel by name."""
    return getattr(session, kernel)(*operands, **options)


def q8_0_integers(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Raw q8_0 bytes of small integers: even quants, scales of 1/2, 1 and 2 from block to block."""
    quants = 2 * rng.integers(-2, 3, shape, np.int8)
    scales = 2.0 ** rng.integers(-1, 2, (*shape[:-1], shape[-1] // 32))
    return pack_q8_0(quants, scales)
