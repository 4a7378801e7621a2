"""Sessions on real devices: choosing, remembering, preparing, threads, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialects.errors import (
    DeviceError,
    LaunchRefused,
    PackError,
    ProblemError,
    UsageError,
)
from packs import SAMPLES, Packs, change_records, copied, cpu_records, manifest_of
from problems import answer, call, candidates, entry_of, integers, sizes_of
from runtime import Choice, Session
from runtime.execute import Executable
from runtime.facts import read_facts
from runtime.session import UnknownKernel
from runtime.store import entries

SHAPE = (37, 45, 130)
BUDGET_MS = 3e4  # other work beside the tests must not decide what they see


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing else runs."""
    monkeypatch.setattr("runtime.load.cpu_foreign_percent", lambda own: 0)


@pytest.fixture
def session(packs: Packs) -> Iterator[Session]:
    """A session with one kernel that never times."""
    with Session(packs.path("matmul_f32"), "local-task", tuning="off") as opened:
        yield opened


def operands(session: Session, kernel: str = "matmul_f32", shape: Any = SHAPE) -> list[np.ndarray]:
    """Small integers."""
    return integers(session, kernel, sizes_of(session, kernel, *shape))


@pytest.mark.usefixtures("quiet")
def test_a_choice_is_timed_once_and_then_stored(packs: Packs, tmp_path: Path) -> None:
    """In the first session by a worker; the second one starts none."""
    told: list[Choice] = []
    steps: list[tuple[str, str]] = []
    options: Any = {"store": tmp_path, "tuning": "first_use", "budget_ms": BUDGET_MS}
    path = packs.path("matmul_f32")
    with Session(
        path, **options, on_choice=told.append, observe=lambda *step: steps.append(step)
    ) as session:
        a, b = operands(session)
        for _ in range(2):
            np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)
        assert session.settled
    assert [choice.source for choice in told] == ["timed"]
    assert {step for step, _ in steps} == {"prove", "time"}
    assert told[0].failures == {}
    assert set(told[0].medians) == {r.full_name for r in cpu_records(path)}
    assert len(entries(tmp_path)) == 1
    with Session(path, **options) as session:
        np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)
        choice = session.explain("matmul_f32", *SHAPE).choice
        assert choice is not None
        assert (choice.source, choice.record) == ("store", told[0].record)
        assert choice.medians == {}
        assert session._measurer.process_id is None


@pytest.mark.usefixtures("quiet")
def test_prewarm_chooses_as_a_call_would(packs: Packs) -> None:
    with Session(packs.path("matmul_f32"), tuning="first_use", budget_ms=BUDGET_MS) as session:
        first, second = session.prewarm("matmul_f32", [SHAPE, (1, 1, 1)])
        assert (first.source, second.source) == ("timed", "timed")
        assert session.settled
        worker = session._measurer.process_id
        a, b = operands(session)
        np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)
        assert session.prewarm("matmul_f32", [SHAPE]) == [first]
        assert session._measurer.process_id == worker
    assert worker is not None
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


def test_without_a_store_the_default_is_used_and_unsettled(packs: Packs) -> None:
    with Session(packs.path("matmul_f32")) as session:
        assert session.settled
        a, b = operands(session)
        np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)
        assert not session.settled
        choice = session.choose("matmul_f32", *SHAPE)
        assert (choice.source, choice.note) == ("default", "not stored")


def test_an_operand_is_packed_once_for_each_candidate(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[str] = []
    original = Executable.prepare

    def counting(self: Executable, operand: str, *rest: Any) -> None:
        packed.append(f"{operand} for {self.record.name}")
        original(self, operand, *rest)

    monkeypatch.setattr(Executable, "prepare", counting)
    b = operands(session)[1]
    kept = session.prepare("matmul_f32", b=b)
    names = candidates(session, "matmul_f32")[:2]
    for name in [*names, *names]:
        session.override("matmul_f32", name)
        for rows in (1, 37, 64):
            a = operands(session, shape=(rows, 45, 130))[0]
            np.testing.assert_array_equal(session.matmul_f32(a, kept), a @ b)
    assert packed == [f"b for {name}" for name in names]


def test_an_override_takes_effect_on_known_shapes(session: Session) -> None:
    """Warm calls too, and it is lifted by None."""
    told = []
    a, b = operands(session)
    device = [session.array(a), session.array(b), session.empty((37, 45), "f32")]
    for name in (*candidates(session, "matmul_f32"), None):
        session.override("matmul_f32", name)
        for _ in range(2):
            session.matmul_f32(*device)
            np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)
            np.testing.assert_array_equal(device[2].numpy(), a @ b)
        choice = session.explain("matmul_f32", *SHAPE).choice
        assert choice is not None
        told.append((choice.source, choice.record.name))
    assert told[:-1] == [("override", n) for n in candidates(session, "matmul_f32")]
    assert told[-1][0] == "default"
    with pytest.raises(PackError, match="has no candidate 'nothing', has: "):
        session.override("matmul_f32", "nothing")


def test_a_pruned_candidate_can_be_forced(packs: Packs) -> None:
    """On facts that allow nothing; it is refused otherwise, with every reason."""
    facts = replace(read_facts("local-task"), features=("nothing",))
    names = [r.name for r in cpu_records(packs.path("matmul_f32"))]
    with Session(packs.path("matmul_f32"), tuning="off", facts=facts) as session:
        a, b = operands(session)
        with pytest.raises(LaunchRefused, match="no candidate can run") as caught:
            session.matmul_f32(a, b)
        assert all(name in str(caught.value) for name in names)
        session.override("matmul_f32", names[0])
        np.testing.assert_array_equal(session.matmul_f32(a, b), a @ b)


@pytest.mark.parametrize(
    "uri", ["local-task", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_eight_threads_on_one_session(packs: Packs, uri: str) -> None:
    """Every kernel with host and device arrays, cold and warm, each result its own."""
    with Session(packs.paths, device=uri, tuning="off") as session:

        def work(seed: int) -> None:
            for turn in range(4):
                for kernel in SAMPLES:
                    m = 1 + (7 * seed + turn) % 23
                    given = operands(session, kernel, (m, 33, 17))
                    expected = answer(kernel, given)
                    np.testing.assert_array_equal(call(session, kernel, *given), expected)
                    there = [session.array(o) for o in given]
                    kept = session.prepare(kernel, b=there[1])
                    for second in (there[1], kept):
                        got = call(session, kernel, there[0], second, *there[2:])
                        np.testing.assert_array_equal(got.numpy(), expected)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))


def test_two_sessions_at_once(packs: Packs) -> None:
    with (
        Session(packs.path("matmul_f32"), "local-sync", tuning="off") as first,
        Session(packs.path("matmul_f32"), "local-task", tuning="off") as second,
        Session(packs.path("matmul_f32"), "local-task", tuning="off") as third,
    ):
        a, b = operands(first)
        kept = [s.prepare("matmul_f32", b=b) for s in (first, second, third)]
        for s, prepared in zip((first, second, third), kept, strict=True):
            np.testing.assert_array_equal(s.matmul_f32(a, prepared), a @ b)


def test_a_closed_session_still_computes(packs: Packs) -> None:
    session = Session(packs.path("matmul_f32"), tuning="off")
    a, b = operands(session)
    array = session.matmul_f32(session.array(a), b)
    session.close()
    session.close()
    np.testing.assert_array_equal(array.numpy(), a @ b)
    np.testing.assert_array_equal(session.matmul_f32(a[:5], b), a[:5] @ b)


def test_kernels_are_attributes(session: Session) -> None:
    assert session.kernels == ("matmul_f32",)
    assert session.matmul_f32 is session.matmul_f32 is session["matmul_f32"]
    with pytest.raises(UnknownKernel, match="no kernel 'device', there is: matmul_f32"):
        session["device"]
    assert not hasattr(session, "matmul_f16")
    assert not hasattr(session, "_nothing")
    with pytest.raises(UnknownKernel, match="no kernel 'matmul_f16', there is: matmul_f32"):
        _ = session.matmul_f16
    for attempt in (session.explain, session.choose, session.workspace_bytes):
        with pytest.raises(UnknownKernel):
            attempt("nothing", 1, 1, 1)
    with pytest.raises(UnknownKernel):
        session.prepare("nothing", b=1)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((1, 2), r"takes 3 sizes \(MxNxK\), found 2"),
        ((-1, 2, 3), "size M = -1 is not within 0 and 2147483647"),
        ((1 << 40, 2, 3), "size M = 1099511627776 is not within"),
        ((np.float32(1), 2, 3), "sizes must be whole numbers"),
        (("1", 2, 3), "sizes must be whole numbers"),
    ],
)
def test_impossible_problems(session: Session, sizes: Any, text: str) -> None:
    for attempt in (session.choose, session.explain, session.workspace_bytes):
        with pytest.raises(ProblemError, match=text):
            attempt("matmul_f32", *sizes)


def test_what_is_too_large_is_refused(session: Session) -> None:
    """By the rules, before anything is allocated."""
    with pytest.raises(LaunchRefused, match=r"a has 4611686014132420609 elements > 2147483648"):
        session.choose("matmul_f32", (1 << 31) - 1, 1, (1 << 31) - 1)
    column, row = (np.broadcast_to(np.float32(1), s) for s in ((1 << 30, 1), (1, 1 << 20)))
    with pytest.raises((DeviceError, LaunchRefused), match=r"not enough memory|has .* elements"):
        session.matmul_f32(column, row)


def test_explain_tells_every_candidate(session: Session) -> None:
    explanation = session.explain("matmul_f32", *SHAPE)
    assert explanation.choice is None
    for name in candidates(session, "matmul_f32"):
        assert f"{name}: ok, padding" in str(explanation)
    session.choose("matmul_f32", *SHAPE)
    assert session.explain("matmul_f32", *SHAPE).choice is not None


def test_sessions_that_cannot_be(packs: Packs, tmp_path: Path) -> None:
    path = packs.path("matmul_f32")
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (PackError, "kernel 'matmul_f32' is in .* too", {"packs": [path, path]}),
        (PackError, "no pack here", {"packs": [tmp_path]}),
        (PackError, "no pack here", {"packs": path / "manifest.json"}),
        (PackError, "at least one pack", {"packs": []}),
        (DeviceError, "device 'fpga' is not one of", {"packs": path, "device": "fpga"}),
        (DeviceError, "device '' is not one of", {"packs": path, "device": ""}),
        (DeviceError, "cannot open device", {"packs": path, "device": "cuda"}),
        (UsageError, "tuning 'always' is not one of", {"packs": path, "tuning": "always"}),
    ]
    for error, text, arguments in cases:
        with pytest.raises(error, match=text):
            Session(**arguments)


def test_a_pack_without_code_for_the_device(packs: Packs, tmp_path: Path) -> None:
    pack = copied(packs.path("matmul_f32"), tmp_path / "pack")
    change_records(
        pack,
        lambda r: replace(r, identity=replace(r.identity, target="cuda:sm_90a")),
    )
    with pytest.raises(PackError, match="has no code for cpu, only for cuda:sm_90a"):
        Session(pack)
    assert manifest_of(pack).kernels[0].members


def test_the_entry_of_a_kernel(session: Session) -> None:
    assert entry_of(session, "matmul_f32").dims == ("M", "N", "K")
    assert session.workspace_bytes("matmul_f32", 1, 1, 1) > 0


def test_sizes_of_numpy_are_sizes(session: Session) -> None:
    """They come from shapes, and go into JSON."""
    choice = session.choose("matmul_f32", *np.array(SHAPE))
    assert choice is session.choose("matmul_f32", *SHAPE)
    assert all(type(size) is int for size in choice.problem.sizes)
