"""What a proof sees beyond wrong elements: accesses outside, and the program that is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from dialects.manifest import KernelEntry, Needs
from dialects.member import Problem
from dialects.operands import Contraction, EpilogueStep
from lowering.builder import dense
from records import KERNEL, RECORD
from runtime.arrays import host_memory, span_bytes
from runtime.device import Device
from runtime.execute import Executable
from runtime.proof import (
    GUARD,
    Case,
    case_again,
    make_case,
    operands_changed,
    padded_layouts,
    prove,
    repeatable,
)

AT = Problem(dims=("M", "N", "K"), sizes=(5, 7, 9))
Buffers = Sequence[Any]
Launch = Callable[[Case, list[np.ndarray]], None]


@pytest.fixture(scope="module")
def device() -> Device:
    return Device("local-sync")


class Candidate:
    """A candidate in numpy; ``launch`` gets a view of every operand and of the result."""

    record = RECORD

    def __init__(self, case: Case, launch: Launch, repeated: int | None = None) -> None:
        self._case, self._launch, self._repeated = case, launch, repeated

    def run(self, buffers: Buffers, constants: Sequence[int]) -> None:
        views = []
        for buffer, layout in zip(buffers, self._case.layouts, strict=True):
            flat = host_memory(buffer).view(np.float32)
            strides = [4 * s for s in (*layout.strides, 1)]
            views.append(np.lib.stride_tricks.as_strided(flat, layout.shape, strides))
        self._launch(self._case, views)

    def repeat(self, buffers: Buffers, constants: Sequence[int], count: int) -> None:
        for _ in range(count if self._repeated is None else self._repeated):
            self.run(buffers, constants)


def case_of(device: Device, contraction: Contraction, *, padded: bool) -> Case:
    mode = "readwrite" if contraction.accumulate else "write"
    args = (*KERNEL.args[:2], replace(KERNEL.args[2], mode=mode))
    args = tuple(replace(a, type="f32") for a in args)
    kernel = replace(KERNEL, args=args, contraction=contraction)
    layouts = padded_layouts(kernel, RECORD, AT) if padded else None
    return make_case(device, kernel, AT, layouts=layouts)


def proven(
    case: Case, device: Device, launch: Launch, launches: int = 0, **more: Any
) -> str | None:
    candidate = cast("Executable", Candidate(case, launch, **more))
    return prove(device, candidate, case, whole=True, launches=launches)


def test_the_same_operands_in_further_buffers(device: Device) -> None:
    """Of their own: what is written to one set stays out of the others."""
    first = case_of(device, dense("f32", "f32"), padded=True)
    again = case_again(device, first)
    assert again.host is first.host
    assert operands_changed(device, again) is None
    assert proven(again, device, right) is None
    for mine, other in zip(again.buffers(None), first.buffers(None), strict=True):
        host_memory(mine)[...] = 1
        assert not np.all(host_memory(other) == 1)
    assert operands_changed(device, first) is None
    assert operands_changed(device, again) == "operand 'a' was changed"


def right(case: Case, views: list[np.ndarray]) -> None:
    a, b, c = views
    c[...] = a @ b


def adding(case: Case, views: list[np.ndarray]) -> None:
    a, b, c = views
    c += a @ b


def beyond(views: list[np.ndarray]) -> np.ndarray:
    """The result with one column more than it has."""
    c = views[2]
    return np.lib.stride_tricks.as_strided(c, (c.shape[0], c.shape[1] + 1), c.strides)


@pytest.mark.parametrize("padded", [True, False])
def test_a_right_candidate_is_proven_by_calls_and_by_the_timed_program(
    device: Device, padded: bool
) -> None:
    case = case_of(device, dense("f32"), padded=padded)
    for launches in (0, 1, 3):
        assert proven(case, device, right, launches) is None


def test_rows_are_padded_and_the_padding_is_poison(device: Device) -> None:
    case = case_of(device, dense("f32"), padded=True)
    for layout, buffer in zip(case.layouts, case.inputs, strict=False):
        assert layout.strides[0] == layout.shape[1] + 6
        memory = device.download(buffer, (span_bytes(layout) + GUARD,), np.dtype(np.uint8))
        poisoned = np.isnan(memory.view(np.float32)).sum()
        assert poisoned == GUARD // 4 + 6 * (layout.shape[0] - 1)


@pytest.mark.parametrize(
    ("needs", "strides"),
    [({}, (15, 13, 13)), ({"a.0": 8, "c.0": 4}, (16, 13, 16)), ({"b.0": 64}, (15, 64, 13))],
)
def test_padding_keeps_what_the_copies_need(needs: dict[str, int], strides: tuple[int]) -> None:
    record = replace(RECORD, needs=Needs(alignment=needs))
    assert (
        tuple(s for layout in padded_layouts(KERNEL, record, AT) for s in layout.strides) == strides
    )
    contiguous = replace(RECORD, needs=Needs(contiguous=True))
    assert [x.strides for x in padded_layouts(KERNEL, contiguous, AT)] == [(9,), (7,), (7,)]


def test_a_write_into_the_padding_is_seen(device: Device) -> None:
    def wide(case: Case, views: list[np.ndarray]) -> None:
        right(case, views)
        beyond(views)[1, -1] = 0.0

    case = case_of(device, dense("f32"), padded=True)
    assert proven(case, device, wide) == "wrote 4 bytes outside of its result"


def test_a_write_behind_the_result_is_seen(device: Device) -> None:
    """With contiguous rows, too, as at the size of the problem."""

    def long(case: Case, views: list[np.ndarray]) -> None:
        right(case, views)
        beyond(views)[-1, -1] = 0.0

    for padded in (True, False):
        case = case_of(device, dense("f32"), padded=padded)
        assert proven(case, device, long) == "wrote 4 bytes outside of its result"


def test_a_read_of_the_padding_is_seen(device: Device) -> None:
    """It multiplies what it read by nothing, which poison survives."""

    def reads(case: Case, views: list[np.ndarray]) -> None:
        right(case, views)
        a = views[0]
        wide = np.lib.stride_tricks.as_strided(a, (a.shape[0], a.shape[1] + 1), a.strides)
        views[2][0, 0] += wide[0, -1] * 0

    case = case_of(device, dense("f32"), padded=True)
    assert proven(case, device, reads) == "wrong in 1 of 35 elements"


def test_a_changed_padding_of_an_operand_is_seen(device: Device) -> None:
    def scribbles(case: Case, views: list[np.ndarray]) -> None:
        right(case, views)
        b = views[1]
        np.lib.stride_tricks.as_strided(b, (b.shape[0], b.shape[1] + 1), b.strides)[0, -1] = 1.0

    for padded in (True, False):
        case = case_of(device, dense("f32"), padded=padded)
        assert proven(case, device, scribbles) == "operand 'b' was changed"
        assert operands_changed(device, case) == "operand 'b' was changed"


def test_a_timed_program_that_skips_launches_is_seen(device: Device) -> None:
    """Where each launch adds, their number shows; a rate that nothing could reach starts here."""
    case = case_of(device, dense("f32", accumulate=True), padded=False)
    assert proven(case, device, adding, 3) is None
    wrong = proven(case, device, adding, 3, repeated=2)
    assert wrong is not None
    assert wrong.endswith("elements after 3 launches in one invocation")
    case = case_of(device, dense("f32"), padded=False)
    wrong = proven(case, device, right, 3, repeated=0)
    assert wrong == "wrong in 35 of 35 elements after 3 launches in one invocation"


@pytest.mark.parametrize(
    ("contraction", "known"),
    [
        (dense("f32"), True),
        (dense("f32", accumulate=True), True),
        (dense("f32", epilogue=(EpilogueStep(op="max", constant=0.0),)), True),
        (dense("f32", accumulate=True, epilogue=(EpilogueStep(op="max", constant=0.0),)), False),
    ],
)
def test_several_launches_on_one_output(contraction: Contraction, known: bool) -> None:
    case = cast("Case", type("C", (), {"kernel": replace(KERNEL, contraction=contraction)}))
    assert repeatable(case) == known
    assert isinstance(KERNEL, KernelEntry)
