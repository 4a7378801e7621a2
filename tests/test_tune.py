"""Tuning by a clock that only a profiler reads, with made-up readings of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from command_lines import run_main
from dialects.errors import DeviceError
from packs import Packs, cpu_records
from runtime import tune
from runtime.choice import ROUNDS
from runtime.cli import main
from runtime.compare import Timing
from runtime.store import entries

SHAPE = ("--shape", "37x45x130", "--device", "local-sync")


@pytest.fixture
def pack(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack for a device whose driver is said to record dispatches, on a quiet machine."""
    monkeypatch.setattr("runtime.load.cpu_foreign_percent", lambda own: 0)
    monkeypatch.setattr(tune, "DEVICE_CLOCK", ("local-sync",))
    return packs.path("matmul_f32")


def readings(times: dict[str, float], asked: list[str]) -> Any:
    """A profiler that reads these times; a candidate without one fails."""

    def dispatch_times(pack: Any, entry: Any, record: Any, case: Any, uri: str) -> Timing:
        asked.append(record.full_name)
        if record.full_name not in times:
            raise DeviceError("the device recorded no dispatch")
        return Timing(microseconds=times[record.full_name], spread=0.0)

    return dispatch_times


def test_the_choice_is_timed_stored_and_named_by_the_devices_clock(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [r.full_name for r in cpu_records(pack)]
    asked: list[str] = []
    times = {name: 30.0 - 5 * place for place, name in enumerate(names)}
    monkeypatch.setattr(tune, "dispatch_times", readings(times, asked))
    command = ("tune", pack, *SHAPE, "--store", tmp_path, "--json")
    first = run_main(main, capsys, *command)
    assert first.code == 0, first.err
    assert (first.json["timer"], first.json["choice"]["source"]) == ("device", "timed")
    found = {m["member"]: m["median_us"] for m in first.json["members"] if m["median_us"]}
    assert found == {name.partition("/")[0]: time for name, time in times.items()}
    assert len(asked) == ROUNDS * len(names)
    (entry,) = entries(tmp_path)
    assert f"{entry.choice.member}/{entry.choice.body}" == names[-1].partition("@")[0]
    assert entry.choice.timer == "device"
    second = run_main(main, capsys, *command)
    assert second.json["choice"]["source"] == "store"
    assert len(asked) == ROUNDS * len(names)


def test_what_the_profiler_cannot_time_is_left_out(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [r.full_name for r in cpu_records(pack)]
    command = ("tune", pack, *SHAPE, "--store", tmp_path, "--json")
    monkeypatch.setattr(tune, "dispatch_times", readings({names[1]: 7.0}, []))
    ran = run_main(main, capsys, *command)
    verdicts = {m["message"] for m in ran.json["members"] if m["verdict"] == "failed"}
    assert verdicts == {"the device recorded no dispatch"}
    assert ran.json["choice"]["member"] == cpu_records(pack)[1].identity.member
    monkeypatch.setattr(tune, "dispatch_times", readings({}, []))
    ran = run_main(main, capsys, "tune", pack, "--shape", "9x9x9", "--device", "local-sync")
    ran.check_refused(1, "every candidate failed: ")


def test_a_budget_that_runs_out_ends_the_trial_early(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    times = {r.full_name: 5.0 for r in cpu_records(pack)}
    monkeypatch.setattr(tune, "dispatch_times", readings(times, asked))
    command = ("tune", pack, *SHAPE, "--store", tmp_path, "--budget-ms", "0.0001", "--json")
    ran = run_main(main, capsys, *command)
    assert asked == [cpu_records(pack)[0].full_name]
    assert ran.json["choice"]["note"] == "the trial was ended early: used, not stored"
    assert not ran.json["settled"]
    assert entries(tmp_path) == []


def test_stored_samples_decide_again_without_a_device(
    pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under another tie band, at the command line."""
    names = [r.full_name for r in cpu_records(pack)]
    times = {name: 10.0 - 0.5 * place for place, name in enumerate(names)}
    monkeypatch.setattr(tune, "dispatch_times", readings(times, []))
    run_main(main, capsys, "tune", pack, *SHAPE, "--store", tmp_path)
    monkeypatch.setattr(tune, "dispatch_times", readings({}, []))

    def replayed(*more: object) -> Any:
        ran = run_main(main, capsys, "store", "replay", "*", "--store", tmp_path, *more, "--json")
        (row,) = ran.json["entries"]
        return row

    assert replayed()["winner"] == names[-1]
    assert replayed("--band", 0)["winner"] == names[-1]
    assert (replayed("--band", 500)["winner"], replayed("--band", 500)["tie"]) == (names[0], True)
    told = run_main(main, capsys, "store", "replay", "*", "--store", tmp_path, "--band", 500).out
    assert f"now {names[0]}, a tie" in told
    ran = run_main(main, capsys, "store", "replay", "*", "--store", tmp_path, "--band", -1)
    ran.check_refused(2, "--band must not be negative, found -1")
