"""Every gate fires by name on what it is for, stays quiet on what it is not for, and matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dialects.errors import CompileError, Error, Failures
from gate_cases import CUDA, FIRES, OPEN, QUIET, REFUSED, group, hold, subject, without_code
from gate_cases import VULKAN as VK
from lowering.gate_table import GATES
from lowering.gates import Gate, Group, apply_gates

NAMES = [g.name for g in GATES]
FIRING = [pytest.param(n, g, id=f"{n}-{i}") for n in FIRES for i, g in enumerate(FIRES[n])]
PASSING = [pytest.param(n, g, id=f"{n}-{i}") for n in QUIET for i, g in enumerate(QUIET[n])]


def refusals(case: Group, gates: Sequence[Gate] = GATES) -> list[Error]:
    """What the gates raise about a group."""
    try:
        apply_gates([case], gates, warn=False)
    except Failures as failures:
        return failures.errors
    except Error as error:
        return [error]
    return []


def fires(name: str, case: Group, gates: Sequence[Gate] = GATES) -> bool:
    """Whether a gate refuses a group by its name; a failed compile keeps the compiler's words."""
    found = refusals(case, gates)
    return any(
        e.message.startswith(f"gate {name}: ") or (name == "code" and e is REFUSED) for e in found
    )


def test_every_gate_has_cases() -> None:
    assert {*FIRES} == {*QUIET} == {*NAMES}
    assert len(NAMES) == len(set(NAMES))
    assert NAMES[-1] == "stale"


@pytest.mark.parametrize(("name", "case"), FIRING)
def test_gate_fires(name: str, case: Group) -> None:
    """And no other one does, so that it is this one that was tested."""
    assert fires(name, case)
    others = [n for n in NAMES if n != name and fires(n, case)]
    assert others in ([], ["spill"])  # a stale hold beside a spill that it does not cover


@pytest.mark.parametrize(("name", "case"), PASSING)
def test_gate_does_not_fire(name: str, case: Group) -> None:
    """Not this one, and no other: the case is right in every respect."""
    assert [str(e) for e in refusals(case)] == []


@pytest.mark.parametrize(("name", "case"), FIRING)
def test_without_the_gate_its_test_would_fail(name: str, case: Group) -> None:
    """The mutation check: off the table, or with a check that finds nothing, nothing fires."""
    removed = [g for g in GATES if g.name != name]
    blind = [replace(g, check=lambda *_: []) if g.name == name else g for g in GATES]
    assert fires(name, case)
    assert not fires(name, case, removed)
    assert not fires(name, case, blind)


def test_all_offenders_are_listed_and_then_it_fails_once() -> None:
    spilling = subject(footprint={"spill_bytes": 8})
    other = subject(VK, record={"groups": (replace(subject().record.groups[0], count=3),)})
    with pytest.raises(Failures) as caught:
        apply_gates([group(spilling, other, without_code(VK, REFUSED))], GATES, warn=False)
    assert [str(e).partition(": ")[2].partition(":")[0] for e in caught.value.errors] == [
        "the compiler failed",
        "gate spill",
        "gate tier",
    ]
    assert [f["kind"] for f in caught.value.failures()] == ["compile", "gate", "gate"]


def test_warnings_keep_the_records() -> None:
    """A sweep goes on: every failure is a note, and the status of its record."""
    spilling, stale = subject(footprint={"spill_bytes": 8}), hold("unbounded")
    judged = apply_gates([group(spilling, subject(), holds=(stale,))], GATES, warn=True)
    first, second = judged.records
    assert [(g.gate, g.status) for g in first.gates if g.status != "ok"] == [("spill", "warned")]
    assert {g.status for g in second.gates} == {"ok"}
    assert ["gate spill" in judged.notes[0], "STALE" in judged.notes[1]] == [True, True]
    assert len(judged.notes) == 2


def test_a_held_gate_is_a_note_with_the_plan_item() -> None:
    spilling = subject(footprint={"spill_bytes": 8})
    judged = apply_gates([group(spilling, holds=(hold("spills"),))], GATES, warn=False)
    (record,) = judged.records
    (held,) = [g for g in record.gates if g.status == "held"]
    assert (held.gate, held.message) == (
        "spill",
        "gate spill: spills 8 B [tracked: plan item 7]",
    )
    assert judged.notes == (f"gemm {record.name} cuda:sm_90a: {held.message}",)


@pytest.mark.parametrize(
    "useless",
    [
        hold("spills", tracked=""),
        hold("unlowered"),
        hold("spills", backends=("rocm",)),
        hold("spills", members=("64x64x16",)),
    ],
)
def test_a_hold_that_does_not_cover_the_cause_holds_nothing(useless: object) -> None:
    """Without ``tracked``, of another cause, another backend, another member."""
    assert fires("spill", group(subject(footprint={"spill_bytes": 8}), holds=(useless,)))  # type: ignore[arg-type]


def test_an_untracked_hold_is_noted() -> None:
    judged = apply_gates([group(subject(), holds=(hold("spills", tracked=""),))], GATES, warn=False)
    assert judged.notes == ("xpu.spills of kernel 'gemm' lacks 'tracked' and holds nothing",)


def test_a_hold_over_several_targets_is_needed_once() -> None:
    """The spill of one target keeps the hold, although the other has none."""
    spilling, fine = subject(footprint={"spill_bytes": 8}), subject(VK)
    assert refusals(group(spilling, fine, holds=(hold("spills"),))) == []


def test_a_hold_of_one_member_does_not_excuse_a_kernel_without_code() -> None:
    """It covers the record that failed; the other one was refused, and both are all there is."""
    failing = without_code(VK, REFUSED)
    other = replace(failing, failure=CompileError("another"))
    member = failing.record.identity.member
    changed = replace(other.record.identity, member="64x64x16")
    other = replace(other, record=replace(other.record, identity=changed))
    found = refusals(group(failing, other, holds=(hold("unlowered", members=(member,)),)))
    assert [e.message for e in found] == ["another"]


def test_the_unbounded_gate_says_where() -> None:
    (error,) = refusals(group(subject(launches=OPEN)))
    assert error.message == (
        f"gate unbounded: kernel 'gemm' on {CUDA.name}: the block is no constant at 1 of 2 launch "
        "sites (host.mlir:3:5), declare xpu.occupancy {max_threads = ...}"
    )


def test_the_aligned_gate_says_which_way() -> None:
    emitted = {"wgmma.fence.sync.aligned": 2, "setmaxnreg.dec.sync.aligned": 1}
    found = {"wgmma.fence.sync.aligned": 4}
    (error,) = refusals(group(subject(aligned=emitted, reading={"aligned": found})))
    assert "lost setmaxnreg.dec.sync.aligned: 1 emitted, 0 in the artifact" in error.message
    assert "duplicated wgmma.fence.sync.aligned: 2 emitted, 4 in the artifact" in error.message
