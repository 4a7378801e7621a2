"""Facts of a HIP device, read from a library that is built here; no such device is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts, facts_from_json, facts_to_json
from lowering.target import target_from_facts
from runtime.cli import main
from runtime.facts.hip import LIBRARIES, read_hip_facts

STUB = Path(__file__).parent / "fixtures" / "hip_stub.c"
Build = Callable[..., str]


@pytest.fixture
def library(tmp_path: Path) -> Build:
    """Builds the stub with some of its macros set, and gives the path of the library."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("no C compiler to build a HIP library with")

    def build(**macros: int) -> str:
        out = tmp_path / "libstub.so"
        defined = [f"-D{name}={value}" for name, value in macros.items()]
        command = [compiler, "-shared", "-fPIC", *defined, str(STUB), "-o", str(out)]
        subprocess.run(command, check=True)
        return str(out)

    return build


def test_the_facts_of_a_device(library: Build) -> None:
    facts = read_hip_facts("", [library()])
    sources = facts.sources or {}
    assert facts == DeviceFacts(
        source="read from the HIP runtime 6.4.43483",
        backend="rocm",
        isa="gfx1234",
        name="First device",
        api="6.4.43483",
        uuid="2a" * 16,
        driver="6.4.0",
        wave_widths=(32,),
        max_threads_per_block=1024,
        max_workgroup_sizes=(1024, 1024, 1024),
        max_workgroup_counts=(2147483647, 65536, 65536),
        registers_per_block=65536,
        registers_per_multiprocessor=196608,
        shared_bytes_per_block=65536,
        shared_bytes_per_multiprocessor=65536,
        threads_per_multiprocessor=2048,
        blocks_per_multiprocessor=32,
        multiprocessors=20,
        l2_bytes=2097152,
        memory_bytes=48 << 30,
        clock_khz=2900000,
        memory_clock_khz=1000000,
        memory_bus_bits=256,
        sources=sources,
    )
    known = set(facts_to_json(facts)) - {"schema_version", "source", "sources", "backend"}
    assert set(sources) == known
    assert sources["shared_bytes_per_block"] == "hipDeviceAttributeMaxSharedMemoryPerBlock"


def test_what_the_library_answers_with_0_or_an_error_is_unknown(library: Build) -> None:
    facts = read_hip_facts("", [library()])
    assert facts.shared_bytes_per_block_optin is None  # 0
    assert facts.shared_bytes_reserved_per_block is None
    assert facts.shared_limit == 65536


@pytest.mark.parametrize("selector", ["1", "GPU-" + "2b" * 16, "2b" * 16])
@pytest.mark.parametrize("legacy", [{}, {"LEGACY": 1}], ids=["R0600", "before 6.0"])
def test_a_device_by_place_or_uuid(library: Build, selector: str, legacy: dict[str, int]) -> None:
    """The ISA comes without its features, wherever the structure has it."""
    facts = read_hip_facts(selector, [library(**legacy)])
    assert (facts.name, facts.isa, facts.wave_widths) == ("Second device", "gfx90a", (64,))


def test_a_target_and_a_facts_file_from_live_facts(library: Build) -> None:
    facts = read_hip_facts("1", [library()])
    again = facts_from_json(json.dumps(facts_to_json(facts)), where="test")
    assert again == facts
    target = target_from_facts(facts)
    assert (target.name, target.wave) == ("rocm:gfx90a", 64)


@pytest.mark.parametrize(
    ("macros", "selector", "message"),
    [
        ({"DEVICES": 0}, "", "hipGetDeviceCount failed with status 100: no ROCm-capable device"),
        ({"STATUS": 1}, "", "hip: hipInit failed with status 1: invalid argument"),
        ({"HIP_VERSION": 40200000}, "", "hip: runtime 4.2.0 < 4.3.0, the oldest read"),
        ({}, "2", r"hip: no device '2', there are 0: GPU-2a2a.*, 1: GPU-2b2b"),
    ],
)
def test_what_is_missing_is_said(
    library: Build, macros: dict[str, int], selector: str, message: str
) -> None:
    with pytest.raises(DeviceError, match=message):
        read_hip_facts(selector, [library(**macros)])


def test_no_library_and_a_library_of_something_else() -> None:
    with pytest.raises(DeviceError, match=r"hip: no HIP library, looked for libnone.so, libno.so"):
        read_hip_facts("", ["libnone.so", "libno.so"])
    with pytest.raises(DeviceError, match="hip: the library has no 'hipInit'"):
        read_hip_facts("", ["libc.so.6"])


@pytest.mark.skipif(shutil.which("rocminfo") is not None, reason="a HIP library may be here")
def test_the_command_line_says_that_there_is_no_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["facts", "--device", "hip", "--json"]) == 1
    captured = capsys.readouterr()
    assert f"hip: no HIP library, looked for {', '.join(LIBRARIES)}" in captured.err
    assert '"kind": "device"' in captured.out
