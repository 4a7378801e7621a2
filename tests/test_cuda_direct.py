"""The direct executor against a driver in Python: what it passes, refuses, keeps and frees."""

from __future__ import annotations

import gc
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cuda_arrays import Exporter, Interface, Tensor, fake_torch, gemm
from dialects.errors import DeviceError, LaunchRefused, OperandError, PackError, UsageError
from dialects.manifest import Needs, Record, Step
from fake_cuda import FakeCuda
from packs import build_pack, change_records, copied, kernel_of, with_few_members
from runtime import Session

NAME = "matmul_f16"
ONE = {'backends = ["cuda", "rocm", "vulkan"]': 1, "": 1}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, compile_cache: Path) -> Path:
    """A pack of two members for a CUDA ISA."""
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).parent.parent / "samples/02_matmul_f16.mlir"
    (folder / "f16.mlir").write_text(with_few_members(source.read_text(), ONE))
    build_pack(folder / "f16.mlir", folder / "pack", compile_cache, ("cuda:sm_90a",))
    return folder / "pack"


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The driver that sessions find."""
    fake = FakeCuda()
    fake.kernels["gemm"] = gemm
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    return fake


@pytest.fixture
def session(built: Path, cuda: FakeCuda) -> Iterator[Session]:
    """A direct session on the default stream."""
    with direct(built) as opened:
        yield opened


def direct(pack: Path) -> Session:
    """A direct session on the default stream."""
    return Session(pack, device="cuda", executor="direct", tuning="off")


def operands(m: int = 37, n: int = 130, k: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Small integers, and what they must give."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.parametrize("kind", [Tensor, Interface, Exporter])
def test_foreign_arrays_are_used_in_place(session: Session, cuda: FakeCuda, kind: Any) -> None:
    a, b, expected = operands()
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
    a, b, expected = operands()
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


def test_a_torch_operand_gives_a_torch_result(session: Session) -> None:
    a, b, expected = operands()
    for _ in range(2):  # the long way, then the short one
        result = session[NAME](Tensor(a), Tensor(b))
        assert isinstance(result, Tensor)
        assert np.array_equal(result.array, expected)


def test_host_arrays_and_arrays_of_the_session_mix(session: Session) -> None:
    a, b, expected = operands()
    assert np.array_equal(session[NAME](a, b), expected)
    weights = session.prepare(NAME, b=b)
    result = session[NAME](session.array(a), weights)
    assert np.array_equal(result.numpy(), expected)
    out = session.empty(expected.shape, "f32")
    for _ in range(2):
        assert session[NAME](Tensor(a), weights, out=out) is out
        assert np.array_equal(out.numpy(), expected)


def test_strided_windows_keep_what_lies_around_them(session: Session, cuda: FakeCuda) -> None:
    a, b, expected = operands()
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
        a, b, _ = operands(m, n, 4)
        out = np.zeros((m, n), np.float32)
        assert session[NAME](Tensor(a), Tensor(b), out=Tensor(out)).shape == (m, n)
    assert cuda.launches == []
    a, b, _ = operands(8, 8, 0)
    out = np.full((8, 8), np.nan, np.float32)
    for _ in range(2):
        session[NAME](Tensor(a), Tensor(b), out=Tensor(out))
        assert (out == 0).all()
        assert 0 not in cuda.launches[-1][-1][:3]  # no null address, whatever the sizes


def test_streams_by_session_and_by_call(built: Path, cuda: FakeCuda) -> None:
    class Stream:
        cuda_stream = 77

    class Other:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 78

    a, b, expected = operands()
    out = Tensor(np.empty(expected.shape, np.float32))
    options: Any = {"device": "cuda", "executor": "direct", "tuning": "off"}
    with Session(built, stream=Stream(), **options) as session:
        session[NAME](Tensor(a), Tensor(b), out=out)
        for stream in (5, Other()):
            session[NAME](Tensor(a), Tensor(b), out=out, stream=stream)
        with pytest.raises(OperandError, match="expected a CUDA stream, found str"):
            session[NAME](Tensor(a), Tensor(b), out=out, stream="5")
    assert [launch[4] for launch in cuda.launches] == [77, 5, 78]


def test_a_first_call_is_not_captured_and_a_warm_one_is(session: Session, cuda: FakeCuda) -> None:
    a, b, expected = operands()
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
    a, b, expected = operands()
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
    a, b, expected = operands()
    given = change(a, b, np.zeros(expected.shape, np.float32))
    with pytest.raises(OperandError, match=message):
        session[NAME](*given)


def test_a_tensor_that_wants_a_gradient_is_refused(session: Session) -> None:
    a, b, _ = operands()
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


def test_what_the_loaded_functions_take_is_judged(built: Path, cuda: FakeCuda) -> None:
    cuda.function["NUM_REGS"] = 77
    with direct(built) as session:
        footprint = session.explain(NAME, 8, 8, 8).verdicts[0].record.footprint
    assert (footprint.registers, footprint.static_shared_bytes, footprint.spill_bytes) == (
        77,
        16,
        0,
    )
    assert footprint.sources == dict.fromkeys(
        ("registers", "spill_bytes", "static_shared_bytes"), "cuFuncGetAttribute"
    )
    cuda.function["LOCAL_SIZE_BYTES"] = 24
    with direct(built) as session:
        verdict = session.explain(NAME, 8, 8, 8).verdicts[0]
        assert (verdict.refusal and verdict.refusal.rule, verdict.ok) == ("R1", False)
        with pytest.raises(LaunchRefused, match=r"spills 24 B \(R1\)"):
            session.choose(NAME, 8, 8, 8)
    cuda.function |= {"LOCAL_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 128}
    with (
        direct(built) as session,
        pytest.raises(LaunchRefused, match=r"256 threads > 128 that 'gemm' can have \(R2\)"),
    ):
        session.choose(NAME, 8, 8, 8)


def test_code_that_the_driver_refuses_is_named_with_its_log(
    built: Path, cuda: FakeCuda, tmp_path: Path
) -> None:
    pack = copied(built, tmp_path / "pack")
    first, *_ = kernel_of(pack).members
    assert first.files is not None
    assert first.files.code_object is not None
    spoil(pack, first.name, b".version 8.0\n")
    with direct(pack) as session:
        verdicts = session.explain(NAME, 8, 8, 8).verdicts
        refusal = verdicts[0].refusal
        assert refusal is not None
        assert refusal.rule == "load"
        assert (
            f"member {first.name}: cannot load the code: CUDA_ERROR_INVALID_PTX" in refusal.message
        )
        assert "ptxas application ptx input, line 1; fatal : no entry" in refusal.message
        assert verdicts[1].ok
        with pytest.raises(DeviceError, match="no entry"):
            session.executable(NAME, kernel_of(pack).members[0])


def spoil(pack: Path, name: str, code: bytes) -> None:
    """Give a candidate another code object that its digest agrees with."""

    def change(record: Record) -> Record:
        if record.name != name or record.files is None or record.files.code_object is None:
            return record
        (pack / record.files.code_object).write_bytes(code)
        digest = hashlib.sha256(code).hexdigest()
        digests = {**record.files.sha256, record.files.code_object: digest}
        return replace(record, files=replace(record.files, sha256=digests))

    change_records(pack, change)


def test_large_shared_memory_is_asked_for(built: Path, cuda: FakeCuda, tmp_path: Path) -> None:
    def change(record: Record, nbytes: int = 200_000) -> Record:
        assert record.launch is not None
        return replace(record, launch=replace(record.launch, dynamic_shared_bytes=nbytes))

    pack = copied(built, tmp_path / "pack")
    change_records(pack, change)
    a, b, expected = operands()
    with direct(pack) as session:
        assert np.array_equal(session[NAME](a, b), expected)
    assert cuda.dynamic == {"gemm": 200_000}
    change_records(pack, lambda record: change(record, 300_000))
    with (
        direct(pack) as session,
        pytest.raises(LaunchRefused, match="cuFuncSetAttribute: CUDA_ERROR_INVALID_VALUE"),
    ):
        session.choose(NAME, 8, 8, 8)


def test_several_launches_and_a_workspace(built: Path, cuda: FakeCuda, tmp_path: Path) -> None:
    """A second step reads the workspace that stands last, and gets an expression as a constant."""

    def change(record: Record) -> Record:
        assert record.launch is not None
        first = replace(record.launch, bindings=("a", "b", "workspace"))
        step = Step(
            entry="gemm",
            grid=("ceildiv(M, 2)", "1", "1"),
            block=(32, 1, 1),
            dynamic_shared_bytes=0,
            bindings=("workspace", "a", "c"),
            constants=("M", "N", "K * 2", "a.0", "b.0", "c.0"),
        )
        return replace(record, launch=replace(first, then=(step,)), workspace="4 * M * N")

    pack = copied(built, tmp_path / "pack")
    change_records(pack, change)
    cuda.kernels = {}
    a, b, expected = operands()
    out = Tensor(np.empty(expected.shape, np.float32))
    with direct(pack) as session:
        for stream in (0, 0, 5):
            session[NAME](Tensor(a), Tensor(b), out=out, stream=stream)
        given = session.empty((4 * 37 * 130,), "i8")
        session[NAME](Tensor(a), Tensor(b), out=out, workspace=given)
        small = session.empty((4,), "i8")
        with pytest.raises(OperandError, match="has 4 B, required 19240 B"):
            session[NAME](Tensor(a), Tensor(b), out=out, workspace=small)
    pairs = list(zip(cuda.launches[::2], cuda.launches[1::2], strict=True))
    spaces = [one[-1][2] for one, _ in pairs]
    assert spaces[0] == spaces[1] != spaces[2]  # one a stream, and the same one again
    assert spaces[3] == given.buffer.pointer
    for one, two in pairs:
        assert two[-1][:3] == [one[-1][2], a.ctypes.data, out.array.ctypes.data]
        assert two[-1][3:6] == [37, 130, 30]
        assert (two[1], two[2]) == ((19, 1, 1), (32, 1, 1))


def test_a_misaligned_start_drops_what_copies_whole_units(
    built: Path, cuda: FakeCuda, tmp_path: Path
) -> None:
    pack = copied(built, tmp_path / "pack")
    first = kernel_of(pack).members[0].name
    change_records(
        pack,
        lambda r: replace(r, needs=Needs(alignment={"a.0": 8})) if r.name == first else r,
    )
    memory = np.zeros(64 * 64 + 8, np.float16)
    begin = -(memory.ctypes.data // 2) % 8
    b, out = np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float32)
    grids = []
    with direct(pack) as session:
        for offset in (0, 1, 0):
            a = memory[begin + offset : begin + offset + 62 * 64].reshape(62, 64)
            session[NAME](Tensor(a), Tensor(b), out=Tensor(out[:62]))
            grids.append(cuda.launches[-1][3])
    assert grids[0] == grids[2] != grids[1]


def test_memory_is_given_back(built: Path, cuda: FakeCuda) -> None:
    a, b, _ = operands()
    with direct(built) as session:
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


def test_a_direct_session_is_for_cuda(built: Path, cuda: FakeCuda) -> None:
    with pytest.raises(DeviceError, match="device 'local-task' has no direct executor, cuda has"):
        Session(built, device="local-task", executor="direct")
    with pytest.raises(UsageError, match="a stream is for executor='direct'"):
        Session(built, device="local-task", stream=5)
    with pytest.raises(UsageError, match="executor 'both' is not one of iree, direct"):
        Session(built, device="cuda", executor="both")  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="cuda: no device '7', there are 0: GPU-0001"):
        Session(built, device="cuda://7", executor="direct")
    with Session(built, device="cuda://1", executor="direct", tuning="off") as session:
        assert session.facts.uuid == "000102030405060708090a0b0c0d0e10"


def test_a_record_without_a_code_object_cannot_be_launched(
    built: Path, cuda: FakeCuda, tmp_path: Path
) -> None:
    def change(record: Record) -> Record:
        assert record.files is not None
        return replace(record, files=replace(record.files, code_object=None))

    pack = copied(built, tmp_path / "pack")
    change_records(pack, change)
    with direct(pack) as session, pytest.raises(PackError, match="has no code object to launch"):
        session.choose(NAME, 8, 8, 8)
