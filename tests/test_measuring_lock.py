"""The lock that keeps processes from timing over each other."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from faulty_files import MODES, Crash, Fault, Mode
from runtime.files import SYSTEM
from runtime.measuring_lock import is_lock_name, lock_path, measuring_lock
from runtime.store import entries, verify
from stored_choices import PLACE, filled

ROOT = Path(__file__).resolve().parent.parent
OTHER_DEVICE = dataclasses.replace(PLACE, identity="00000000")


def test_a_device_has_one_lock_whatever_the_kernel(tmp_path: Path) -> None:
    path = lock_path(tmp_path, PLACE)
    assert path == lock_path(tmp_path, dataclasses.replace(PLACE, key="another"))
    assert path != lock_path(tmp_path, OTHER_DEVICE)
    assert is_lock_name(path.name)
    assert not is_lock_name(PLACE.path.name)


def test_two_devices_are_measured_at_once_and_one_is_not(tmp_path: Path) -> None:
    path = lock_path(tmp_path, PLACE)
    with measuring_lock(SYSTEM, path) as held:
        assert held
        with measuring_lock(SYSTEM, lock_path(tmp_path, OTHER_DEVICE)) as other:
            assert other
        with measuring_lock(SYSTEM, path, wait_s=0) as again:
            assert not again
    with measuring_lock(SYSTEM, path, wait_s=0) as held:
        assert held


def test_who_waits_gets_it_in_the_end(tmp_path: Path) -> None:
    path, order = lock_path(tmp_path, PLACE), []

    def work() -> None:
        with measuring_lock(SYSTEM, path) as held:
            order.append(("second", held))

    with measuring_lock(SYSTEM, path):
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.1)
        order.append(("first", True))
    thread.join(10)
    assert order == [("first", True), ("second", True)]


def test_a_process_that_is_killed_lets_go(tmp_path: Path) -> None:
    path = lock_path(tmp_path, PLACE)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom runtime.files import SYSTEM\n"
        "from runtime.measuring_lock import measuring_lock\n"
        "with measuring_lock(SYSTEM, Path(sys.argv[1])) as held:\n"
        "    print(held, flush=True)\n    time.sleep(600)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "True\n"
    with measuring_lock(SYSTEM, path, wait_s=0) as held:
        assert not held
    child.kill()
    child.communicate()
    with measuring_lock(SYSTEM, path, wait_s=0) as held:
        assert held


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.EIO])
def test_a_file_system_without_locks_is_done_without(tmp_path: Path, code: int) -> None:
    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    files = dataclasses.replace(SYSTEM, lock=refuse)
    with measuring_lock(files, lock_path(tmp_path, PLACE)) as held:
        assert not held


@pytest.mark.parametrize("mode", MODES)
def test_whatever_call_fails_the_block_runs_and_nothing_is_left_open(
    tmp_path: Path, mode: Mode
) -> None:
    hits, number = [], 0
    while True:
        number += 1
        fault = Fault(number=number, mode=mode, code=errno.EIO)
        ran = False
        try:
            path = lock_path(tmp_path / f"{number}", PLACE)
            with measuring_lock(fault.file_calls(), path, wait_s=0):
                ran = True
        except Crash:
            fault.close_left_open()
        assert ran or mode.startswith("crash")
        assert not fault.handles
        if fault.hit is None:
            break
        hits.append(fault.hit)
    assert {"open", "lock", "close"} <= set(hits)


def test_a_folder_that_cannot_be_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for folder in ("file", "loop", "nul\0"):
        with measuring_lock(SYSTEM, lock_path(tmp_path / folder, PLACE)) as held:
            assert not held
    with measuring_lock(SYSTEM, None) as held:
        assert not held


def test_the_lock_is_no_entry_and_no_damage(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with measuring_lock(SYSTEM, lock_path(tmp_path, PLACE)) as held:
        assert held
    assert len(entries(tmp_path)) == 2
    assert verify(tmp_path) == []
