"""Every candidate of the packs given with ``--packs``, on real devices.

python3 -m pytest tests --device cuda --device vulkan --packs DIR
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from case_counts import count_cases
from device_checks import depends_on_surroundings, is_float, spreads, wrong, wrong_when_strided
from device_packs import (
    SHAPE,
    Candidate,
    expected_of,
    host_operands,
    padded_layouts,
    problems,
    runs,
    sized,
    strides_by_name,
)
from dialects.facts import DeviceFacts
from runtime import Session
from runtime.arrays import dense_layouts
from runtime.executors import ExecutorName, load, open_device
from runtime.facts import read_facts
from runtime.pack import Pack
from windows import Windows

Count = Callable[[list[str | None]], None]


class Opened:
    """The devices of a module, each opened when it is first asked for."""

    def __init__(self, module: bytes) -> None:
        self._module = module
        self._windows: dict[tuple[str, str], Windows] = {}
        self._facts: dict[str, DeviceFacts] = {}

    def windows(self, kind: str, executor: ExecutorName) -> Windows:
        """Buffers of a device as an executor opens it."""
        key = (kind, executor)
        if key not in self._windows:
            self._windows[key] = Windows(open_device(kind, executor), self._module)
        return self._windows[key]

    def facts(self, kind: str) -> DeviceFacts:
        """What its driver reports."""
        if kind not in self._facts:
            self._facts[kind] = read_facts(kind)
        return self._facts[kind]


@pytest.fixture(scope="module")
def opened(windows_module: bytes) -> Opened:
    """The devices that tests ask for."""
    return Opened(windows_module)


@pytest.fixture
def windows(opened: Opened, given_device: str, executor: ExecutorName) -> Windows:
    """The device of this test."""
    return opened.windows(given_device, executor)


@pytest.fixture
def facts(opened: Opened, given_device: str) -> DeviceFacts:
    """Facts of the device of this test."""
    return opened.facts(given_device)


@pytest.fixture
def loaded(windows: Windows, given_candidate: Candidate) -> Any:
    """The candidate of this test, on its device."""
    kernel, record = given_candidate.kernel.kernel, given_candidate.record
    return load(windows.device, given_candidate.pack, kernel, record)


@pytest.fixture
def count(
    record_property: Any, given_device: str, executor: str, given_candidate: Candidate
) -> Count:
    """Counts what the cases of this test found."""
    device = f"{given_device}, {executor}" if given_device == "cuda" else given_device
    return lambda found: count_cases(record_property, device, given_candidate.id, found)


def test_a_candidate_is_exact_at_awkward_sizes(
    given_candidate: Candidate, windows: Windows, facts: DeviceFacts, loaded: Any, count: Count
) -> None:
    """Small integers on a poisoned output: tiles cut on every side, no K, all elements compared."""
    found = []
    for at in problems(given_candidate, facts):
        found.append("; ".join(wrong(windows.device, loaded, given_candidate.kernel, [at])))
    count(found)
    assert found
    assert [text for text in found if text] == []


def test_a_candidate_leaves_gaps_between_rows_alone(
    given_candidate: Candidate, windows: Windows, facts: DeviceFacts, loaded: Any, count: Count
) -> None:
    kernel, found = given_candidate.kernel, []
    for at in problems(given_candidate, facts):
        strides = strides_by_name(kernel, padded_layouts(kernel, at))
        if 0 not in at.sizes and runs(given_candidate, facts, at, strides):
            found.append(wrong_when_strided(windows, loaded, kernel, at))
    count(found)
    assert found
    assert [text for text in found if text] == []


def test_what_lies_around_operands_changes_nothing(
    given_candidate: Candidate, windows: Windows, facts: DeviceFacts, loaded: Any
) -> None:
    """NaN before the first element, behind the last and, where rows may have gaps, between them."""
    kernel, found = given_candidate.kernel, []
    for at in problems(given_candidate, facts):
        if 0 in at.sizes:
            continue
        padded = padded_layouts(kernel, at)
        gaps = runs(given_candidate, facts, at, strides_by_name(kernel, padded))
        for layouts in (dense_layouts(kernel, at), *([padded] if gaps else [])):
            found.append(depends_on_surroundings(windows, loaded, kernel, at, layouts))
    assert found
    assert [text for text in found if text] == []


def test_what_is_not_finite_stays_in_its_row_or_column(
    given_candidate: Candidate, windows: Windows, facts: DeviceFacts, loaded: Any
) -> None:
    kernel = given_candidate.kernel
    if not is_float(kernel):
        pytest.skip("integers are finite")
    at = [p for p in problems(given_candidate, facts) if 0 not in p.sizes]
    assert at
    assert [text for p in at for text in spreads(windows, loaded, kernel, p)] == []


def test_host_arrays_and_zero_sizes(
    given_pack: Pack, given_device: str, executor: ExecutorName
) -> None:
    """Through the session: no row, no column, or no K."""
    with Session(given_pack.path, device=given_device, executor=executor, tuning="off") as session:
        for name in session.kernels:
            kernel = session.reference(name).entry
            for mnk in (SHAPE, (37, 130, 15), (0, 8, 8), (8, 0, 8), (8, 8, 0)):
                if mnk[2] % 32 and any(a.source for a in kernel.args):
                    continue  # blocks are whole
                operands = host_operands(kernel, sized(kernel.dims, mnk))
                expected = expected_of(kernel, operands)
                assert np.array_equal(session[name](*[o.copy() for o in operands]), expected), mnk
