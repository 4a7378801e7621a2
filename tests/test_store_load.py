"""One store under threads and processes."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.files import SYSTEM
from runtime.store import (
    Store,
    entries,
    verify,
)
from stored_choices import NO_SYNC, PLACE, filled, made

ROOT = Path(__file__).resolve().parent.parent


def test_eight_threads_on_one_store(tmp_path: Path) -> None:
    store, places = Store(tmp_path, NO_SYNC), filled(tmp_path, 4)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(100):
            place, margin = chance.choice(places), chance.randrange(1000)
            if chance.random() < 0.3:
                assert store.remember(place, "b", made(place.key, margin)) is None
            assert store.recall(place, "b").value is not None

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    for place in places:
        assert Store(tmp_path).recall(place, "b").value == store.recall(place, "b").value
    assert verify(tmp_path) == []


def test_eight_threads_get_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    store = Store(tmp_path / "file")
    with ThreadPoolExecutor(8) as pool:
        warnings = list(pool.map(lambda i: store.remember(PLACE, "b", made(str(i))), range(64)))
    assert sum(w is not None for w in warnings) == 1


def test_a_slow_disk_does_not_hold_up_a_value_in_memory(tmp_path: Path) -> None:
    entered, release = threading.Event(), threading.Event()

    def fsync(handle: int) -> None:
        entered.set()
        assert release.wait(10)

    slow = Store(tmp_path, dataclasses.replace(SYSTEM, fsync=fsync))
    writer = threading.Thread(target=slow.remember, args=(PLACE, "b", made()))
    writer.start()
    assert entered.wait(10)
    assert slow.recall(PLACE, "b").value == made()
    release.set()
    writer.join()


PROCESS = """
import dataclasses, sys
from pathlib import Path
from runtime.store import Location, Store, StoredChoice

directory, me, builds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
build = f"build{me % builds}"
sys.stdin.read()
hits = 0
for turn in range(25):
    place = Location(device="cpu-m2", key=f"k{turn % 3}", identity="0" * 8)
    value = StoredChoice(
        kernel="k", member=f"{me}-{turn}", body=build, code_hash="", margin_permille=turn,
        tie=False, samples={"a": (float(turn),) * (1 + 10 * me)}, taken=(), clocks=None,
        timer="host")
    assert Store(directory).remember(place, build, value) is None
    recalled = Store(directory).recall(place, build)
    if recalled.value is None:
        assert builds > 1 and recalled.reason in ("another build", "not stored"), recalled
    else:
        assert recalled.value.body == build
        hits += 1
print(hits)
"""


@pytest.mark.parametrize("builds", [1, 2])
def test_eight_processes_on_one_store(tmp_path: Path, builds: int) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path), str(i), str(builds)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for i in range(8)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    if builds == 1:
        assert outputs == ["25\n"] * 8
        assert len(entries(tmp_path)) == 3
    assert verify(tmp_path) == []
