"""The checks that a candidate passes before it is timed see every single wrong element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from dialects.manifest import KernelEntry
from dialects.member import Problem
from dialects.operands import Contraction, EpilogueStep, Operand, Product
from records import KERNEL, RECORD
from runtime.arrays import host_memory
from runtime.device import Device
from runtime.dtypes import dtype_of
from runtime.execute import Executable
from runtime.oracle import Oracle
from runtime.proof import Case, make_case, prove
from runtime.reference import evaluate

M, N, K = 200, 150, 70
ROW, COLUMN = 97, 53  # in no sampled row, and none of the last columns


def contraction(a: str = "f32", acc: str = "f32", c: str = "f32", **changes: Any) -> Contraction:
    """C = A B of these types."""
    return Contraction(
        m="M",
        n="N",
        k="K",
        a=Operand(name="a", type=a, dims=("M", "K")),
        b=Operand(name="b", type=a, dims=("K", "N")),
        c=Operand(name="c", type=c, dims=("M", "N")),
        accumulator=acc,
        **changes,
    )


BIAS = Operand(name="bias", type="f32", dims=("N",))
RELU = (EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0))
BYTES = Product(
    a=Operand(name="ai", type="i8", dims=("M", "K")),
    b=Operand(name="bi", type="i8", dims=("N", "K")),
    accumulator="i32",
)
HALVES = Product(
    a=Operand(name="ah", type="f16", dims=("M", "K")),
    b=Operand(name="bh", type="f16", dims=("K", "N")),
    accumulator="f16",
)
LINEAR = {
    "f32": contraction(),
    "f16 operands": contraction("f16"),
    "integers": contraction("i8", "i32", "i32"),
    "accumulate": contraction(accumulate=True),
    "transposed": replace(
        contraction(),
        a=Operand(name="a", type="f32", dims=("K", "M")),
        b=Operand(name="b", type="f32", dims=("N", "K")),
    ),
    "two products": contraction(more=(BYTES,)),
    "added to by two products": contraction(more=(BYTES,), accumulate=True),
    "batch": replace(
        contraction(),
        batch="B",
        a=Operand(name="a", type="f32", dims=("B", "M", "K")),
        b=Operand(name="b", type="f32", dims=("B", "K", "N")),
        c=Operand(name="c", type="f32", dims=("B", "M", "N")),
    ),
}
OTHERS = {
    "f16 result": contraction("f16", "f32", "f16"),
    "bf16 result": contraction("bf16", "f32", "bf16"),
    "f16 accumulator": contraction("f16", "f16", "f16"),
    "a narrow product more": contraction(more=(BYTES, HALVES)),
    "two products, bias and relu": contraction(more=(BYTES,), extras=(BIAS,), epilogue=RELU),
    "bias and relu": contraction(extras=(BIAS,), epilogue=RELU),
}
ALL = LINEAR | OTHERS
SIZES = {"B": 2, "M": M, "N": N, "K": K}


def operands(what: Contraction, sizes: dict[str, int] = SIZES) -> dict[str, np.ndarray]:
    """Small integers by name, those of C too."""
    rng = np.random.default_rng(1)
    return {
        o.name: rng.integers(-2, 3, [sizes[d] for d in o.dims]).astype(dtype_of(o.type))
        for o in what.operands
    }


def right(what: Contraction, host: dict[str, np.ndarray]) -> np.ndarray:
    """The exact result in C's type, worked out apart from the product's own reference."""
    a, b = (host[n].astype(np.float64) for n in "ab")
    a = a.swapaxes(-1, -2) if what.transposed_a else a
    b = b.swapaxes(-1, -2) if what.transposed_b else b
    value = a @ b
    if what.more:
        value = value + host["ai"].astype(np.float64) @ host["bi"].astype(np.float64).T
    if len(what.more) > 1:
        value = value + host["ah"].astype(np.float64) @ host["bh"].astype(np.float64)
    if what.accumulate:
        value = value + host["c"]
    if what.epilogue:
        value = np.maximum(value + host["bias"], 0)
    return value.astype(dtype_of(what.c.type))


@pytest.mark.parametrize("what", ALL.values(), ids=ALL.keys())
def test_the_right_result_passes(what: Contraction) -> None:
    host = operands(what)
    oracle = Oracle(what, host)
    assert oracle.compare(right(what, host)) is None
    assert oracle.sample(right(what, host)) is None


def _wrong_at(*index: int) -> Callable[[np.ndarray], None]:
    def spoil(got: np.ndarray) -> None:
        got[..., index[0], index[1]] = got[..., index[0], index[1]] + got.dtype.type(1)

    return spoil


def _unwritten(got: np.ndarray) -> None:
    got[..., -1, 0] = np.full(1, 0xFF, np.uint8).repeat(got.itemsize).view(got.dtype)[0]


def _not_a_number(got: np.ndarray) -> None:
    got[..., 3, -1] = np.nan if got.dtype.kind != "i" else 1 << 20


def _swapped(got: np.ndarray) -> None:
    got[..., [M - 2, M - 1], :] = got[..., [M - 1, M - 2], :]


EDGES: dict[str, Callable[[np.ndarray], None]] = {
    "last row": _wrong_at(-1, 0),
    "last column": _wrong_at(0, -1),
    "last corner": _wrong_at(-1, -1),
    "unwritten": _unwritten,
    "not a number": _not_a_number,
    "swapped rows": _swapped,
}


@pytest.mark.parametrize("spoil", EDGES.values(), ids=EDGES.keys())
@pytest.mark.parametrize("what", ALL.values(), ids=ALL.keys())
def test_wrong_edges_are_seen(what: Contraction, spoil: Callable[[np.ndarray], None]) -> None:
    """By both checks, whatever the kernel."""
    host = operands(what)
    got = right(what, host)
    spoil(got)
    oracle = Oracle(what, host)
    assert "wrong in" in (oracle.compare(got) or "")
    assert oracle.sample(got) is not None


@pytest.mark.parametrize("what", ALL.values(), ids=ALL.keys())
def test_a_wrong_element_anywhere_is_seen(what: Contraction) -> None:
    """By comparing all; by the sample where Freivalds' check applies."""
    host = operands(what)
    oracle = Oracle(what, host)
    for row, column in ((ROW, COLUMN), (0, 0), (M // 2, N // 2), (120, 10)):
        got = right(what, host)
        _wrong_at(row, column)(got)
        assert oracle.compare(got) is not None
        if what in LINEAR.values():
            assert oracle.sample(got) is not None
    if what in LINEAR.values():
        got = right(what, host)
        got[..., [ROW, ROW + 1], :] = got[..., [ROW + 1, ROW], :]
        assert oracle.sample(got) is not None


@pytest.mark.parametrize("k", [0, 1, 511, 4096])
def test_freivalds_is_exact(k: int) -> None:
    """No rounding makes a right result look wrong, or hides an error of 1 in a long sum."""
    what = LINEAR["f32"]
    host = operands(what, {"M": 96, "N": 96, "K": k})
    host["a"][...], host["b"][...] = 2, 2  # the largest sums there are
    oracle = Oracle(what, host)
    got = np.full((96, 96), np.float32(4 * k))
    assert oracle.sample(got) is None
    got[20, 20] += 1
    assert oracle.sample(got) is not None


def test_each_product_counts() -> None:
    """An element of one operand of one product, and the check fails."""
    what = contraction(more=(BYTES,))
    host = operands(what)
    oracle = Oracle(what, host)
    for name in ("a", "b", "ai", "bi"):
        changed = {n: h.copy() for n, h in host.items()}
        changed[name][3, 5] += 1
        got = right(what, changed)
        assert oracle.compare(got) is not None
        assert oracle.sample(got) is not None


def test_no_rows_or_columns() -> None:
    for sizes in ({"M": 0, "N": 5, "K": 4}, {"M": 5, "N": 0, "K": 4}, {"M": 0, "N": 0, "K": 0}):
        host = operands(LINEAR["f32"], sizes)
        oracle = Oracle(LINEAR["f32"], host)
        got = np.zeros((sizes["M"], sizes["N"]), np.float32)
        assert oracle.compare(got) is None


def test_the_reference_takes_rows_and_columns() -> None:
    """A part of the result is that part of the whole, for every kernel."""
    rows = np.array([0, 7, M - 1])
    for what in ALL.values():
        host = operands(what)
        whole = evaluate(what, host)
        part = evaluate(what, host, rows=rows, columns=slice(N - 9, None))
        np.testing.assert_array_equal(part, whole[..., rows, :][..., N - 9 :])


def test_integers_wrap_and_floats_round_as_the_hardware_does() -> None:
    wrap = contraction("i8", "i32", "i8")
    host = {"a": np.full((1, 2), 100, np.int8), "b": np.full((2, 1), 100, np.int8)}
    assert Oracle(wrap, host).compare(np.array([[20000 - 78 * 256]], np.int8)) is None
    narrow = contraction("f16", "f32", "bf16")
    host = {"a": np.full((1, 1), 257, np.float16), "b": np.ones((1, 1), np.float16)}
    assert Oracle(narrow, host).compare(np.array([[256]], ml_dtypes.bfloat16)) is None


class FakeExecutable:
    """A candidate in numpy, on the memory that a real one would get."""

    record = RECORD

    def __init__(
        self, case: Case, spoil: Callable[[Sequence[Any]], None], unwritten: int = 0
    ) -> None:
        self._case, self._spoil, self._unwritten = case, spoil, unwritten

    def run(self, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        """Write the right result but for some elements at the end, then do what a fault would."""
        assert constants == self._case.constants
        host = self._case.host
        result = right(self._case.kernel.contraction, host)
        end = result.nbytes - 4 * self._unwritten
        host_memory(buffers[-1])[:end] = result.reshape(-1).view(np.uint8)[:end]
        self._spoil(buffers)


PLAIN = replace(KERNEL, contraction=contraction("f16", "f32", "f32"))


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("local-sync")


def proof(
    device: Device, kernel: KernelEntry, spoil: Callable[[Sequence[Any]], None], *, whole: bool
) -> str | None:
    """What the proof says of a candidate that does this."""
    case = make_case(device, kernel, Problem(dims=("M", "N", "K"), sizes=(M, N, K)))
    fake = cast("Executable", FakeExecutable(case, spoil))
    return prove(device, fake, case, whole=whole)


@pytest.mark.parametrize("whole", [True, False])
def test_a_right_candidate_is_proven(device: Device, whole: bool) -> None:
    assert proof(device, PLAIN, lambda buffers: None, whole=whole) is None


@pytest.mark.parametrize("whole", [True, False])
def test_what_nobody_wrote_is_seen(device: Device, whole: bool) -> None:
    """The output is poisoned: what another candidate left there counts for nobody."""
    case = make_case(device, PLAIN, Problem(dims=("M", "N", "K"), sizes=(M, N, K)))
    good = cast("Executable", FakeExecutable(case, lambda buffers: None))
    assert prove(device, good, case, whole=whole) is None
    for left in (1, M * N):
        lazy = cast("Executable", FakeExecutable(case, lambda buffers: None, unwritten=left))
        assert "wrong in" in (prove(device, lazy, case, whole=whole) or "")


@pytest.mark.parametrize(("accumulator", "largest"), [("f16", 2048), ("bf16", 256), ("f32", None)])
def test_sums_are_exact_in_narrow_accumulators(
    device: Device, accumulator: str, largest: float | None
) -> None:
    """However long: whatever the order, no partial sum leaves the integers that the type has."""
    kernel = replace(KERNEL, contraction=contraction("f16", accumulator, "f32"))
    case = make_case(device, kernel, Problem(dims=("M", "N", "K"), sizes=(8, 8, 50000)))
    a, b = (np.abs(case.host[n].astype(np.float64)) for n in "ab")
    sums = a @ b
    assert np.median(sums) > 8
    assert largest is None or sums.max() <= largest
    assert (np.count_nonzero(a) < 0.7 * a.size) == (largest is not None)


def test_a_changed_operand_is_seen(device: Device) -> None:
    def scribble(buffers: Sequence[Any]) -> None:
        host_memory(buffers[1])[7] ^= 1

    assert proof(device, PLAIN, scribble, whole=True) == "operand 'b' was changed"


def test_an_operand_of_the_epilogue_in_the_other_order() -> None:
    """Stored N x M, it is read as what it is, and rows and columns of it too."""
    extra = Operand(name="d", type="f32", dims=("N", "M"))
    what = contraction(extras=(extra,), epilogue=(EpilogueStep(op="add", operand="d"),))
    rng = np.random.default_rng(0)
    host = {
        "a": rng.integers(-3, 4, (5, 2)).astype(np.float32),
        "b": rng.integers(-3, 4, (2, 3)).astype(np.float32),
        "d": rng.integers(-3, 4, (3, 5)).astype(np.float32),
    }
    whole = host["a"] @ host["b"] + host["d"].T
    np.testing.assert_array_equal(evaluate(what, host), whole)
    part = evaluate(what, host, rows=slice(1, 3), columns=slice(2, 3))
    np.testing.assert_array_equal(part, whole[1:3, 2:3])
