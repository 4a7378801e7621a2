"""What an application does with the measured choice: hold it, feed it, force it, share it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialects.errors import DeviceError, PackError, UsageError
from packs import Packs, cpu_records
from problems import integers, sizes_of
from runtime import Choice, Session
from runtime.choice import Candidate
from runtime.measuring_lock import lock_path, measuring_lock
from runtime.store import Store, entries
from runtime.surroundings import cpu_clocks

ROOT = Path(__file__).resolve().parent.parent
SHAPE = (37, 45, 130)
OPTIONS: dict[str, Any] = {"tuning": "first_use", "budget_ms": 3e4}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing else runs."""
    monkeypatch.setattr("runtime.load.cpu_foreign_percent", lambda own: 0)


@pytest.fixture(scope="module")
def path(packs: Packs) -> Path:
    return packs.path("matmul_f32")


@pytest.fixture
def session(path: Path, tmp_path: Path) -> Iterator[Session]:
    """A session that measures what it does not know."""
    with Session(path, "local-sync", store=tmp_path / "store", **OPTIONS) as opened:
        yield opened


def operands(session: Session) -> list[np.ndarray]:
    return integers(session, "matmul_f32", sizes_of(session, "matmul_f32", *SHAPE))


def test_while_held_the_default_runs_and_nothing_is_timed(session: Session, path: Path) -> None:
    """Also through a plan: what was held is chosen anew afterwards."""
    a, b = operands(session)
    arrays = (session.array(a), session.array(b))
    out = session.empty((SHAPE[0], SHAPE[1]), "f32")
    with session.hold(), session.hold():
        for _ in range(2):
            session.matmul_f32(*arrays, out=out)
        choice = session.choose("matmul_f32", *SHAPE)
        assert choice.record.full_name == cpu_records(path)[0].full_name
        assert (choice.source, choice.settled) == ("default", False)
        assert choice.note == "the trial is held: the untimed default"
        assert session._measurer.process_id is None
    np.testing.assert_array_equal(out.numpy(), a @ b)
    session.matmul_f32(*arrays, out=out)
    np.testing.assert_array_equal(out.numpy(), a @ b)
    assert session.choose("matmul_f32", *SHAPE).source == "timed"
    with session.hold():  # a choice that was made stays
        assert session.choose("matmul_f32", *SHAPE).source == "timed"


def test_a_trial_in_place_is_fed_and_remembered(session: Session, path: Path) -> None:
    """By times of our own: the third is fastest. The next session finds it."""
    a, b = operands(session)
    trial = session.trial("matmul_f32", *SHAPE, timer="device")
    names = [r.full_name for r in cpu_records(path)]
    asked = []
    while (name := trial.turn) is not None:
        call = session.candidate("matmul_f32", name)
        np.testing.assert_array_equal(call(a, b), a @ b)
        asked.append(name)
        assert trial.feed(name, 100.0 - 10 * names.index(name))
    assert asked[: len(names)] == names
    assert set(asked) == set(names)
    choice = trial.finish()
    assert trial.finish() is choice
    assert choice.record.full_name == names[-1]
    assert (choice.source, choice.timer, choice.settled) == ("timed", "device", True)
    assert session.choose("matmul_f32", *SHAPE) is choice
    with Session(path, "local-sync", store=session._planner.shapes.store.directory) as again:
        found = again.choose("matmul_f32", *SHAPE)
        assert (found.record, found.source, found.timer) == (choice.record, "store", "device")
        assert again.trial("matmul_f32", *SHAPE).turn is None


def test_a_trial_that_ends_early_is_used_and_not_stored(session: Session, path: Path) -> None:
    trial = session.trial("matmul_f32", *SHAPE)
    names = [r.full_name for r in cpu_records(path)]
    for place, name in enumerate(names):
        assert trial.feed(name, 50.0 + place * 10)
    trial.fail(names[0], "it missed its deadline")
    choice = trial.finish()
    assert choice.record.full_name == names[1]
    assert choice.failures == {names[0]: "it missed its deadline"}
    assert (choice.settled, choice.note) == (False, "the trial was ended early: used, not stored")
    assert entries(session._planner.shapes.store.directory or Path()) == []
    for bad in (lambda: trial.feed("nobody", 1.0), lambda: trial.feed(names[1], 0.0)):
        with pytest.raises(UsageError):
            bad()


@pytest.mark.parametrize("tuning", ["off", "store"])
def test_a_trial_has_nothing_to_do_where_nothing_may_be_timed(path: Path, tuning: Any) -> None:
    with Session(path, "local-sync", tuning=tuning) as session:
        trial = session.trial("matmul_f32", *SHAPE)
        assert trial.turn is None
        assert trial.finish().source == "default"
        session.override("matmul_f32", cpu_records(path)[1].name)
        assert session.trial("matmul_f32", *SHAPE).finish().source == "override"
        assert session._measurer.process_id is None


def test_a_candidate_by_name_whatever_the_choice(session: Session, path: Path) -> None:
    a, b = operands(session)
    for record in cpu_records(path):
        np.testing.assert_array_equal(session.candidate("matmul_f32", record.name)(a, b), a @ b)
    with pytest.raises(PackError, match="has no candidate 'nobody', has: "):
        session.candidate("matmul_f32", "nobody")
    assert session._planner.known(*session._dense("matmul_f32", SHAPE)) is None


def probes(times: dict[str, float], log: list[str], wrong: tuple[str, ...] = ()) -> list[Candidate]:
    """Candidates of an application."""

    def probe(name: str) -> float:
        log.append(name)
        return times[name]

    return [
        Candidate(
            name=name,
            check=lambda name=name: "it is wrong" if name in wrong else None,
            probe=lambda name=name: probe(name),
        )
        for name in times
    ]


def test_an_applications_own_candidates(session: Session, path: Path) -> None:
    """A family is one client: fused or separate launches are another."""
    log: list[str] = []
    times = {"separate": 10.0, "fused": 7.0, "broken": 1.0}
    first = session.choose_among("qkv", "4096x512", probes(times, log, ("broken",)))
    assert (first.name, first.source, first.settled) == ("fused", "timed", True)
    assert first.failures == {"broken": "it is wrong"}
    assert log == ["separate", "fused", *["fused", "separate", "separate", "fused"] * 2]
    log.clear()
    again = session.choose_among("qkv", "4096x512", probes(times, log, ("broken",)))
    assert (again.name, again.source, again.margin_permille) == ("fused", "store", 300)
    assert session.choose_among("qkv", "8x8", probes({"only": 1.0}, log)).source == "only"
    with session.hold():
        assert session.choose_among("qkv", "64x64", probes(times, log)).name == "separate"
    assert log == []
    for bad in ([], probes({"a": 1.0}, log) * 2):
        with pytest.raises(UsageError, match="'qkv' needs candidates of different names"):
            session.choose_among("qkv", "1x1", bad)
    with pytest.raises(DeviceError, match=r"'qkv' at 2x2: every candidate failed: .*it is wrong"):
        session.choose_among("qkv", "2x2", probes(times, log, tuple(times)))


def test_prewarm_tries_again_what_is_not_settled(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured beside other load it is used; without, it is stored."""
    load = [90]
    monkeypatch.setattr("runtime.load.cpu_foreign_percent", lambda own: load[0])
    monkeypatch.setattr("runtime.load.KEPT_S", 0.0)
    with Session(path, "local-sync", **OPTIONS) as session:
        (busy,) = session.prewarm("matmul_f32", [SHAPE])
        assert busy.note == "other processes held 90 % of the device: used, not stored"
        assert not session.settled
        load[0] = 3
        (quiet,) = session.prewarm("matmul_f32", [SHAPE])
        assert (quiet.settled, quiet.note, quiet.source) == (True, None, "timed")
        assert session.settled
        assert session.prewarm("matmul_f32", [SHAPE]) == [quiet]


def test_cold_caches_are_another_key(path: Path, tmp_path: Path) -> None:
    hot: dict[str, Any] = {**OPTIONS, "store": tmp_path}
    with Session(path, "local-sync", **hot, cache="cold") as session:
        if session.facts.l2_bytes is None:
            with pytest.raises(UsageError, match="cold caches need the size of the L2 cache"):
                session.choose("matmul_f32", 256, 256, 256)
            return
        assert session.choose("matmul_f32", 256, 256, 256).source == "timed"
    with Session(path, "local-sync", **hot) as session:
        assert session.choose("matmul_f32", 256, 256, 256).source == "timed"
    keys = [entry.location.key for entry in entries(tmp_path)]
    assert len(keys) == 2
    assert sorted(key.endswith("-cold") for key in keys) == [False, True]


def test_cold_caches_that_cannot_be_are_refused(path: Path) -> None:
    with pytest.raises(UsageError, match="cache 'warm' is not one of hot, cold"):
        Session(path, cache="warm")  # type: ignore[arg-type]
    with (
        Session(path, "local-sync", **OPTIONS, cache="cold") as session,
        pytest.raises(UsageError, match="cache='hot' works"),
    ):
        session.choose("matmul_f32", 1, 1, 1)


def test_one_session_under_eight_threads(path: Path) -> None:
    """Every thread gets right results while shapes are measured; each shape is measured once."""
    told: list[Choice] = []
    shapes = [(m, 45, 20) for m in (1, 5, 17, 33)]
    with Session(path, "local-task", **OPTIONS, on_choice=told.append) as session:

        def work(seed: int) -> None:
            for turn in range(12):
                m, n, k = shapes[(seed + turn) % len(shapes)]
                rng = np.random.default_rng(seed * 100 + turn)
                a = rng.integers(-2, 3, (m, k)).astype(np.float32)
                b = rng.integers(-2, 3, (k, n)).astype(np.float32)
                np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert session.settled
    assert sorted(choice.problem.sizes for choice in told) == sorted(shapes)


PROCESS = """
import json, sys
import runtime.load
runtime.load.cpu_foreign_percent = lambda own: 0
from runtime import Session

sys.stdin.read()
with Session(sys.argv[1], "local-sync", store=sys.argv[2], tuning="first_use",
             budget_ms=6e4) as session:
    choice = session.choose("matmul_f32", 37, 45, 130)
print(json.dumps([choice.source, choice.record.full_name, choice.settled]))
"""


def test_processes_that_start_together_measure_once(path: Path, tmp_path: Path) -> None:
    """The lock has the others wait, and then they find what the first one stored."""
    command = [sys.executable, "-c", PROCESS, str(path), str(tmp_path)]
    processes = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    found = [json.loads(process.communicate(timeout=240)[0]) for process in processes]
    assert [source for source, _, _ in found].count("timed") == 1
    assert len({name for _, name, _ in found}) == 1
    assert all(settled for _, _, settled in found)
    assert len(entries(tmp_path)) == 1


def test_a_store_that_only_reads_needs_no_lock(path: Path, tmp_path: Path) -> None:
    """Mode ``store`` never times and never waits for who does."""
    with Session(path, "local-sync", store=tmp_path, **OPTIONS) as session:
        session.choose("matmul_f32", *SHAPE)
        (entry,) = entries(tmp_path)
    store = Store(tmp_path)
    with (
        measuring_lock(store.files, lock_path(tmp_path, entry.location)) as held,
        Session(path, "local-sync", store=tmp_path) as session,
    ):
        assert held
        assert session.choose("matmul_f32", *SHAPE).source == "store"
        assert session.choose("matmul_f32", 3, 3, 3).source == "default"
        assert session._measurer.process_id is None


def test_clocks_are_those_that_the_system_reports(tmp_path: Path) -> None:
    for name, text in (("policy0", "2400000\n"), ("policy1", "odd"), ("boost", "1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scaling_cur_freq").write_text(text)
    assert cpu_clocks(tmp_path) == {"policy0": 2400000}
    assert cpu_clocks(tmp_path / "nothing") is None
