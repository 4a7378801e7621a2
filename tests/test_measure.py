"""The measuring process: whatever it does, the others are measured and the host lives on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts
from dialects.manifest import Record
from dialects.member import Problem
from packs import (
    Packs,
    build_pack,
    copied,
    cpu_records,
    kernel_of,
    replace_module,
    with_one_member,
)
from records import KERNEL, MANIFEST, RECORD
from runtime.choice import Trial
from runtime.filter import filter_candidates
from runtime.measure import Measurer, TrialOptions
from runtime.pack import Pack, open_pack

LONG = TrialOptions(budget_ms=3e4)
HERE = Path(__file__).resolve().parent
PROBLEM = Problem(dims=("M", "N", "K"), sizes=(37, 15, 130))
DIED = {
    "traps": "trapped with signal 11",
    "aborts": "trapped with signal 6",
    "hangs": "hung for 0.5 s",
    "exits": "ended with code 3",
    "ends": "ended with code 0",
    "prints garbage": "said what is not understood: 'Segmentation fault?",
    "prints a list": "said what is not understood: [1, 2]",
    "prints what nobody knows": "said what is not understood: {'progress': 7}",
    "prints half a line": 'said what is not understood: \'{"step": "pro\'',
    "prints bad samples": "said what is not understood",
    "prints no text": "said what is not understood",
    "closes its output": "closed its output",
    "reports a failure": "wrong in 1 of 9 elements",
}


def named(member: str) -> Record:
    """A made-up candidate."""
    return replace(RECORD, identity=replace(RECORD.identity, member=member))


A, B, C = named("a"), named("b"), named("c")
Fake = Callable[..., Measurer]


def started(log: Path) -> list[int]:
    """Process ids of every worker that ran."""
    return [int(line) for line in log.read_text().split()]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    """Makes measurers with a fake worker; at the end none of its processes is left."""
    made: list[Measurer] = []

    def make(mode: str, victim: Record = B) -> Measurer:
        script, log = HERE / "fake_worker.py", tmp_path / "log"
        command = [sys.executable, str(script), str(log), mode, victim.full_name]
        made.append(Measurer("none", hang_s=0.5, start_s=2, command=command))
        return made[-1]

    yield make
    for measurer in made:
        measurer.close()
        assert measurer.process_id is None
    for process in started(tmp_path / "log"):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def trial(measurer: Measurer, *records: Record) -> Trial:
    """A trial of made-up candidates."""
    pack = Pack(path=Path("nowhere"), manifest=MANIFEST)
    return measurer.trial(pack, KERNEL, records, PROBLEM, TrialOptions(budget_ms=1000))


@pytest.mark.parametrize(("mode", "reason"), DIED.items(), ids=DIED.keys())
def test_a_candidate_that_breaks_the_worker_is_named(fake: Fake, mode: str, reason: str) -> None:
    """The others are measured all the same, and so is the next trial."""
    measurer = fake(mode)
    found = trial(measurer, A, B, C)
    assert list(found.failures) == [B.full_name]
    assert reason in found.failures[B.full_name]
    assert {A.full_name, C.full_name} <= set(found.samples)
    assert found.complete
    assert trial(measurer, A, C).failures == {}


def test_several_bad_candidates(fake: Fake) -> None:
    """Each costs one worker; when none is left, all are named and nothing is raised."""
    measurer = fake("traps")
    found = trial(measurer, B)
    assert (found.samples, list(found.failures)) == ({}, [B.full_name])
    assert measurer.process_id is None


def test_a_worker_that_behaves_stays(fake: Fake, tmp_path: Path) -> None:
    measurer = fake("well")
    assert measurer.process_id is None
    measurer.start()
    first = measurer.process_id
    for _ in range(3):
        found = trial(measurer, A, B)
        assert found == Trial(
            samples={A.full_name: (1.0,) * 5, B.full_name: (2.0,) * 5}, failures={}, complete=True
        )
    assert measurer.process_id == first
    measurer.close()
    measurer.close()
    trial(measurer, A)
    assert len(started(tmp_path / "log")) == 2


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("never starts", "the measuring process hung for 2 s"),
        ("exits at once", "the measuring process ended with code 7"),
        ("greets wrongly", "the measuring process is none of ours"),
        ("has no device", "cannot open device 'x'"),
    ],
)
def test_a_worker_that_does_not_start(fake: Fake, mode: str, text: str) -> None:
    measurer = fake(mode)
    with pytest.raises(DeviceError, match=text):
        trial(measurer, A)
    assert measurer.process_id is None


def test_a_worker_that_is_not_there() -> None:
    with pytest.raises(DeviceError, match="cannot start the measuring process: No such file"):
        trial(Measurer("none", command=["/does/not/exist"]), A)


def test_a_worker_that_reports_an_error(fake: Fake) -> None:
    with pytest.raises(DeviceError, match="the device is gone"):
        trial(fake("reports an error"), A, B)


def test_an_interrupted_trial_leaves_no_answer_for_the_next(fake: Fake) -> None:
    """What the worker still says is not taken for what it says later."""
    measurer = fake("well")
    pack = Pack(path=Path("nowhere"), manifest=MANIFEST)

    def interrupt(step: str, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measurer.trial(pack, KERNEL, [A, B], PROBLEM, TrialOptions(budget_ms=1000), interrupt)
    assert list(trial(measurer, C).samples) == [C.full_name]


def test_trials_of_several_threads_take_turns(fake: Fake, tmp_path: Path) -> None:
    measurer, found = fake("well"), {}

    def work(record: Record) -> None:
        found[record.full_name] = list(trial(measurer, record).samples)

    threads = [threading.Thread(target=work, args=(named(f"m{i}"),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(samples == [name] for name, samples in found.items())
    assert len(found) == 8
    assert len(started(tmp_path / "log")) == 1


@pytest.mark.parametrize(
    "uri", ["local-sync", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_real_candidates(
    packs: Packs, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are right and timed; a folder of the caller's with our name hides nothing."""
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.chdir(tmp_path)
    pack = open_pack(packs.path("matmul_f32"))
    (kernel,) = pack.manifest.kernels
    backend = uri if uri == "vulkan" else "cpu"
    facts = DeviceFacts(backend=backend)
    records = [v.record for v in filter_candidates(kernel, facts, PROBLEM) if v.ok]
    steps: list[tuple[str, str]] = []
    measurer = Measurer(uri)
    try:
        found = measurer.trial(
            pack, kernel, records, PROBLEM, LONG, lambda step, name: steps.append((step, name))
        )
    finally:
        measurer.close()
    names = [r.full_name for r in records]
    assert (found.failures, found.complete) == ({}, True)
    assert set(found.samples) == set(names)
    assert all(time > 0 for times in found.samples.values() for time in times)
    assert steps[: len(names)] == [("prove", name) for name in names]
    assert {step for step, _ in steps[len(names) :]} == {"time"}


@pytest.mark.parametrize("when", ["prove", "time"])
def test_a_real_candidate_that_traps(packs: Packs, when: str) -> None:
    pack = open_pack(packs.path("matmul_f32"))
    (kernel,) = pack.manifest.kernels
    records = cpu_records(pack.path)
    victim = records[1].full_name
    script = str(HERE / "trapping_worker.py")
    measurer = Measurer("", command=[sys.executable, script, "local-sync", when, victim])
    try:
        found = measurer.trial(pack, kernel, records, PROBLEM, LONG)
    finally:
        measurer.close()
    assert found.failures == {victim: "trapped with signal 11"}
    assert set(found.samples) == {r.full_name for r in records} - {victim}


def test_the_same_member_for_two_targets(packs: Packs, tmp_path: Path) -> None:
    """Two candidates of one name: each is proven and timed with its own code."""
    source = tmp_path / "one.mlir"
    source.write_text(with_one_member(packs.source("matmul_f32").read_text()))
    build_pack(source, tmp_path / "pack", packs.cache, ("cpu:x86-64-v2", "cpu:x86-64"))
    records = cpu_records(tmp_path / "pack")
    assert len({r.name for r in records}) == 1
    measurer = Measurer("local-sync")
    try:
        pack = open_pack(tmp_path / "pack")
        found = measurer.trial(pack, kernel_of(pack.path), records, PROBLEM, LONG)
    finally:
        measurer.close()
    assert found.failures == {}
    assert set(found.samples) == {r.full_name for r in records}
    assert len(found.samples) == 2


@pytest.fixture(scope="module")
def wrong(packs: Packs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack whose second candidate computes A B^T, with a digest that agrees."""
    folder = tmp_path_factory.mktemp("wrong")
    text = packs.source("matmul_transposed_b").read_text()
    (folder / "other.mlir").write_text(text.replace("@matmul_transposed_b", "@matmul_f32"))
    build_pack(folder / "other.mlir", folder / "other", packs.cache, ("cpu",))
    pack = copied(packs.path("matmul_f32"), folder / "pack")
    name = cpu_records(pack)[1].name
    (other,) = [r for r in cpu_records(folder / "other") if r.name == name]
    assert other.files is not None
    replace_module(pack, name, (folder / "other" / other.files.vmfb).read_bytes())
    return pack


@pytest.mark.parametrize("sizes", [(37, 15, 130), (1, 1, 1)])
def test_a_candidate_that_computes_wrongly_is_left_out(wrong: Path, sizes: tuple[int, ...]) -> None:
    """It is named with its reason, and never timed; where the problem itself hides it, too."""
    problem = replace(PROBLEM, sizes=sizes)
    records = cpu_records(wrong)
    measurer = Measurer("local-sync")
    try:
        found = measurer.trial(open_pack(wrong), kernel_of(wrong), records, problem, LONG)
    finally:
        measurer.close()
    assert list(found.failures) == [records[1].full_name]
    assert "wrong in" in found.failures[records[1].full_name]
    assert set(found.samples) == {records[0].full_name, records[2].full_name}


def test_a_pack_that_changed_on_disk(wrong: Path, packs: Packs) -> None:
    """The worker reads it anew and lacks a candidate: an error, and no crash."""
    measurer = Measurer("local-sync")
    try:
        with pytest.raises(DeviceError, match="the pack has changed, it lacks nothing/"):
            measurer.trial(
                open_pack(wrong),
                kernel_of(wrong),
                [named("nothing")],
                PROBLEM,
                TrialOptions(budget_ms=1000),
            )
        gone = replace(open_pack(wrong), path=wrong / "gone")
        with pytest.raises(DeviceError, match="no pack here"):
            measurer.trial(gone, kernel_of(wrong), [A], PROBLEM, TrialOptions(budget_ms=1000))
    finally:
        measurer.close()
