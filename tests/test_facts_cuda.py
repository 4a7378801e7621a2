"""Facts of a CUDA device, from a driver in Python, and of the device that is there."""

from __future__ import annotations

import sys
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts, facts_to_json
from facts_files import PATHS, fixture_facts
from fake_cuda import FakeCuda
from runtime.cuda.driver import Driver
from runtime.cuda.load import nvml_foreign_percent
from runtime.facts import read_facts
from runtime.facts.cuda import facts_of, isa_name
from runtime.load import KEPT_S, LoadMeter

HEX = "000102030405060708090a0b0c0d0e0f"


class Nvml:
    """NVIDIA's management library, with one device."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        """What it raises."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.samples: list[Any] | None = []
        self.gpu = 40
        self.reads = 0

    def nvmlInit(self) -> None:
        """Nothing to do."""

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.03"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f":
            raise self.NVMLError
        return "handle"

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetMemoryBusWidth(self, handle: str) -> int:
        return 6144

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        self.reads += 1
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        if self.samples is None:
            raise self.NVMLError
        return self.samples

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu=self.gpu)


def test_the_facts_of_a_driver() -> None:
    """The numbers of a card whose facts file is a fixture, all but what no driver tells."""
    facts = facts_of(Driver(FakeCuda()), 0, Nvml())
    known = fixture_facts("cuda-h200")
    for field in ("isa", "wave_widths", "registers_per_multiprocessor", "clock_khz"):
        assert getattr(facts, field) == getattr(known, field)
    assert (facts.uuid, facts.driver, facts.api) == (HEX, "580.159.03", "13.0")
    assert facts.name == "Some Device"
    assert facts.shared_limit == 232448
    assert facts.max_workgroup_counts == (2147483647, 65535, 65535)
    assert (facts.memory_clock_khz, facts.memory_bus_bits) == (3201000, 6144)
    assert facts.memory_bytes == 8 << 30
    assert set(facts.sources or {}) == set(facts_to_json(facts)) - {
        "schema_version", "source", "backend", "sources",
    }  # fmt: skip


def test_what_the_driver_does_not_say_is_unknown() -> None:
    cuda = FakeCuda()
    cuda.attributes = {"WARP_SIZE": 0, "CLOCK_RATE": 0, "MULTIPROCESSOR_COUNT": 0}
    facts = facts_of(Driver(cuda), 0, None)
    known = {f.name for f in fields(facts) if getattr(facts, f.name) is not None}
    assert known == {
        "schema_version", "source", "backend", "name", "api", "uuid", "driver", "memory_bytes",
        "sources",
    }  # fmt: skip
    assert facts.driver == "API 13.0"
    clocks = facts_of(Driver(cuda), 0, Nvml())
    assert (clocks.clock_khz, clocks.memory_bus_bits) == (1980000, 6144)
    assert (clocks.sources or {})["clock_khz"] == "nvmlDeviceGetMaxClockInfo"


def test_a_name_of_an_isa_follows_from_numbers() -> None:
    assert isa_name(8, 9) == f"sm_{89}"
    assert isa_name(9, 0) == fixture_facts("cuda-h200").isa
    assert isa_name(10, 0) == f"sm_{100}a"
    assert isa_name(8, None) is None


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The driver that is found."""
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return fake


@pytest.mark.parametrize("uri", ["cuda", "cuda://0", f"cuda://{HEX}", "cuda://GPU-00010203-0405-"
                                 "0607-0809-0a0b0c0d0e0f"])  # fmt: skip
def test_a_device_is_named_by_place_or_uuid(found: FakeCuda, uri: str) -> None:
    assert read_facts(uri).uuid == HEX


def test_a_device_that_is_not_there_is_refused(found: FakeCuda) -> None:
    assert read_facts("cuda://1").uuid == HEX[:-2] + "10"
    with pytest.raises(DeviceError, match=f"cuda: no device '2', there are 0: GPU-{HEX}"):
        read_facts("cuda://2")


def test_a_missing_package_or_driver_is_named(
    found: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(flags: int) -> Any:
        raise RuntimeError("Failed to dlopen libcuda.so.1")

    monkeypatch.setattr(found, "cuInit", missing)
    with pytest.raises(DeviceError, match=r"device 'cuda': the driver is not installed: Failed"):
        read_facts("cuda")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(DeviceError, match=r"device 'cuda://0' needs the package 'cuda-bindings'"):
        read_facts("cuda://0")


def test_foreign_processes_are_counted_without_ours() -> None:
    library = Nvml()
    facts = DeviceFacts(backend="cuda", uuid=HEX)

    def load() -> int | None:
        return nvml_foreign_percent(facts, [11], library=library)

    assert load() == 40  # no process is listed: the device's own use
    library.pids = [11]
    assert load() == 0
    library.pids = [11, 22, 33]
    library.samples = [
        SimpleNamespace(pid=11, smUtil=90),
        SimpleNamespace(pid=22, smUtil=5),
        SimpleNamespace(pid=22, smUtil=20),
        SimpleNamespace(pid=33, smUtil=7),
    ]
    assert load() == 27
    library.samples = None
    assert load() == 40
    other = DeviceFacts(backend="cuda", uuid="00" * 16)
    assert nvml_foreign_percent(other, library=library) is None


def test_the_load_of_cuda_is_read_through_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """And kept for five seconds like that of any other device."""
    library, now = Nvml(), [0.0]
    monkeypatch.setattr("runtime.cuda.load.nvml", lambda: library)
    meter = LoadMeter(DeviceFacts(backend="cuda", uuid=HEX), clock=lambda: now[0])
    assert (meter.percent(), library.reads) == (40, 1)
    library.pids = [11]
    assert (meter.percent([11]), library.reads) == (40, 1)
    now[0] += KEPT_S
    assert (meter.percent([11]), library.reads) == (0, 2)


@pytest.mark.device("cuda")
def test_facts_of_the_device_that_is_there() -> None:
    """Every limit is known, and what a fixture of the same device says is what it says."""
    facts = read_facts("cuda")
    assert facts == read_facts("cuda://0") == read_facts(f"cuda://{facts.uuid}")
    unknown = {f.name for f in fields(facts) if getattr(facts, f.name) is None}
    assert unknown <= {
        "requirable_wave_widths", "registers_per_thread", "simds_per_multiprocessor",
        "max_binding_bytes", "features", "storage_features", "native_matrix_configs",
    }  # fmt: skip
    for path in PATHS:
        fixture = fixture_facts(path.stem)
        if (fixture.backend, fixture.name) == (facts.backend, facts.name):
            told = set(facts_to_json(fixture)) - {"source", "registers_per_thread", "sources"}
            assert {n: getattr(facts, n) for n in told} == {n: getattr(fixture, n) for n in told}
    assert isinstance(facts, DeviceFacts)
