"""How much of the processor others hold, from made-up readings of the system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dialects.facts import DeviceFacts
from runtime.load import KEPT_S, READERS, LoadMeter, cpu_foreign_percent, sysfs_busy_percent

OWN, WORKER = os.getpid(), 4242


def write(root: Path, busy: int, idle: int, own: int = 0, worker: int | None = None) -> None:
    """What the system says after so many ticks."""
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    for process, ticks in ((OWN, own), (WORKER, worker)):
        folder = root / f"proc/{process}"
        folder.mkdir(exist_ok=True)
        if ticks is not None:
            text = f"{process} (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0"
            (folder / "stat").write_text(text)


def percent(
    root: Path, busy: int, idle: int, own: int = 0, worker: int | None = None
) -> int | None:
    """The reading when the window sees that many ticks of each kind."""
    write(root, 1000, 1000, 500, 100)

    def sleep(seconds: float) -> None:
        assert seconds == 0.25
        write(root, 1000 + busy, 1000 + idle, 500 + own, None if worker is None else 100 + worker)

    return cpu_foreign_percent([WORKER], root=root, window_s=0.25, sleep=sleep)


@pytest.mark.parametrize(
    ("busy", "idle", "own", "worker", "expected"),
    [
        (0, 100, 0, 0, 0),
        (50, 50, 0, 0, 50),
        (50, 50, 50, 0, 0),
        (50, 50, 20, 30, 0),
        (60, 40, 10, 20, 30),
        (100, 0, 0, 0, 100),
        (10, 90, 50, 0, 0),  # the system counts in coarser steps than the process
    ],
)
def test_what_others_hold(
    tmp_path: Path, busy: int, idle: int, own: int, worker: int, expected: int
) -> None:
    assert percent(tmp_path, busy, idle, own, worker) == expected


def test_a_worker_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert cpu_foreign_percent([2**30], root=tmp_path, window_s=0) is None
    assert percent(tmp_path, 50, 50, 0, None) == 50


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu a b c d e f g h\n", "cpu 1 2 3\n"])
def test_a_system_that_does_not_say(tmp_path: Path, text: str) -> None:
    write(tmp_path, 1, 1)
    (tmp_path / "proc/stat").write_text(text)
    assert cpu_foreign_percent(root=tmp_path, window_s=0) is None


def test_no_time_passed(tmp_path: Path) -> None:
    write(tmp_path, 1, 1)
    assert cpu_foreign_percent(root=tmp_path, window_s=0) is None


@pytest.mark.parametrize("text", ["", "odd", "1 (x) S 1 2"])
def test_an_odd_reading_of_a_process_counts_as_none(tmp_path: Path, text: str) -> None:
    write(tmp_path, 1000, 1000)
    (tmp_path / f"proc/{OWN}/stat").write_text(text)

    def sleep(seconds: float) -> None:
        (tmp_path / "proc/stat").write_text("cpu 1030 0 0 1070 0 0 0 0\n")

    assert cpu_foreign_percent(root=tmp_path, window_s=0, sleep=sleep) == 30


def test_this_machine() -> None:
    found = cpu_foreign_percent(window_s=0.05)
    assert found is None or 0 <= found <= 100


def card(root: Path, number: int, pci: str, busy: str, unique: str | None = None) -> Path:
    """A device as the kernel shows it; the file of its load."""
    folder = root / "sys/devices" / pci
    folder.mkdir(parents=True)
    if unique is not None:
        (folder / "unique_id").write_text(f"{unique}\n")
    (folder / "gpu_busy_percent").write_text(busy)
    link = root / f"sys/class/drm/card{number}"
    link.mkdir(parents=True)
    (link / "device").symlink_to(folder)
    return folder / "gpu_busy_percent"


def busy_percent(root: Path, uuid: str | None, backend: str = "rocm") -> int | None:
    facts = DeviceFacts(backend=backend, uuid=uuid)
    return sysfs_busy_percent(facts, root=root, sleep=lambda seconds: None)


MESA = "000000000300000000000000" + "00000000"  # domain 0, bus 3, device 0, function 0


def test_a_device_is_found_by_its_identity(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:03:00.0", "40\n", "a1b2c3d4e5f60718")
    card(tmp_path, 1, "0000:0a:00.0", "7\n", "0x1111222233334444")
    assert busy_percent(tmp_path, "GPU-a1b2c3d4e5f60718") == 40
    assert busy_percent(tmp_path, "GPU-1111222233334444") == 7
    assert busy_percent(tmp_path, b"1111222233334444".hex()) == 7
    for backend in ("vulkan", "rocm"):
        assert busy_percent(tmp_path, MESA, backend) == 40
    assert busy_percent(tmp_path, MESA.replace("03", "0a"), "vulkan") == 7


def test_where_no_device_is_named_the_busiest_counts_on_rocm_alone(tmp_path: Path) -> None:
    card(tmp_path, 0, "0000:03:00.0", "40\n")
    card(tmp_path, 1, "0000:0a:00.0", "7\n")
    assert busy_percent(tmp_path, None) == 40
    assert busy_percent(tmp_path, "6d657361", "vulkan") is None


def test_the_least_of_three_readings_counts(tmp_path: Path) -> None:
    file = card(tmp_path, 0, "0000:03:00.0", "99\n")
    later = iter(["12\n", "60\n", "1\n"])

    def sleep(seconds: float) -> None:
        file.write_text(next(later))

    found = sysfs_busy_percent(DeviceFacts(backend="rocm"), root=tmp_path, sleep=sleep)
    assert found == 12
    assert next(later) == "1\n"


@pytest.mark.parametrize("text", ["", "busy", "101", "-1"])
def test_an_odd_percentage_is_none(tmp_path: Path, text: str) -> None:
    card(tmp_path, 0, "0000:03:00.0", text)
    assert busy_percent(tmp_path, None) is None
    assert busy_percent(tmp_path / "nothing", None) is None


def test_a_reading_is_kept_for_five_seconds() -> None:
    now, asked = [100.0], []

    def reader(facts: DeviceFacts, own: Sequence[int]) -> int:
        asked.append(list(own))
        return len(asked)

    meter = LoadMeter(DeviceFacts(backend="cpu"), {"cpu": reader}, clock=lambda: now[0])
    assert meter.percent([7]) == 1
    now[0] += KEPT_S - 0.1
    assert meter.percent([8]) == 1
    now[0] += 0.2
    assert meter.percent([9]) == 2
    assert asked == [[7], [9]]


def test_a_back_end_without_a_reader_does_not_say() -> None:
    assert LoadMeter(DeviceFacts(backend="none")).percent() is None
    assert {"cpu", "rocm", "vulkan"} <= set(READERS)
