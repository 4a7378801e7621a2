"""The right answer of one case, computed once and compared with every candidate's."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Literal

import numpy as np

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .dtypes import dtype_of
from .periodic import Periodic
from .reference import evaluate, matmul, matrices, wide_dtype

LAST = 32  # rows and columns at the far edges, where tiles are ragged
ROWS = 16  # rows in between
EXACT = 1 << 24  # integers up to here are exact in f32
LEAST_BY_PERIODS = 1 << 18  # elements of an operand from which the period is worth its transforms
THREADS = 8
WIDEST = 512  # magnitude of the random vector: a wrong row passes with probability 1/1025 at most


Axis = Literal["rows", "columns"]


class Oracle:
    """Expected results on small integer operands, exact in the type of the result."""

    def __init__(
        self,
        contraction: Contraction,
        host: Mapping[str, np.ndarray],
        *,
        launches: int = 1,
        period: int | None = None,
    ) -> None:
        """``host`` are the operands, decoded.

        Dense ones repeat with ``period`` over their memory, where it is known.
        """
        self._contraction, self._host, self._period = contraction, host, period
        self._launches = launches if contraction.accumulate else 1

    def after(self, launches: int) -> Oracle:
        """What stands in one output after several launches; of kernels that add, each adds.

        Only for those without an epilogue.
        """
        if not self._contraction.accumulate or launches == self._launches:
            return self
        assert not self._contraction.epilogue
        return Oracle(self._contraction, self._host, launches=launches, period=self._period)

    def compare(self, got: np.ndarray) -> str | None:
        """Compare every element; what is wrong, or None."""
        wrong = _differences(got, self._whole)
        return f"wrong in {wrong} of {got.size} elements" if wrong else None

    def sample(self, got: np.ndarray) -> str | None:
        """Compare the last rows and columns, some rows in between, and all rows by Freivalds."""
        rows, expected = self._rows
        wrong = _differences(got[..., rows, :], expected)
        if wrong:
            return f"wrong in {wrong} elements of the sampled rows"
        columns, expected = self._columns
        wrong = _differences(got[..., columns], expected)
        if wrong:
            return f"wrong in {wrong} elements of the last columns"
        return self._freivalds(got)

    @cached_property
    def _whole(self) -> np.ndarray:
        return self._expected(slice(None), slice(None))

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        m = self._sizes()[0]
        between = np.random.default_rng(1).integers(0, m, ROWS)
        rows = np.unique(np.concatenate([np.arange(max(0, m - LAST), m), between]))
        return rows, self._expected(rows, slice(None))

    @cached_property
    def _columns(self) -> tuple[slice, np.ndarray]:
        columns = slice(max(0, self._sizes()[1] - LAST), None)
        return columns, self._expected(slice(None), columns)

    def _expected(self, rows: np.ndarray | slice, columns: np.ndarray | slice) -> np.ndarray:
        value = evaluate(
            self._contraction,
            self._host,
            rows=rows,
            columns=columns,
            wide=self._wide,
            multiply=self._multiply,
        )
        if self._launches > 1:
            start = self._host[self._contraction.c.name][..., rows, :][..., columns]
            start = start.astype(value.dtype)
            value = start + self._launches * (value - start)
        return value.astype(dtype_of(self._contraction.c.type))

    def _sizes(self) -> tuple[int, int, int]:
        a, b = matrices(self._contraction, self._host)
        return a.shape[-2], b.shape[-1], a.shape[-1]

    @cached_property
    def _wide(self) -> np.dtype:
        """float32 while every partial sum is exact in it: its products are the fast ones."""
        wide = wide_dtype(self._contraction)
        c = self._contraction
        values = [np.abs(self._one_period(o)).max(initial=0) for o in (c.a, c.b)]
        bound = float(values[0]) * float(values[1]) * self._sizes()[2]
        plain = not c.epilogue and not c.accumulate and not c.more
        return np.dtype(np.float32) if plain and wide.kind == "f" and bound < EXACT else wide

    @property
    def _linear(self) -> bool:
        """Freivalds' check needs sums of products, or C plus them, unrounded."""
        c = self._contraction
        exact = all(element_type(p.accumulator).bits >= 32 for p in c.products)
        return exact and c.accumulator == c.c.type and not c.epilogue

    @cached_property
    def _projected(self) -> tuple[np.ndarray, np.ndarray]:
        """A random integer vector x, and all A (B x), with C x for a C that is added to."""
        c = self._contraction
        wide = wide_dtype(c)
        x = np.random.default_rng(2).integers(-WIDEST, WIDEST + 1, (self._sizes()[1], 1))
        total, *others = (self._through(p, x.astype(wide), wide) for p in c.products)
        for other in others:
            total = total + other
        total = self._launches * total
        return x, total + _times(self._host[c.c.name], x, wide) if c.accumulate else total

    def _through(self, product: Contraction, x: np.ndarray, wide: np.dtype) -> np.ndarray:
        """A (B x)."""
        y = self._by_periods(product, product.b, "rows", x.T)
        a, b = matrices(product, self._host)
        y = _times(b, x, wide) if y is None else np.swapaxes(y, -1, -2)
        found = self._by_periods(product, product.a, "rows", np.swapaxes(y, -1, -2))
        return _times(a, y, wide) if found is None else np.swapaxes(found, -1, -2).astype(wide)

    def _multiply(
        self, product: Contraction, a: np.ndarray, b: np.ndarray, wide: np.dtype
    ) -> np.ndarray:
        """Rows of A times all of B, or all of A times columns of B, by the larger one's period."""
        found = None
        if b.size >= a.size and b.size == self._host[product.b.name].size:
            found = self._by_periods(product, product.b, "columns", a)
        elif a.size >= b.size and a.size == self._host[product.a.name].size:
            found = self._by_periods(product, product.a, "rows", np.swapaxes(b, -1, -2))
            found = None if found is None else np.swapaxes(found, -1, -2)
        return matmul(product, a, b, wide) if found is None else found.astype(wide)

    def _by_periods(
        self, product: Contraction, operand: Operand, result: Axis, weights: np.ndarray
    ) -> np.ndarray | None:
        """Weights [..., R, other axis] times the operand's matrix, [..., R, ``result``].

        None where it has no period, or is so small that it is sooner multiplied.
        """
        array = self._host[operand.name]
        if self._period is None or operand.source is not None or array.size < LEAST_BY_PERIODS:
            return None
        swapped = product.transposed_a if operand is product.a else product.transposed_b
        last = (result == "columns") != swapped  # whether the result runs along the last axis
        strides = (array.shape[-1], 1)
        batched = array.ndim == 3
        matrix = Periodic(
            pattern=self._one_period(operand).astype(np.float64),
            stride=strides[0 if last else 1],
            step=strides[1 if last else 0],
            count=array.shape[-1 if last else -2],
            batch_stride=array.shape[-1] * array.shape[-2],
            batches=array.shape[0] if batched else None,
        )
        return matrix.times(weights.astype(np.float64))

    def _one_period(self, operand: Operand) -> np.ndarray:
        """The first elements of an operand, all where it has no period."""
        flat = self._host[operand.name].reshape(-1)
        return flat if operand.source is not None else flat[: self._period]

    def _freivalds(self, got: np.ndarray) -> str | None:
        """C x = A (B x) for a random x (Freivalds 1977); exact in the wide type."""
        if not self._linear:
            return None
        x, expected = self._projected
        found = _times(got, x, wide_dtype(self._contraction))
        if np.array_equal(found, expected):
            return None
        return f"Freivalds' check fails in {int(np.count_nonzero(found != expected))} rows"


def _differences(got: np.ndarray, expected: np.ndarray) -> int:
    if got.dtype.itemsize < 4:  # narrow floats compare through f32, which holds all of them
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    return int(np.count_nonzero(got != expected))  # a NaN differs from everything


def _times(matrix: np.ndarray, vector: np.ndarray, wide: np.dtype) -> np.ndarray:
    """matrix @ vector in the wide type, by blocks of rows so that no wide copy of it exists."""
    step = max(1, (1 << 20) // max(1, matrix.shape[-1]))
    vector = vector.astype(wide)

    def block(i: int) -> np.ndarray:
        return np.matmul(matrix[..., i : i + step, :].astype(wide), vector)

    starts = range(0, max(1, matrix.shape[-2]), step)
    if len(starts) == 1:
        return block(0)
    with ThreadPoolExecutor(min(THREADS, len(starts))) as pool:  # numpy lets go of the interpreter
        return np.concatenate(list(pool.map(block, starts)), axis=-2)
