"""Sessions on two devices of one host, tuned at the same time on one store's directory.

python3 -m pytest tests/test_two_devices.py --device cuda --packs DIR
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime.load
from device_packs import expected_of, find_packs, host_operands, sized
from dialects.errors import DeviceError
from runtime import Session
from runtime.executors import EXECUTORS, ExecutorName
from runtime.store import entries, verify

ROOT = Path(__file__).resolve().parent.parent
SHAPE = (264, 136, 96)
BUDGET_MS = 6e4
PROCESS = """
import json, sys
import runtime.load
runtime.load.cpu_foreign_percent = lambda own: 0
from test_two_devices import tuned

sys.stdin.read()
print(json.dumps(tuned(*sys.argv[1:])))
"""
Tune = Callable[[Sequence[str], ExecutorName, Path, Path], list[dict[str, Any]]]


def tuned(uri: str, executor: Any, pack: str, store: str) -> dict[str, Any]:
    """Choose every kernel of a pack and run it; what was chosen, and where from."""
    chosen = {}
    with Session(
        pack, uri, executor=executor, store=store, tuning="first_use", budget_ms=BUDGET_MS
    ) as session:
        for name in session.kernels:
            kernel = session.reference(name).entry
            at = sized(kernel.dims, SHAPE)
            choice = session.choose(name, *at.sizes)
            chosen[name] = [choice.source, choice.record.full_name, choice.note]
            operands = host_operands(kernel, at)
            for _ in range(3):
                got = session[name](*[o.copy() for o in operands])
                assert np.array_equal(got, expected_of(kernel, operands)), (uri, name)
        return {"uuid": session.facts.uuid or uri, "chosen": chosen}


def in_threads(
    uris: Sequence[str], executor: ExecutorName, pack: Path, store: Path
) -> list[dict[str, Any]]:
    """Both sessions in this process."""
    with ThreadPoolExecutor(len(uris)) as pool:
        return list(pool.map(lambda uri: tuned(uri, executor, str(pack), str(store)), uris))


def in_processes(
    uris: Sequence[str], executor: ExecutorName, pack: Path, store: Path
) -> list[dict[str, Any]]:
    """A process for each, all waiting for one another."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, sys.path)])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, uri, executor, str(pack), str(store)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for uri in uris
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    return [json.loads(p.communicate(timeout=300)[0]) for p in processes]


def check(tune: Tune, uris: Sequence[str], executor: ExecutorName, pack: Path, store: Path) -> None:
    """Each device keeps what it measured beside the other's, and nothing is timed again."""
    found = tune(uris, executor, pack, store)
    for one in found:
        for name, (source, _, note) in one["chosen"].items():
            assert source in ("timed", "only"), (one["uuid"], name, note)
            assert note is None, (one["uuid"], name, note)
    assert verify(store) == []
    timed = [n for n, c in found[0]["chosen"].items() if c[0] == "timed"]
    stored = entries(store)
    assert len(stored) == len(uris) * len(timed)
    assert len({e.location.path for e in stored}) == len(stored)
    again = tune(uris, executor, pack, store)
    for before, after in zip(found, again, strict=True):
        assert before["uuid"] == after["uuid"]
        for name in timed:
            assert after["chosen"][name] == ["store", before["chosen"][name][1], None]
    assert entries(store) == stored


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that nobody else uses."""
    monkeypatch.setattr(runtime.load, "cpu_foreign_percent", lambda own: 0)


@pytest.mark.parametrize("tune", [in_threads, in_processes])
@pytest.mark.parametrize(
    "second", ["local-task", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_two_devices_of_this_machine(
    packs: Any, tmp_path: Path, idle: None, tune: Tune, second: str
) -> None:
    check(tune, ("local-sync", second), "iree", packs.path("matmul_f32"), tmp_path)


@pytest.mark.device("cuda")
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("tune", [in_threads, in_processes])
def test_two_cuda_devices(
    pytestconfig: pytest.Config, tmp_path: Path, tune: Tune, executor: ExecutorName
) -> None:
    from runtime.cuda.driver import open_driver

    folder = pytestconfig.getoption("--packs")
    if folder is None:
        pytest.skip("needs --packs")
    try:
        count = len(open_driver("cuda").uuids())
    except DeviceError as error:
        pytest.fail(error.message)
    if count < 2:
        pytest.skip(f"needs two CUDA devices, there is {count}")
    pack, *_ = find_packs(Path(folder))
    check(tune, ("cuda://0", "cuda://1"), executor, pack.path, tmp_path)
