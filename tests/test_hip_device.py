"""AMD devices: without the driver's library every way in gives one typed error, and says which.

The numerics of such a device are those of test_numerics.py, with ``--device hip``.
"""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest

from command_lines import run_main
from dialects.errors import DeviceError, PackError
from packs import Packs, build_pack, kernel_of
from runtime import Session
from runtime import cli as runtime_cli
from runtime.device import Device

ABSENT = pytest.mark.skipif(
    ctypes.util.find_library("amdhip64") is not None, reason="the HIP library is here"
)


@pytest.fixture(scope="module")
def amd_pack(packs: Packs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Code for one AMD target alone."""
    out = tmp_path_factory.mktemp("amd") / "pack"
    build_pack(packs.source("matmul_f32"), out, packs.cache, ("rocm:gfx1100",))
    return out


@ABSENT
@pytest.mark.parametrize("uri", ["hip", "hip://0", "hip://GPU-0"])
def test_a_device_without_its_library(uri: str) -> None:
    with pytest.raises(DeviceError) as caught:
        Device(uri)
    assert caught.value.message.startswith(f"cannot open device '{uri}': UNAVAILABLE; HIP runtime")
    assert "libamdhip64.so" in caught.value.message
    assert "/src/" not in caught.value.message


@ABSENT
def test_a_session_without_the_library(amd_pack: Path) -> None:
    with pytest.raises(DeviceError, match="device 'hip'"):
        Session([amd_pack], device="hip")


@ABSENT
@pytest.mark.parametrize("command", ["run", "tune", "bench"])
def test_commands_without_the_library(
    capsys: pytest.CaptureFixture[str], amd_pack: Path, tmp_path: Path, command: str
) -> None:
    """One line on stderr, exit 1, no traceback."""
    more = ("--store", str(tmp_path)) if command == "tune" else ()
    ran = run_main(
        runtime_cli.main, capsys, command, amd_pack, "--shape", "4x4x4", "--device", "hip", *more
    )
    assert ran.code == 1
    assert "device 'hip'" in ran.err
    assert "Traceback" not in ran.err


def test_code_for_another_part_is_not_run(amd_pack: Path) -> None:
    """The pack has code, and none of it is tried elsewhere."""
    assert all(r.files is not None for r in kernel_of(amd_pack).members)
    with pytest.raises(PackError, match="no code for cpu, only for rocm:gfx1100"):
        Session([amd_pack], device="local-sync")
