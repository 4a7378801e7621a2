"""Every way to hand over an operand is computed rightly, or refused by kernel and operand."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dialects.errors import OperandError
from packs import Packs
from runtime import Session
from runtime.device import Device

DEVICES = ["local-sync", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
M, N, K = 9, 11, 13
RNG = np.random.default_rng(5)
A = RNG.integers(-3, 4, (M, K)).astype(np.float32)
B = RNG.integers(-3, 4, (K, N)).astype(np.float32)
C = A @ B
as_strided = np.lib.stride_tricks.as_strided

Change = Callable[[np.ndarray], Any]


class Tagged(np.ndarray):
    """An array type of somebody else."""


class Exported:
    """An array of another library: nothing but dlpack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class ElsewhereExported(Exported):
    """An array that lies on a graphics card."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory is not the host's")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


class BrokenExported(Exported):
    """An exporter with a fault of its own."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AttributeError("no such thing")


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, packs: Packs) -> Iterator[Session]:
    """A session with all samples that never times."""
    with Session(packs.paths, device=request.param, tuning="off") as opened:
        yield opened


def _rows_apart(array: np.ndarray) -> np.ndarray:
    wide = np.full((len(array), array.shape[1] + 7), np.float32(np.nan))
    wide[:, 3:-4] = array
    return wide[:, 3:-4]


def _every_other(array: np.ndarray) -> np.ndarray:
    wide = np.full((2 * len(array), 2 * array.shape[1]), np.float32(np.nan))
    wide[::2, ::2] = array
    return wide[::2, ::2]


def _shifted(nbytes: int) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        raw = np.zeros(array.nbytes + 64, np.uint8)
        moved = raw[nbytes : nbytes + array.nbytes].view(array.dtype).reshape(array.shape)
        moved[...] = array
        return moved

    return change


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


SAME: dict[str, Change] = {
    "rows apart": _rows_apart,
    "every other element": _every_other,
    "transposed view": lambda x: np.ascontiguousarray(x.T).T,
    "Fortran order": np.asfortranarray,
    "rows backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "columns backwards": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "all backwards": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "read only": _read_only,
    "read only, rows apart": lambda x: _read_only(_rows_apart(x)),
    "off by a byte": _shifted(1),
    "off by two bytes": _shifted(2),
    "off by an element": _shifted(4),
    "a subclass": lambda x: x.view(Tagged),
    "dlpack": Exported,
    "dlpack of rows apart": lambda x: Exported(_rows_apart(x)),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_inputs_in_any_layout(session: Session, change: Change) -> None:
    """Both operands in turn, then the result."""
    np.testing.assert_array_equal(session.matmul_f32(change(A), B), C)
    np.testing.assert_array_equal(session.matmul_f32(A, change(B)), C)
    np.testing.assert_array_equal(session.matmul_f32(change(A), change(B)), C)


@pytest.mark.parametrize(
    "change",
    [c for n, c in SAME.items() if "read" not in n],
    ids=[n for n in SAME if "read" not in n],
)
def test_a_result_in_any_layout(session: Session, change: Change) -> None:
    out = change(np.full((M, N), np.float32(np.nan)))
    assert session.matmul_f32(A, B, out=out) is out
    np.testing.assert_array_equal(out.array if isinstance(out, Exported) else out, C)


def test_the_result_may_be_the_last_positional_argument(session: Session) -> None:
    out = np.empty((M, N), np.float32)
    assert session.matmul_f32(A, B, out) is out
    np.testing.assert_array_equal(out, C)


def test_broadcast_inputs(session: Session) -> None:
    """Strides of zero, in the rows, the columns, and an operand of the epilogue."""
    row, column = np.broadcast_to(A[:1], (M, K)), np.broadcast_to(A[:, :1], (M, K))
    np.testing.assert_array_equal(session.matmul_f32(row, B), row @ B)
    np.testing.assert_array_equal(session.matmul_f32(column, B), column @ B)
    for bias in (
        np.broadcast_to(np.float32(2), (N,)),
        np.arange(2 * N, dtype=np.float32)[::2],
        np.arange(N, dtype=np.float32)[::-1],
    ):
        expected = np.maximum(C + bias, 0)
        np.testing.assert_array_equal(session.matmul_bias_relu(A, B, bias), expected)


def test_batches_in_another_order(session: Session) -> None:
    """A batch axis that is not the slowest, in operands and result."""
    a = RNG.integers(-3, 4, (M, 2, K)).astype(np.float32).swapaxes(0, 1)
    b = RNG.integers(-3, 4, (K, N, 2)).astype(np.float32).transpose(2, 0, 1)
    out = np.empty((M, 2, N), np.float32).swapaxes(0, 1)
    np.testing.assert_array_equal(session.batch_matmul(a, b, out=out), a @ b)


def test_a_mapped_file(session: Session, tmp_path: Path) -> None:
    """Read-only memory of a file, from the middle of a page."""
    path = tmp_path / "weights"
    path.write_bytes(b"x" * 20 + B.tobytes())
    mapped = np.memmap(path, np.float32, "r", offset=20, shape=B.shape)
    np.testing.assert_array_equal(session.matmul_f32(A, mapped), C)
    kept = session.prepare("matmul_f32", b=mapped)
    np.testing.assert_array_equal(session.matmul_f32(A, kept), C)
    assert path.read_bytes()[20:] == B.tobytes()


@pytest.mark.parametrize("change", [np.copy, _read_only])
def test_a_buffer_keeps_the_memory_that_it_lies_over(change: Change) -> None:
    """A device may still be at work when the caller drops the array."""
    device, array = Device("local-sync"), change(A)
    dropped, buffer = weakref.ref(array), device.adopt(array)
    del array
    gc.collect()
    assert dropped() is not None
    del buffer
    gc.collect()
    assert dropped() is None


@pytest.mark.parametrize("which", ["a", "b"])
def test_a_result_over_an_operand(session: Session, which: str) -> None:
    """Host arrays that overlap are computed as if they did not."""
    square = RNG.integers(-3, 4, (2, K, K)).astype(np.float32)
    expected = square[0] @ square[1]
    both = square.copy()
    out = both["ab".index(which)]
    np.testing.assert_array_equal(session.matmul_f32(both[0], both[1], out=out), expected)
    wide = np.zeros((K, K + 3), np.float32)
    wide[:, :K] = square[0]
    got = session.matmul_f32(wide[:, :K], square[1], out=wide[:, 3:])
    np.testing.assert_array_equal(got, expected)


def _with_field(array: np.ndarray) -> np.ndarray:
    return array.view([("x", np.float32)])


WRONG: dict[str, tuple[Change, str]] = {
    "double": (lambda x: x.astype(np.float64), "type f64, the kernel takes f32"),
    "half": (lambda x: x.astype(np.float16), "type f16, the kernel takes f32"),
    "bf16": (lambda x: x.astype(ml_dtypes.bfloat16), "type bf16, the kernel takes f32"),
    "integers": (lambda x: x.astype(np.int32), "type i32, the kernel takes f32"),
    "longs": (lambda x: x.astype(np.int64), "type int64 has no kernel element type"),
    "booleans": (lambda x: x > 0, "type bool has no kernel element type"),
    "other byte order": (lambda x: x.astype(">f4"), "byte order of >f4 is not this machine's"),
    "objects": (lambda x: x.astype(object), "type object has no kernel element type"),
    "structures": (_with_field, "has no kernel element type"),
    "texts": (lambda x: x.astype("U3"), "type <U3 has no kernel element type"),
    "dates": (lambda x: x.astype("M8[s]"), "has no kernel element type"),
    "a masked array": (lambda x: np.ma.masked_array(x, mask=x > 0), "found a masked one"),
    "a vector": (np.ravel, "rank 1, the kernel takes 2"),
    "a batch": (lambda x: x[None], "rank 3, the kernel takes 2"),
    "no axes": (lambda x: np.array(1, np.float32), "rank 0, the kernel takes 2"),
    "a scalar": (lambda x: x[0, 0], "expected an array, found float32"),
    "a list": (lambda x: x.tolist(), "expected an array, found list"),
    "nothing": (lambda x: None, "expected an array, found NoneType"),
    "a number": (lambda x: 3, "expected an array, found int"),
    "a type": (lambda x: np.ndarray, "dlpack import failed"),
    "memory elsewhere": (ElsewhereExported, "the memory is not the host's"),
    "a broken exporter": (BrokenExported, "dlpack import failed: no such thing"),
}


@pytest.mark.parametrize(("change", "text"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("which", ["a", "b"])
def test_wrong_inputs_are_refused(session: Session, which: str, change: Change, text: str) -> None:
    """With the kernel and the operand by name, from a call as from prepare."""
    operands = {"a": A, "b": B}
    operands[which] = change(operands[which])
    with pytest.raises(OperandError, match=text) as caught:
        session.matmul_f32(*operands.values())
    assert f"kernel 'matmul_f32' operand '{which}'" in str(caught.value)
    with pytest.raises(OperandError, match=text) as caught:
        session.prepare("matmul_f32", **{which: operands[which]})
    assert f"kernel 'matmul_f32' operand '{which}'" in str(caught.value)


BAD_RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "shape": (lambda: np.empty((M, N + 1), np.float32), "shape 9x12, required 9x11"),
    "rank": (lambda: np.empty(M * N, np.float32), "shape 99, required 9x11"),
    "scalar": (lambda: np.empty((), np.float32), "shape scalar, required 9x11"),
    "type": (lambda: np.empty((M, N), np.float64), "type f64, the kernel gives f32"),
    "byte order": (lambda: np.empty((M, N), ">f4"), "byte order"),
    "list": (lambda: [[0.0] * N] * M, "expected an array, found list"),
    "read only": (lambda: _read_only(np.empty((M, N), np.float32)), "is read-only"),
    "broadcast": (lambda: as_strided(np.empty(N, np.float32), (M, N), (0, 4)), "elements overlap"),
    "rows over rows": (
        lambda: as_strided(np.empty(999, np.float32), (M, N), (8, 4)),
        "elements overlap",
    ),
    "columns over columns": (
        lambda: as_strided(np.empty(999, np.float32), (M, N), (4, 8)),
        "elements overlap",
    ),
    "masked": (lambda: np.ma.masked_array(np.empty((M, N), np.float32)), "found a masked one"),
}


@pytest.mark.parametrize(("make", "text"), BAD_RESULTS.values(), ids=BAD_RESULTS.keys())
def test_wrong_results_are_refused(session: Session, make: Callable[[], Any], text: str) -> None:
    with pytest.raises(OperandError, match=text) as caught:
        session.matmul_f32(A, B, out=make())
    assert "kernel 'matmul_f32' result 'c'" in str(caught.value)


def test_sizes_that_disagree(session: Session) -> None:
    with pytest.raises(OperandError, match="operand 'b': size K is 13, operand 'a' has 12"):
        session.matmul_f32(A[:, :-1], B)
    with pytest.raises(OperandError, match="operand 'bias': size N is 10, operand 'b' has 11"):
        session.matmul_bias_relu(A, B, np.zeros(N - 1, np.float32))
    with pytest.raises(OperandError, match="operand 'b': size B is 3, operand 'a' has 2"):
        session.batch_matmul(np.zeros((2, 3, 4), "f4"), np.zeros((3, 4, 5), "f4"))


@pytest.mark.parametrize("count", [0, 1, 4, 9])
def test_the_wrong_number_of_operands(session: Session, count: int) -> None:
    with pytest.raises(OperandError, match=rf"takes 2 operands \(a, b\), found {count}"):
        session.matmul_f32(*[A] * count)
    with pytest.raises(OperandError, match="found 3"):
        session.matmul_f32(A, B, C, out=C)
