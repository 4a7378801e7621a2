"""Arrays on the device: results, prepared operands, workspaces, and what other libraries see."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dialects.errors import DeviceError, Error, OperandError, UnsupportedError
from packs import Packs
from problems import DEVICES
from runtime import DeviceArray, Session
from runtime.arrays import contiguous

M, N, K = 9, 11, 13
RNG = np.random.default_rng(6)
A = RNG.integers(-3, 4, (M, K)).astype(np.float32)
B = RNG.integers(-3, 4, (K, N)).astype(np.float32)
C = A @ B
ON_HOST = ("local-sync", "local-task")


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, packs: Packs) -> Iterator[Session]:
    """A session with all samples that never times."""
    with Session(packs.paths, device=request.param, tuning="off") as opened:
        yield opened


@pytest.fixture
def other(session: Session, packs: Packs) -> Iterator[Session]:
    """A second session on the same device."""
    with Session(packs.paths, device=session.device.uri, tuning="off") as opened:
        yield opened


def test_device_arrays_give_device_arrays(session: Session) -> None:
    """A new one, or the caller's; with host arrays among the operands too."""
    a, b = session.array(A), session.array(B)
    for operands in ((a, b), (A, b), (a, B)):
        got = session.matmul_f32(*operands)
        assert isinstance(got, DeviceArray)
        assert (got.shape, got.dtype) == ((M, N), np.float32)
        np.testing.assert_array_equal(got.numpy(), C)
        out = session.empty((M, N), "f32")
        assert session.matmul_f32(*operands, out=out) is out
        np.testing.assert_array_equal(out.numpy(), C)
    host = np.empty((M, N), np.float32)
    assert session.matmul_f32(a, b, out=host) is host
    np.testing.assert_array_equal(host, C)
    assert repr(a) == f"DeviceArray(9x13 f32 on {session.device.uri})"


def test_results_feed_the_next_call(session: Session) -> None:
    """A chain of calls without a host array, with warm repeats."""
    a, square = session.array(A), session.array(np.eye(K, dtype=np.float32)[::-1])
    out = [session.empty((M, K), "f32") for _ in range(2)]
    for _ in range(3):
        session.matmul_f32(a, square, out=out[0])
        session.matmul_f32(out[0], square, out=out[1])
        np.testing.assert_array_equal(out[0].numpy(), A[:, ::-1])
        np.testing.assert_array_equal(out[1].numpy(), A)


def test_a_result_of_another_shape_is_never_taken_for_a_known_one(session: Session) -> None:
    """A plan is found by the identity of layouts, which must not be reused while it lives."""
    a, b, buffer = session.array(A), session.array(B), session.device.allocate(4096)
    for _ in range(50):
        known = DeviceArray(session.device, buffer, contiguous("f32", (M, N)))
        session.matmul_f32(a, b, out=known)
        session.matmul_f32(a, b, out=known)
        del known
        for _ in range(20):
            wrong = DeviceArray(session.device, buffer, contiguous("f32", (M, N + 1)))
            with pytest.raises(OperandError, match="shape 9x12, required 9x11"):
                session.matmul_f32(a, b, out=wrong)


@pytest.mark.parametrize("which", [0, 1])
def test_a_result_in_an_operands_memory_is_refused(session: Session, which: int) -> None:
    """Cold and warm: the plan of another result with the same layout is known."""
    square = RNG.integers(-3, 4, (2, K, K)).astype(np.float32)
    operands = [session.array(x) for x in square]
    out = session.empty((K, K), "f32")
    for _ in range(2):
        with pytest.raises(OperandError, match="result 'c': shares its memory with an operand"):
            session.matmul_f32(*operands, out=operands[which])
        session.matmul_f32(*operands, out=out)
        np.testing.assert_array_equal(out.numpy(), square[0] @ square[1])


def test_views_of_operands_as_results(packs: Packs) -> None:
    """On the host's memory a view is as good as the array itself."""
    with Session([packs.path("matmul_f32")], device="local-sync", tuning="off") as session:
        square = RNG.integers(-3, 4, (2, K, K)).astype(np.float32)
        a, b = (session.array(x) for x in square)
        np.testing.assert_array_equal(session.matmul_f32(a, b, out=a.view()), square[0] @ square[1])
        a = session.array(square[0])
        with pytest.raises(OperandError, match="shares its memory"):
            session.matmul_f32(a.view(), b, out=a)


def test_arrays_of_another_session_are_refused(session: Session, other: Session) -> None:
    foreign = other.array(B)
    text = "is on device '.*' of another session"
    with pytest.raises(OperandError, match=f"kernel 'matmul_f32' operand 'b': {text}"):
        session.matmul_f32(A, foreign)
    with pytest.raises(OperandError, match=f"kernel 'matmul_f32' operand 'b': {text}"):
        session.prepare("matmul_f32", b=foreign)
    with pytest.raises(OperandError, match=f"kernel 'matmul_f32' operand 'b': {text}"):
        session.matmul_f32(A, other.prepare("matmul_f32", b=B))
    with pytest.raises(OperandError, match=f"kernel 'matmul_f32' result 'c': {text}"):
        session.matmul_f32(A, B, out=other.empty((M, N), "f32"))


def test_wrong_device_arrays_are_refused(session: Session) -> None:
    cases: list[tuple[Any, str]] = [
        (session.empty((K, N), "f16"), "operand 'b': type f16, the kernel takes f32"),
        (session.empty((N,), "f32"), "operand 'b': rank 1, the kernel takes 2"),
        (session.empty((K + 1, N), "f32"), "operand 'b': size K is 14, operand 'a' has 13"),
    ]
    for operand, text in cases:
        with pytest.raises(OperandError, match=text):
            session.matmul_f32(A, operand)
    with pytest.raises(OperandError, match="result 'c': shape 9x10, required 9x11"):
        session.matmul_f32(A, B, out=session.empty((M, N - 1), "f32"))
    with pytest.raises(OperandError, match="result 'c': type i32, the kernel gives f32"):
        session.matmul_f32(A, B, out=session.empty((M, N), "i32"))


def test_prepared_operands_belong_to_their_kernel_and_place(session: Session) -> None:
    kept = session.prepare("matmul_f32", b=B)
    assert repr(kept) == f"PreparedOperand(b of matmul_f32, {kept.array!r})"
    with pytest.raises(OperandError, match=r"operand 'b': was prepared as .*b of matmul_f32"):
        session.matmul_bias_relu(A, kept, np.zeros(N, np.float32))
    with pytest.raises(OperandError, match="operand 'a': was prepared as"):
        session.matmul_f32(kept, B)
    with pytest.raises(OperandError, match="result 'c': expected an array"):
        session.matmul_f32(A, B, out=kept)
    with pytest.raises(OperandError, match="size K is 13, operand 'a' has 12"):
        session.matmul_f32(A[:, 1:], kept)
    with pytest.raises(OperandError, match="has no operand 'q', has: a, b"):
        session.prepare("matmul_f32", q=B)
    with pytest.raises(OperandError, match="nothing to prepare, has operands: a, b"):
        session.prepare("matmul_f32")
    both = session.prepare("matmul_f32", b=B, a=session.array(A))
    np.testing.assert_array_equal(session.matmul_f32(both[1], both[0]), C)


def test_bad_workspaces_are_refused(packs: Packs) -> None:
    with Session([packs.path("matmul_f32")], device="local-sync", tuning="off") as session:
        need = session.workspace_bytes("matmul_f32", M, N, K)
        space = session.empty((need,), "u8")
        np.testing.assert_array_equal(session.matmul_f32(A, B, workspace=space), C)
        cases: list[tuple[Any, str]] = [
            (np.zeros(need, np.uint8), "expected a device array, found ndarray"),
            (session.empty((8,), "u8"), r"has 8 B, required \d+ B"),
        ]
        for bad, text in cases:
            with pytest.raises(OperandError, match=f"'matmul_f32' workspace: {text}"):
                session.matmul_f32(A, B, workspace=bad)
        out = DeviceArray(session.device, space.buffer, contiguous("f32", (M, N)))
        with pytest.raises(OperandError, match="workspace: is an operand or the result too"):
            session.matmul_f32(A, B, out=out, workspace=space)


@pytest.mark.parametrize(
    ("shape", "kind", "error"),
    [
        ((-1, 4), "f32", OperandError),
        ((1 << 40, 1), "f32", OperandError),
        ((1.5, 4), "f32", OperandError),
        (("4",), "f32", OperandError),
        ((4,), "q9", UnsupportedError),
        (((1 << 31) - 1,) * 3, "f32", DeviceError),
    ],
)
def test_impossible_arrays(session: Session, shape: Any, kind: str, error: type[Error]) -> None:
    with pytest.raises(error):
        session.empty(shape, kind)


def test_arrays_of_every_kind_go_round(session: Session) -> None:
    """Host to device and back, in any layout, empty ones too."""
    for array in (A, A.T, A[::-2, ::3], A[:0], A.astype(np.float16), A.astype(np.int8)):
        there = session.array(array)
        np.testing.assert_array_equal(there.numpy(), array)
        np.testing.assert_array_equal(np.asarray(there, np.float64), array.astype(np.float64))
        with pytest.raises(ValueError, match="without a copy"):
            np.array(there, copy=False)
    with pytest.raises(OperandError, match="array: byte order of >f4"):
        session.array(A.astype(">f4"))
    with pytest.raises(OperandError, match="array: expected an array, found list"):
        session.array([1.0])


def test_zero_sizes(session: Session) -> None:
    """Nothing to compute gives an empty result, and no product gives zeros."""
    for m, n, k in ((0, 4, 5), (4, 0, 5), (4, 5, 0), (0, 0, 0)):
        a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
        for result in (
            session.matmul_f32(a, b),
            session.matmul_f32(session.array(a), session.array(b)).numpy(),
            session.matmul_f32(a, session.prepare("matmul_f32", b=b)),
        ):
            np.testing.assert_array_equal(result, np.zeros((m, n), np.float32))


@pytest.mark.parametrize("uri", ON_HOST)
def test_memory_is_shared_with_other_libraries(packs: Packs, uri: str) -> None:
    """A view and a dlpack import alias the array, and outlive it."""
    with Session([packs.path("matmul_f32")], device=uri, tuning="off") as session:
        array = session.array(A)
        view, imported = array.view(), np.from_dlpack(array)
        view[0, 0] = 99
        assert imported[0, 0] == 99
        assert array.numpy()[0, 0] == 99
        assert array.__dlpack_device__()[0] == 1
        np.testing.assert_array_equal(session.matmul_f32(array, B).numpy(), view @ B)
        got = session.matmul_f32(array, session.array(B)).view()
        empty = session.empty((0, 3), "f32").view()
    del array
    np.testing.assert_array_equal(got, imported @ B)
    assert empty.shape == (0, 3)


def test_an_interrupt_waits_for_the_device(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long call sleeps; when that is interrupted, nothing is still being written."""

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with Session([packs.path("matmul_f32")], device="local-task", tuning="off") as session:
        size = 2048  # tens of milliseconds, which no scheduler's pause of this thread outlasts
        a, b = (np.ones((size, size), np.float32) for _ in range(2))
        session.matmul_f32(a, b)
        out = np.zeros((size, size), np.float32)
        with monkeypatch.context() as patched:
            patched.setattr("runtime.execute.time", SimpleNamespace(sleep=interrupt))
            with pytest.raises(KeyboardInterrupt):
                session.matmul_f32(a, b, out=out)
        assert np.all(out == size)


def test_a_device_with_memory_of_its_own_shares_none(vulkan_device: str, packs: Packs) -> None:
    with Session([packs.path("matmul_f32")], device=vulkan_device, tuning="off") as session:
        array = session.array(A)
        for attempt in (array.view, array.__dlpack__, array.__dlpack_device__):
            with pytest.raises(OperandError, match="does not share the host's memory"):
                attempt()
    np.testing.assert_array_equal(array.numpy(), A)
