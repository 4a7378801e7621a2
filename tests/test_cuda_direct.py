"""The direct executor against a driver in Python: operands, results, streams, memory."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_arrays import Exporter, Interface, Tensor, direct, fake_torch, matrices
from dialects.errors import DeviceError, OperandError, UsageError
from fake_cuda import FakeCuda
from packs import kernel_of
from runtime import Session
from runtime.family import Choice
from runtime.shape_choice import HELD

NAME = "matmul_f16"


@pytest.fixture
def cuda(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The driver that sessions find, and a torch."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    return fake_cuda


@pytest.fixture
def session(cuda_pack: Path, cuda: FakeCuda) -> Iterator[Session]:
    """A direct session on the default stream."""
    with direct(cuda_pack) as opened:
        yield opened


@pytest.mark.parametrize("kind", [Tensor, Interface, Exporter])
def test_foreign_arrays_are_used_in_place(session: Session, cuda: FakeCuda, kind: Any) -> None:
    a, b, expected = matrices()
    out = np.full(expected.shape, np.nan, np.float32)
    given = kind(out)
    assert session[NAME](kind(a), kind(b), out=given) is given
    assert np.array_equal(out, expected)
    entry, grid, block, shared, stream, values = cuda.launches[-1]
    launch = kernel_of(session.reference(NAME).pack.path).members[0].launch
    assert launch is not None
    assert (entry, block, shared) == (launch.entry, launch.block, launch.dynamic_shared_bytes)
    assert grid == (-(-130 // 64), 1, 1)
    assert stream == 0
    assert values == [a.ctypes.data, b.ctypes.data, out.ctypes.data, 37, 130, 15, 15, 130, 130]


def test_a_warm_call_only_launches(session: Session, cuda: FakeCuda) -> None:
    a, b, expected = matrices()
    out = np.full(expected.shape, np.nan, np.float32)
    given = [Tensor(a), Tensor(b)]
    session[NAME](*given, out=Tensor(out))
    held, done = len(cuda.memory), len(cuda.calls)
    again = np.full(expected.shape, np.nan, np.float32)
    session[NAME](*given, out=Tensor(again))
    # Its context is not the thread's here: beside torch it is, and only the first is called.
    assert cuda.calls[done:] == [
        "cuCtxGetCurrent",
        "cuCtxPushCurrent",
        "cuLaunchKernel",
        "cuCtxPopCurrent",
    ]
    cuda.context = [session.device.context]  # type: ignore[attr-defined]
    done = len(cuda.calls)
    session[NAME](*given, Tensor(again))
    assert cuda.calls[done:] == ["cuCtxGetCurrent", "cuLaunchKernel"]
    assert len(cuda.memory) == held
    assert np.array_equal(again, expected)


def test_the_names_of_sizes_load_nothing(session: Session, cuda: FakeCuda) -> None:
    done = len(cuda.calls)
    assert session.dims(NAME) == ("M", "N", "K")
    assert session.problem_of(NAME, 1, 2, 3).sizes == (1, 2, 3)
    assert cuda.calls[done:] == []
    session.reference(NAME)
    assert len(cuda.calls) > done


def test_a_torch_operand_gives_a_torch_result(session: Session) -> None:
    a, b, expected = matrices()
    for _ in range(2):  # the long way, then the short one
        result = session[NAME](Tensor(a), Tensor(b))
        assert isinstance(result, Tensor)
        assert np.array_equal(result.array, expected)


def test_host_arrays_and_arrays_of_the_session_mix(session: Session) -> None:
    a, b, expected = matrices()
    assert np.array_equal(session[NAME](a, b), expected)
    weights = session.prepare(NAME, b=b)
    result = session[NAME](session.array(a), weights)
    assert np.array_equal(result.numpy(), expected)
    out = session.empty(expected.shape, "f32")
    for _ in range(2):
        assert session[NAME](Tensor(a), weights, out=out) is out
        assert np.array_equal(out.numpy(), expected)


def test_strided_windows_keep_what_lies_around_them(session: Session, cuda: FakeCuda) -> None:
    a, b, expected = matrices()
    wide = np.full((37, 40), 5, np.float16)
    wide[:, 8:23] = a
    out = np.full((37, 200), 7, np.float32)
    session[NAME](Tensor(wide[:, 8:23]), Tensor(b), out=Tensor(out[:, 16:146]))
    assert np.array_equal(out[:, 16:146], expected)
    assert (out[:, :16] == 7).all()
    assert (out[:, 146:] == 7).all()
    assert cuda.launches[-1][-1][6:] == [40, 130, 200]


def test_zero_sizes_never_reach_the_device(session: Session, cuda: FakeCuda) -> None:
    for m, n in ((0, 8), (8, 0)):
        a, b, _ = matrices(m, n, 4)
        out = np.zeros((m, n), np.float32)
        assert session[NAME](Tensor(a), Tensor(b), out=Tensor(out)).shape == (m, n)
    assert cuda.launches == []
    a, b, _ = matrices(8, 8, 0)
    out = np.full((8, 8), np.nan, np.float32)
    for _ in range(2):
        session[NAME](Tensor(a), Tensor(b), out=Tensor(out))
        assert (out == 0).all()
        assert 0 not in cuda.launches[-1][-1][:3]  # no null address, whatever the sizes


def test_streams_by_session_and_by_call(cuda_pack: Path, cuda: FakeCuda) -> None:
    class Stream:
        cuda_stream = 77

    class Other:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 78

    a, b, expected = matrices()
    out = Tensor(np.empty(expected.shape, np.float32))
    options: Any = {"device": "cuda", "executor": "direct", "tuning": "off"}
    with Session(cuda_pack, stream=Stream(), **options) as session:
        session[NAME](Tensor(a), Tensor(b), out=out)
        for stream in (5, Other()):
            session[NAME](Tensor(a), Tensor(b), out=out, stream=stream)
        with pytest.raises(OperandError, match="expected a CUDA stream, found str"):
            session[NAME](Tensor(a), Tensor(b), out=out, stream="5")
    assert [launch[4] for launch in cuda.launches] == [77, 5, 78]


def test_a_first_call_is_not_captured_and_a_warm_one_is(session: Session, cuda: FakeCuda) -> None:
    a, b, expected = matrices()
    out = Tensor(np.empty(expected.shape, np.float32))
    cuda.capturing = {9}
    for stream in (9, 0):  # the default stream cannot even say while another one is captured
        with pytest.raises(DeviceError, match="cannot be captured: make the same call once before"):
            session[NAME](Tensor(a), Tensor(b), out=out, stream=stream)
    cuda.capturing = set()
    session[NAME](Tensor(a), Tensor(b), out=out)
    cuda.capturing = {9}
    session[NAME](Tensor(a), Tensor(b), out=out, stream=9)
    assert cuda.launches[-1][4] == 9


def test_a_producer_on_another_stream_is_waited_for(session: Session, cuda: FakeCuda) -> None:
    a, b, expected = matrices()
    out = Interface(np.empty(expected.shape, np.float32))
    session[NAME](Interface(a, stream=1), Interface(b), out=out)
    assert "cuStreamWaitEvent" not in cuda.calls  # 1 is the default stream, as the session's
    session[NAME](Interface(a, stream=6), Interface(b), out=out)
    assert cuda.calls.count("cuStreamWaitEvent") == 1
    exported = Exporter(a)
    session[NAME](exported, Exporter(b), out=out, stream=44)
    assert exported.asked == [44]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b, c: (Tensor(a, 1), Tensor(b), Tensor(c)), "is on CUDA device 1"),
        (lambda a, b, c: (Tensor(np.asfortranarray(a)), Tensor(b), Tensor(c)), "innermost stride"),
        (lambda a, b, c: (Tensor(a.astype(np.float32)), Tensor(b), Tensor(c)), "type f32"),
        (lambda a, b, c: (Tensor(a.astype(np.int64)), Tensor(b), Tensor(c)), "type int64 has no"),
        (lambda a, b, c: (Tensor(a[:-1]), Tensor(b), Tensor(c)), "shape 37x130, required 36x130"),
        (lambda a, b, c: (Tensor(a), Tensor(b[:-1]), Tensor(c)), "size K is 14"),
        (lambda a, b, c: (Tensor(a), Tensor(b), Tensor(c.astype(np.float16))), "type f16"),
        (
            lambda a, b, c: (
                Tensor(a),
                Tensor(b),
                Tensor(np.lib.stride_tricks.as_strided(c, c.shape, (8, 4))),
            ),
            "elements overlap",
        ),
    ],
)  # fmt: skip
def test_operands_that_no_kernel_can_take(session: Session, change: Any, message: str) -> None:
    a, b, expected = matrices()
    given = change(a, b, np.zeros(expected.shape, np.float32))
    with pytest.raises(OperandError, match=message):
        session[NAME](*given)


def test_a_tensor_that_wants_a_gradient_is_refused(session: Session) -> None:
    a, b, _ = matrices()
    left = Tensor(a)
    left.requires_grad = True
    with pytest.raises(OperandError, match="requires a gradient"):
        session[NAME](left, Tensor(b))


def test_a_result_over_an_operand_is_refused_warm_or_not(session: Session) -> None:
    memory = np.zeros(64 * 64, np.float32)
    a = memory.view(np.float16)[: 32 * 32].reshape(32, 32)
    b, apart = np.zeros((32, 32), np.float16), np.zeros((32, 32), np.float32)
    over = memory[256 : 256 + 1024].reshape(32, 32)
    for _ in range(2):
        with pytest.raises(OperandError, match="shares its memory with an operand"):
            session[NAME](Tensor(a), Tensor(b), out=Tensor(over))
        session[NAME](Tensor(a), Tensor(b), out=Tensor(apart))


def test_memory_is_given_back(cuda_pack: Path, cuda: FakeCuda) -> None:
    a, b, _ = matrices()
    with direct(cuda_pack) as session:
        session[NAME](a, b)
        held = len(cuda.memory)
        for _ in range(3):
            session[NAME](a, b)
        assert len(cuda.memory) == held
        cuda.memory_left = 1000
        with pytest.raises(DeviceError, match=r"cannot allocate 1110 B .*OUT_OF_MEMORY"):
            session[NAME](a, b)
    del session
    gc.collect()
    assert cuda.memory == {}


def test_a_direct_session_is_for_cuda(cuda_pack: Path, cuda: FakeCuda) -> None:
    with pytest.raises(DeviceError, match="device 'local-task' has no direct executor, cuda has"):
        Session(cuda_pack, device="local-task", executor="direct")
    with pytest.raises(UsageError, match="a stream is for executor='direct'"):
        Session(cuda_pack, device="local-task", stream=5)
    with pytest.raises(UsageError, match="executor 'both' is not one of iree, direct"):
        Session(cuda_pack, device="cuda", executor="both")  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="cuda: no device '7', there are 0: GPU-0001"):
        Session(cuda_pack, device="cuda://7", executor="direct")
    with Session(cuda_pack, device="cuda://1", executor="direct", tuning="off") as session:
        assert session.facts.uuid == "000102030405060708090a0b0c0d0e10"


def test_a_held_call_keeps_no_plan(cuda_pack: Path, cuda: FakeCuda) -> None:
    """A choice that was made while trials are held serves one call, warm calls included."""
    a, b, expected = matrices(64, 64, 64)
    out = np.full(expected.shape, np.nan, np.float32)
    given = [Tensor(a), Tensor(b), Tensor(out)]
    made: list[Choice] = []
    with Session(
        cuda_pack, device="cuda", executor="direct", tuning="store", on_choice=made.append
    ) as session:
        with session.hold():
            session[NAME](*given)
            session[NAME](*given)
        assert [c.note for c in made] == [HELD, HELD]
        for _ in range(3):
            session[NAME](*given)
        assert [c.lasting for c in made] == [False, False, True]
    assert np.array_equal(out, expected)


def test_a_candidate_by_name_is_launched_directly(cuda_pack: Path, cuda: FakeCuda) -> None:
    """As a trial in place calls it; on tensors of another library too."""
    a, b, expected = matrices(64, 64, 64)
    with direct(cuda_pack) as session:
        for record in kernel_of(cuda_pack).members:
            assert record.launch is not None
            out = np.full(expected.shape, np.nan, np.float32)
            session.candidate(NAME, record.full_name)(Tensor(a), Tensor(b), Tensor(out))
            assert np.array_equal(out, expected)
            assert cuda.launches[-1][3] == record.launch.dynamic_shared_bytes
