"""From a problem to a member, with a measuring process that only says what it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dialects.errors import DeviceError, LaunchRefused, PackError
from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Needs, Record, Refusal, SplitK
from dialects.member import Problem
from records import KERNEL, MANIFEST, RECORD
from runtime.choice import Trial
from runtime.family import Choice, KernelRef
from runtime.measure import Measurer
from runtime.pack import Pack
from runtime.planner import Planner, PlannerOptions
from runtime.shape_choice import Surroundings
from runtime.store import Store, entries

FACTS = DeviceFacts(backend="vulkan", uuid="1", driver="2", wave_widths=(32,))
AT = Problem(dims=("M", "N", "K"), sizes=(500, 64, 64))
LAYOUT = "nn-a4-acc0"


def named(member: str, target: str = "vulkan", code: str | None = None) -> Record:
    """A candidate with code of its own."""
    identity = replace(RECORD.identity, member=member, target=target, code_hash=code or member * 8)
    return replace(RECORD, identity=identity)


A, B, C = named("a"), named("b"), named("c")
REFUSED = replace(
    named("d"), refused=Refusal(rule="R3", need=2, limit=1, message="shared 2 B > 1 B (R3)")
)


def ref(*records: Record) -> KernelRef:
    """A kernel with these candidates."""
    entry: KernelEntry = replace(KERNEL, members=records)
    return KernelRef(pack=Pack(path=Path("nowhere"), manifest=MANIFEST), entry=entry)


class Measurements:
    """Answers trials with made-up times; ``asked`` are the names of each."""

    def __init__(self, **changes: Any) -> None:
        self.asked: list[list[str]] = []
        self._changes = changes

    def trial(
        self, pack: Pack, kernel: KernelEntry, records: Sequence[Record], *rest: Any
    ) -> Trial:
        """10 us for the first, 9 % less for each later one."""
        if error := self._changes.pop("error", None):
            raise error
        names = [r.full_name for r in records]
        self.asked.append(names)
        failures = {n: r for n, r in self._changes.get("failures", {}).items() if n in names}
        times = {n: (10.0 * 0.91**i,) * 5 for i, n in enumerate(names) if n not in failures}
        complete = self._changes.get("complete", True)
        return Trial(samples=times, failures=failures, complete=complete)


def planner(
    measurements: Measurements | None = None,
    *,
    store: Path | None = None,
    foreign: int | None = 0,
    on_choice: Callable[[Choice], None] = lambda choice: None,
    tuning: Any = "first_use",
) -> Planner:
    """A planner that measures what it does not know."""
    return Planner(
        FACTS,
        Store(store),
        cast("Measurer", measurements or Measurements()),
        Surroundings(foreign_percent=lambda: foreign),
        PlannerOptions(tuning=tuning, on_choice=on_choice),
    )


def test_a_sole_survivor_is_not_timed() -> None:
    measured = Measurements()
    choice = planner(measured).choose(ref(A, REFUSED), AT, LAYOUT)
    assert (choice.record, choice.source, choice.settled) == (A, "only", True)
    assert [v.ok for v in choice.verdicts] == [True, False]
    assert measured.asked == []


def test_no_survivor_is_refused_with_every_reason() -> None:
    with pytest.raises(LaunchRefused, match="member d/software: shared 2 B > 1 B"):
        planner().choose(ref(REFUSED), AT, LAYOUT)
    with pytest.raises(LaunchRefused, match="no candidate for this device"):
        planner().choose(ref(named("a", "cpu:x86-64")), AT, LAYOUT)


@pytest.mark.parametrize(("tuning", "settled"), [("off", True), ("store", False)])
def test_without_measuring_the_first_in_family_order_is_the_default(
    tuning: str, settled: bool
) -> None:
    measured = Measurements()
    plan = planner(measured, tuning=tuning)
    choice = plan.choose(ref(A, B), AT, LAYOUT)
    assert (choice.record, choice.source) == (A, "default")
    assert (choice.settled, plan.settled) == (settled, settled)
    assert choice.note == (None if settled else "not stored")
    assert measured.asked == []


def test_nothing_to_compute_is_not_timed() -> None:
    measured = Measurements()
    empty = replace(AT, sizes=(0, 64, 64))
    assert planner(measured).choose(ref(A, B), empty, LAYOUT).source == "default"
    assert measured.asked == []


def test_a_timed_choice_is_made_once_and_told_once() -> None:
    measured, told = Measurements(), []
    plan, kernel = planner(measured, on_choice=told.append), ref(A, B)
    assert plan.known(kernel, AT, LAYOUT) is None
    choice = plan.choose(kernel, AT, LAYOUT)
    assert (choice.record, choice.source, choice.timer) == (B, "timed", "host")
    assert (choice.margin_permille, choice.tie) == (90, False)
    assert choice.medians == {A.full_name: 10.0, B.full_name: pytest.approx(9.1)}
    assert plan.choose(kernel, AT, LAYOUT) is choice
    assert plan.known(kernel, AT, LAYOUT) is choice
    assert told == [choice]
    assert measured.asked == [[A.full_name, B.full_name]]
    assert plan.settled


def test_a_choice_holds_for_operands_of_the_very_same_strides() -> None:
    """Of two calls that are aligned alike as a whole, another operand may be at fault."""
    wide = replace(A, needs=Needs(alignment={"a.0": 8}))
    plan = planner()
    kernel = ref(wide, B)
    aligned = {"a.0": 64, "b.0": 63, "c.0": 64}
    assert plan.choose(kernel, AT, "nn-a1-acc0", aligned).record == B
    pruned = plan.choose(kernel, AT, "nn-a1-acc0", {"a.0": 63, "b.0": 64, "c.0": 64})
    assert [v.ok for v in pruned.verdicts] == [False, True]
    assert plan.choose(kernel, AT, "nn-a1-acc0", aligned).verdicts[0].ok
    starts = {"a.0": 64, "b.0": 63, "c.0": 64, "a": 8}
    assert not plan.choose(kernel, AT, "nn-a1-acc0", starts).verdicts[0].ok


def test_a_split_is_measured_as_it_is_launched() -> None:
    """The measuring process is told the slices, and the choice says them to the launch."""
    told: list[Any] = []

    class Listening(Measurements):
        def trial(
            self, pack: Pack, kernel: KernelEntry, records: Sequence[Record], *rest: Any
        ) -> Trial:
            told.append(rest[-1])
            return super().trial(pack, kernel, records, *rest)

    assert RECORD.launch is not None
    split = SplitK(k_block=64, workspace="4 * M * N * splits", launch=RECORD.launch)
    plan = Planner(
        replace(FACTS, multiprocessors=16),
        Store(None),
        cast("Measurer", Listening()),
        Surroundings(foreign_percent=lambda: 0),
        PlannerOptions(tuning="first_use"),
    )
    at = Problem(dims=("M", "N", "K"), sizes=(256, 128, 512))
    choice = plan.choose(ref(replace(A, split=split), B), at, LAYOUT)
    assert told == [{A.full_name: 8}]
    assert {v.record.name: v.splits for v in choice.verdicts} == {A.name: 8, B.name: 1}
    assert choice.splits == (8 if choice.record.name == A.name else 1)


def test_threads_share_one_trial() -> None:
    measured = Measurements()
    plan, kernel = planner(measured), ref(A, B)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: plan.choose(kernel, AT, LAYOUT).record, range(64)))
    assert set(r.full_name for r in found) == {B.full_name}
    assert len(measured.asked) == 1


def test_the_store_remembers_across_sessions(tmp_path: Path) -> None:
    """The same margin and tie, nothing timed; another M of the same bucket is the same entry."""
    first = planner(store=tmp_path).choose(ref(A, B, C), AT, LAYOUT)
    measured = Measurements()
    again = planner(measured, store=tmp_path, tuning="store")
    for rows in (500, 400, 512):
        choice = again.choose(ref(A, B, C), replace(AT, sizes=(rows, 64, 64)), LAYOUT)
        assert (choice.record, choice.source, choice.settled) == (C, "store", True)
        assert (choice.margin_permille, choice.tie) == (first.margin_permille, first.tie)
        assert choice.medians == {}
    assert measured.asked == []
    (entry,) = entries(tmp_path)
    assert entry.choice.samples[C.full_name] == pytest.approx([10.0 * 0.91**2] * 5)


@pytest.mark.parametrize(
    "changed",
    [
        ref(A, named("b", code="new"), C),
        ref(A, B),
        ref(A, B, C, named("e")),
        ref(A, B, replace(C, refused=REFUSED.refused)),
    ],
    ids=["another code", "one less", "one more", "one refused"],
)
def test_another_build_is_not_believed(tmp_path: Path, changed: KernelRef) -> None:
    planner(store=tmp_path).choose(ref(A, B, C), AT, LAYOUT)
    measured = Measurements()
    assert planner(measured, store=tmp_path).choose(changed, AT, LAYOUT).source == "timed"
    assert len(measured.asked) == 1


def test_a_memory_only_store_lasts_as_long_as_its_planner() -> None:
    measured = Measurements()
    for _ in range(2):
        choice = planner(measured).choose(ref(A, B), AT, LAYOUT)
        assert (choice.settled, choice.note) == (True, None)
    assert len(measured.asked) == 2


def test_a_store_that_cannot_be_written_costs_one_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    plan = planner(store=tmp_path / "file")
    notes = [plan.choose(ref(A, B), replace(AT, sizes=(m, 64, 64)), LAYOUT).note for m in (1, 2, 3)]
    assert notes[0] is not None
    assert "choices stay in the memory of this process" in notes[0]
    assert notes[1:] == [None, None]
    assert plan.settled
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("complete", "foreign", "note"),
    [
        (False, 0, "budget of 1000 ms ran out: used, not stored"),
        (False, 90, "budget of 1000 ms ran out: used, not stored"),
        (True, 25, "other processes held 25 % of the device: used, not stored"),
        (True, 24, None),
        (True, None, None),
    ],
)
def test_what_is_used_but_not_stored(
    tmp_path: Path, complete: bool, foreign: int | None, note: str | None
) -> None:
    plan = planner(Measurements(complete=complete), store=tmp_path, foreign=foreign)
    choice = plan.choose(ref(A, B), AT, LAYOUT)
    assert (choice.record, choice.source, choice.note) == (B, "timed", note)
    assert choice.settled == plan.settled == (note is None)
    assert len(entries(tmp_path)) == (1 if note is None else 0)


def test_a_candidate_that_failed_is_not_tried_again() -> None:
    measured = Measurements(failures={B.full_name: "trapped with signal 11"})
    plan = planner(measured)
    for rows in (1, 2):
        choice = plan.choose(ref(A, B, C), replace(AT, sizes=(rows, 64, 64)), LAYOUT)
        assert choice.record == C
        assert choice.failures == {B.full_name: "trapped with signal 11"}
    assert [B.full_name in asked for asked in measured.asked] == [True, False]


def test_all_failed() -> None:
    """At first a failed device, then nothing that could run, each time with every reason."""
    reasons = {A.full_name: "hung for 60 s", B.full_name: "wrong in 3 elements"}
    plan = planner(Measurements(failures=reasons))
    with pytest.raises(DeviceError, match=r"every candidate failed: .*hung for 60 s.*wrong in 3"):
        plan.choose(ref(A, B), AT, LAYOUT)
    with pytest.raises(LaunchRefused, match=r"a/software: failed, hung for 60 s.*wrong in 3"):
        plan.choose(ref(A, B), AT, LAYOUT)


def test_an_override_wins_over_everything(tmp_path: Path) -> None:
    """Over the rules and the store too, until it is lifted; unknown names change nothing."""
    kernel, plan = ref(A, B, REFUSED), planner(store=tmp_path)
    assert plan.choose(kernel, AT, LAYOUT).record == B
    for name in ("a", "a/software", "a/software@vulkan"):
        plan.override(kernel, name)
        choice = plan.choose(kernel, AT, LAYOUT)
        assert (choice.record, choice.source, choice.settled) == (A, "override", True)
    plan.override(kernel, "d")
    assert plan.choose(kernel, AT, LAYOUT).record == REFUSED
    for name in ("e", "a/wgmma", "", "A"):
        with pytest.raises(PackError, match=r"has no candidate .*, has: a/software, b/software"):
            plan.override(kernel, name)
    assert plan.choose(kernel, AT, LAYOUT).record == REFUSED
    plan.override(kernel, None)
    assert plan.choose(kernel, AT, LAYOUT).source == "store"


def test_an_override_of_a_candidate_without_code_is_refused() -> None:
    with pytest.raises(PackError, match="has no candidate 'b'"):
        planner().override(ref(A, replace(B, files=None)), "b")


def test_the_same_member_for_two_targets_is_two_candidates(tmp_path: Path) -> None:
    """Both are timed, and the store finds the one that won."""
    kernel = ref(A, named("a", "vulkan:other", code="other"))
    measured = Measurements()
    first = planner(measured, store=tmp_path).choose(kernel, AT, LAYOUT)
    assert measured.asked == [["a/software@vulkan", "a/software@vulkan:other"]]
    assert len(first.medians) == 2
    again = planner(store=tmp_path, tuning="store").choose(kernel, AT, LAYOUT)
    assert first.record == again.record == kernel.entry.members[1]


def test_a_device_that_fails_leaves_the_planner_usable() -> None:
    measured = Measurements(error=DeviceError("cannot start the measuring process"))
    plan = planner(measured)
    with pytest.raises(DeviceError, match="cannot start"):
        plan.choose(ref(A, B), AT, LAYOUT)
    assert plan.choose(ref(A, B), AT, LAYOUT).source == "timed"
