"""How much of the processor others hold, from made-up readings of the system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runtime.load import cpu_foreign_percent

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
