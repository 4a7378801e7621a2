"""The programs about choices, on the processor and on a made-up card."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from fake_cuda import FakeCuda
from packs import Packs
from runtime import Session
from runtime.clocks import clock_of
from runtime.cuda import events

sys.path.insert(0, str(Path(__file__).resolve().parent / "bench"))

choice_regret: Any = importlib.import_module("choice_regret")
choice_stability: Any = importlib.import_module("choice_stability")
choice_bench: Any = importlib.import_module("choice_bench")
SHAPE = (37, 45, 130)


@pytest.fixture
def common(packs: Packs, tmp_path: Path) -> list[str]:
    """Options of both programs."""
    path = str(packs.path("matmul_f32"))
    return [
        *(path, "--kernel", "matmul_f32", "--device", "local-sync", "--budget-ms", "60000"),
        *("--out", str(tmp_path / "data.json")),
    ]


def test_regret(common: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of what was chosen over the best; sizes that are too much for a processor are left out."""
    shapes = "37x45x130,4096x4096x4096"
    assert choice_regret.main([*common, "--shape", shapes, "--thorough-s", "0.1"]) == 0
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["open_ms"] > 0
    assert data["worker_start_ms"] > 0
    (row,) = data["choices"]
    assert row["shape"] == [*SHAPE]
    assert row["candidates"] == len(row["thorough_us"]) > 1
    assert row["best_us"] == min(row["thorough_us"].values())
    assert row["chosen_us"] == row["thorough_us"][row["chosen"]]
    assert row["regret"] == pytest.approx(row["chosen_us"] / row["best_us"], rel=0.01)
    assert row["regret"] >= 1
    assert 0 < row["choose_us"] < 1e5
    assert 0 < row["ready_us"] < 1e5
    assert (row["stored_us"] is not None) == row["settled"]
    assert "37x45x130: regret " in capsys.readouterr().out


def test_stability(common: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes of their own, each with a choice that it timed itself."""
    options = ["--shape", "37x45x130", "--processes", "2", "--warm", "0"]
    assert choice_stability.main([*common, *options]) == 0
    data = json.loads((tmp_path / "data.json").read_text())
    (row,) = data["choices"]
    assert row["processes"] == len(row["runs"]) == 2
    assert sum(row["winners"].values()) == 2
    assert row["same"] == max(row["winners"].values())
    assert all(run["source"] == "timed" for run in row["runs"])
    assert f"{row['same']} of 2 the same winner" in capsys.readouterr().out


def test_both_caches_of_a_made_up_card(
    cuda_pack: Path, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the events of the direct session's own device, every candidate that can run."""
    monkeypatch.setattr(events, "perf_counter", fake_cuda.clock)
    caches: tuple[Literal["hot", "cold"], ...] = ("hot", "cold")
    for cache in caches:
        asked = choice_bench.Asked(
            device="cuda", executor="direct", cache=cache, budget_ms=1e3, thorough_s=0.01
        )
        with Session(cuda_pack, "cuda", executor="direct", tuning="off", cache=cache) as session:
            (name,) = session.kernels
            choice = session.choose(name, 370, 130, 150)
            clock = clock_of(session.device)
            found = choice_regret.exhaustive(clock, session, name, choice, asked)
            assert len(found) == sum(v.ok for v in choice.verdicts) > 1
            assert all(t.microseconds == pytest.approx(10, rel=0.05) for t in found.values())
            assert choice_regret.ready_us(session, name, (370, 130, 150)) > 0


def test_shapes() -> None:
    assert choice_bench.parse_shapes("1x2x3,4x5x6") == [(1, 2, 3), (4, 5, 6)]
    assert len(choice_bench.parse_shapes(choice_regret.SHAPES)) == 7
