"""Code objects against a driver in Python: loading, what they take, and how they are launched."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuda_arrays import Tensor, direct, fake_torch, matrices
from dialects.errors import DeviceError, LaunchRefused, OperandError, PackError
from dialects.manifest import Needs, Record, Step
from fake_cuda import FakeCuda
from packs import change_records, copied, kernel_of

NAME = "matmul_f16"


@pytest.fixture
def cuda(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The driver that sessions find, and a torch."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    return fake_cuda


@pytest.mark.parametrize("overlaps", [False, True])
def test_only_a_kernel_that_waits_itself_starts_early(
    cuda_pack: Path, cuda: FakeCuda, tmp_path: Path, overlaps: bool
) -> None:
    """Everything else of the launch is the same."""

    def change(record: Record) -> Record:
        assert record.launch is not None
        return replace(record, launch=replace(record.launch, overlaps=overlaps))

    pack = copied(cuda_pack, tmp_path / "pack")
    change_records(pack, change)
    a, b, expected = matrices()
    with direct(pack) as session:
        assert np.array_equal(session[NAME](a, b), expected)
    assert set(cuda.early) == {overlaps}
    assert ("cuLaunchKernelEx" in cuda.calls) == overlaps
    assert ("cuLaunchKernel" in cuda.calls) != overlaps


def test_what_the_loaded_functions_take_is_judged(cuda_pack: Path, cuda: FakeCuda) -> None:
    cuda.function["NUM_REGS"] = 77
    with direct(cuda_pack) as session:
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
    with direct(cuda_pack) as session:
        verdict = session.explain(NAME, 8, 8, 8).verdicts[0]
        assert (verdict.refusal and verdict.refusal.rule, verdict.ok) == ("R1", False)
        with pytest.raises(LaunchRefused, match=r"spills 24 B \(R1\)"):
            session.choose(NAME, 8, 8, 8)
    cuda.function |= {"LOCAL_SIZE_BYTES": 0, "MAX_THREADS_PER_BLOCK": 128}
    with (
        direct(cuda_pack) as session,
        pytest.raises(LaunchRefused, match=r"256 threads > 128 that 'gemm' can have \(R2\)"),
    ):
        session.choose(NAME, 8, 8, 8)


def test_code_that_the_driver_refuses_is_named_with_its_log(
    cuda_pack: Path, cuda: FakeCuda, tmp_path: Path
) -> None:
    pack = copied(cuda_pack, tmp_path / "pack")
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


def test_large_shared_memory_is_asked_for(cuda_pack: Path, cuda: FakeCuda, tmp_path: Path) -> None:
    def change(record: Record, nbytes: int = 200_000) -> Record:
        assert record.launch is not None
        return replace(record, launch=replace(record.launch, dynamic_shared_bytes=nbytes))

    pack = copied(cuda_pack, tmp_path / "pack")
    change_records(pack, change)
    a, b, expected = matrices()
    with direct(pack) as session:
        assert np.array_equal(session[NAME](a, b), expected)
    assert cuda.dynamic == {"gemm": 200_000}
    change_records(pack, lambda record: change(record, 300_000))
    with (
        direct(pack) as session,
        pytest.raises(LaunchRefused, match="cuFuncSetAttribute: CUDA_ERROR_INVALID_VALUE"),
    ):
        session.choose(NAME, 8, 8, 8)


def test_several_launches_and_a_workspace(cuda_pack: Path, cuda: FakeCuda, tmp_path: Path) -> None:
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

    pack = copied(cuda_pack, tmp_path / "pack")
    change_records(pack, change)
    cuda.kernels = {}
    a, b, expected = matrices()
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
    cuda_pack: Path, cuda: FakeCuda, tmp_path: Path
) -> None:
    pack = copied(cuda_pack, tmp_path / "pack")
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


def test_a_record_without_a_code_object_cannot_be_launched(
    cuda_pack: Path, cuda: FakeCuda, tmp_path: Path
) -> None:
    def change(record: Record) -> Record:
        assert record.files is not None
        return replace(record, files=replace(record.files, code_object=None))

    pack = copied(cuda_pack, tmp_path / "pack")
    change_records(pack, change)
    with direct(pack) as session, pytest.raises(PackError, match="has no code object to launch"):
        session.choose(NAME, 8, 8, 8)
