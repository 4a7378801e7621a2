"""Candidates timed by events: in the worker and in ``bench``, on a driver in Python."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuda_arrays import at, gemm
from dialects.errors import DeviceError
from dialects.member import Problem
from fake_cuda import FakeCuda
from packs import kernel_of
from runtime import cli
from runtime.clocks import clock_of
from runtime.cuda.peers import cublas_products, working_product
from runtime.executors import load, open_device
from runtime.facts import read_facts
from runtime.measure_plan import cold_sets, floors
from runtime.pack import open_pack
from runtime.proof import make_case
from runtime.worker import Worker

SIZES = (37, 130, 15)


@pytest.fixture
def cuda(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The driver that is found, whose made-up clock is the host's too."""
    monkeypatch.setattr("runtime.cuda.events.perf_counter", fake_cuda.clock)
    return fake_cuda


def trial(pack: Path, sets: int = 1) -> list[dict[str, Any]]:
    """What a worker says of every candidate, told the floors as a session tells it."""
    events: list[dict[str, Any]] = []
    worker = Worker("cuda", events.append, "direct")
    kernel = kernel_of(pack)
    names = [r.full_name for r in kernel.members]
    at = Problem(dims=kernel.dims, sizes=SIZES)
    worker.trial(
        {
            "pack": str(pack),
            "kernel": "matmul_f16",
            "names": names,
            "sizes": list(SIZES),
            "budget_ms": 1e6,
            "least_us": floors(read_facts("cuda"), kernel, kernel.members, at, sets),
            "sets": sets,
            "rounds": 5,
            "splits": {},
        }
    )
    return events


def test_a_worker_times_by_the_device(cuda_pack: Path, cuda: FakeCuda) -> None:
    *_, end = trial(cuda_pack)
    assert end["end"] == "complete"
    assert end["timer"] == "device"
    names = [r.full_name for r in kernel_of(cuda_pack).members]
    assert list(end["samples"]) == names
    for times in end["samples"].values():
        assert times == pytest.approx([10.0] * 5, rel=5e-3)


def test_a_wrong_candidate_is_not_timed(cuda_pack: Path, cuda: FakeCuda) -> None:
    def wrong(*arguments: int) -> None:
        gemm(*arguments)
        at(arguments[2], np.float32, (1,), 1)[0] += 1

    cuda.kernels["gemm"] = wrong
    events = trial(cuda_pack)
    failed = [e for e in events if "failed" in e]
    assert len(failed) == 2
    assert events[-1]["samples"] == {}


def test_a_reading_faster_than_the_memory_is_refused(cuda_pack: Path, cuda: FakeCuda) -> None:
    """A memory of 1 kHz and 8 bits: the operands alone would take minutes."""
    cuda.attributes |= {"MEMORY_CLOCK_RATE": 1, "GLOBAL_MEMORY_BUS_WIDTH": 8, "L2_CACHE_SIZE": 64}
    events = trial(cuda_pack)
    reasons = [e["reason"] for e in events if "failed" in e]
    assert len(reasons) == 2
    assert reasons[0].startswith("timed at 10 us, the hardware needs ")


@pytest.mark.parametrize("sets", [1, 3, 20])
def test_a_bracket_takes_sets_of_operands_in_turn(
    cuda_pack: Path, cuda: FakeCuda, sets: int
) -> None:
    clock = clock_of(open_device("cuda", "direct"))
    pack = open_pack(cuda_pack)
    kernel = pack.kernel("matmul_f16")
    code = load(clock.device, pack, kernel.kernel, kernel.members[0])
    at = Problem(dims=kernel.dims, sizes=SIZES)
    cases = [make_case(clock.device, kernel, at) for _ in range(sets)]
    readings = clock.readings(code, [c.buffers(None) for c in cases], cases[0].constants)
    cuda.launches.clear()
    assert clock.timer.bracket(readings).microseconds == pytest.approx(10, rel=5e-3)
    assert len({launch[-1][0] for launch in cuda.launches[-20:]}) == sets


def test_buffers_live_as_long_as_readings_may_launch_on_them(
    cuda_pack: Path, cuda: FakeCuda
) -> None:
    """Nobody else has to hold them: a workspace was freed under its launches once."""
    clock = clock_of(open_device("cuda", "direct"))
    pack = open_pack(cuda_pack)
    kernel = pack.kernel("matmul_f16")
    code = load(clock.device, pack, kernel.kernel, kernel.members[0])
    case = make_case(clock.device, kernel, Problem(dims=kernel.dims, sizes=SIZES))
    extra = clock.device.allocate(4096)
    pointer = extra.pointer
    readings = clock.readings(code, [(*case.buffers(None), extra)], case.constants)
    del extra
    gc.collect()
    assert pointer in cuda.memory
    del readings
    gc.collect()
    assert pointer not in cuda.memory


def test_a_worker_takes_as_many_sets_as_cold_caches_need(cuda_pack: Path, cuda: FakeCuda) -> None:
    cuda.attributes["L2_CACHE_SIZE"] = 30000
    kernel = kernel_of(cuda_pack)
    sets = cold_sets(read_facts("cuda"), kernel, Problem(dims=kernel.dims, sizes=SIZES))
    assert sets == 3
    *_, end = trial(cuda_pack, sets)
    assert (end["end"], end["timer"]) == ("complete", "device")
    assert len({launch[-1][0] for launch in cuda.launches[-20:]}) == 3


def test_bench_times_every_candidate_by_events(
    cuda_pack: Path, cuda: FakeCuda, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several shapes in one command; a peer that cannot run is noted and leaves no row."""
    command = ["bench", str(cuda_pack), "--device", "cuda", "--all", "--against", "cublas"]
    file = tmp_path / "data.json"
    shapes = ["--shape", "37x130x15", "--shape", "64x64x64,8x8x8"]
    assert cli.main([*command, *shapes, "--out", str(file)]) == 0
    assert "peer cublas: there is no torch" in capsys.readouterr().err
    rows = json.loads(file.read_text())["rows"]
    assert [r["shape"] for r in rows] == [[37, 130, 15]] * 2 + [[64] * 3] * 2 + [[8] * 3] * 2
    assert {r["timer"] for r in rows} == {"device"}
    assert {r["ceiling"] for r in rows} == {"arithmetic, bandwidth"}
    assert {r["peer"] for r in rows} == {None}
    assert [r["kernel_us"] for r in rows] == pytest.approx([10.0] * 6, rel=5e-3)
    cuda.attributes["L2_CACHE_SIZE"] = 30000
    cold = [*command, "--caches", "cold", "--shape", "37x130x15", "--json"]
    capsys.readouterr()
    assert cli.main(cold) == 0
    assert {r["caches"] for r in json.loads(capsys.readouterr().out)["rows"]} == {"cold"}
    assert len({launch[-1][0] for launch in cuda.launches[-20:]}) == 3
    assert {r["caches"] for r in rows} == {"hot"}
    assert cli.main([*command, "--shape", "8x8x8", "--body", "none"]) == 2
    assert "has no body none here, has software" in capsys.readouterr().err
    assert cli.main([*command[:-3], "--shape", "8x8x8", "--body", "software"]) == 2
    assert "give --all too" in capsys.readouterr().err


def test_bench_leaves_a_wrong_candidate_out_and_fails(
    cuda_pack: Path, cuda: FakeCuda, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of the right ones are there all the same."""
    first = kernel_of(cuda_pack).members[0].launch
    assert first is not None

    def one_wrong(a: int, b: int, c: int, *sizes: int) -> None:
        if cuda.launches[-1][3] != first.dynamic_shared_bytes:
            gemm(a, b, c, *sizes)

    cuda.kernels["gemm"] = one_wrong
    command = ["bench", str(cuda_pack), "--device", "cuda", "--all", "--against", "", "--json"]
    assert cli.main([*command, "--shape", "37x130x15"]) == 1
    said = capsys.readouterr()
    assert [r["shape"] for r in json.loads(said.out)["rows"]] == [[37, 130, 15]]
    assert "is wrong: " in said.err
    assert "at 37x130x15" in said.err
    cuda.kernels["gemm"] = lambda *values: None
    assert cli.main([*command, "--shape", "37x130x15"]) == 1
    assert json.loads(capsys.readouterr().out).keys() == {"failures"}


class Products:
    """What of torch the vendor library's products name."""

    float16, float32, int32, int8 = "float16", "float32", "int32", "int8"

    def __init__(self) -> None:
        self.cuda = SimpleNamespace(synchronize=lambda: None)
        self.called: list[str] = []

    def zeros(self, shape: tuple[int, ...], dtype: str, device: str) -> np.ndarray:
        return np.zeros(shape, dtype)

    def mm(self, a: Any, b: Any, out_dtype: Any = None, out: Any = None) -> str:
        self.called.append(f"mm {out_dtype} {out is not None}")
        if out_dtype is not None and out is not None:
            raise RuntimeError("this release takes no out beside out_dtype")
        return "product"


def test_the_vendor_library_has_the_same_result_type(cuda_pack: Path) -> None:
    """Of the ways that releases of torch know, the first that runs."""
    contraction = kernel_of(cuda_pack).contraction
    held: Any = {
        "a": np.zeros((4, 6), np.float16),
        "b": np.zeros((6, 8), np.float16),
    }
    torch: Any = Products()
    ways = cublas_products(torch, contraction, held)
    product, _ = working_product(torch, ways)
    assert product is not None
    assert product() == "product"
    assert torch.called == ["mm float32 True", "mm float32 False", "mm float32 False"]
    none, reason = working_product(torch, ways[:1])
    assert none is None
    assert "RuntimeError: this release takes no out" in reason
    assert working_product(torch, ()) == (None, "has no such product")


def test_a_device_without_events_has_no_such_clock(cuda: FakeCuda) -> None:
    device = open_device("cuda", "direct")
    with pytest.raises(DeviceError, match="does not share the host's memory"):
        device.adopt(np.zeros(4))
