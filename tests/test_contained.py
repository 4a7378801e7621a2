"""NaN in and around operands: candidates for this machine, and codes that the checks catch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from case_counts import count_cases, summary_lines
from device_checks import depends_on_surroundings, is_float, spreads, wrong, wrong_when_strided
from device_packs import (
    find_candidates,
    padded_layouts,
    problems,
    runs,
    strides_by_name,
)
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem
from packs import SAMPLES, Packs, kernel_of
from runtime.arrays import dense_layouts, host_memory
from runtime.device import backend_of
from runtime.execute import Executable
from runtime.executors import load, open_device
from runtime.facts import read_facts
from runtime.pack import open_pack
from windows import Windows

SIZES = ((37, 130, 15), (8, 5, 1), (1, 1, 1))
DEVICES = ["local-task", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]


def some_problems(at: list[Problem]) -> list[Problem]:
    """Those of few elements, and the last: the candidate's own."""
    few = [p for p in at if p.sizes[-3:] in SIZES]
    return few + at[-1:]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", SAMPLES)
def test_candidates_of_this_machine(
    packs: Packs, windows_module: bytes, device: str, kernel: str
) -> None:
    windows = Windows(open_device(device), windows_module)
    facts = read_facts(device)
    found = find_candidates([open_pack(packs.path(kernel))], backend_of(device))
    assert found
    for candidate in found:
        entry, record = candidate.kernel, candidate.record
        code = load(windows.device, candidate.pack, entry.kernel, record)
        for at in some_problems(problems(candidate, facts)):
            padded = padded_layouts(entry, at)
            layouts = [dense_layouts(entry, at)]
            if runs(candidate, facts, at, strides_by_name(entry, padded)):
                layouts.append(tuple(padded))
                assert wrong_when_strided(windows, code, entry, at) is None
            for each in layouts:
                assert depends_on_surroundings(windows, code, entry, at, each) is None
            assert is_float(entry)
            assert spreads(windows, code, entry, at) == []


class Faulty:
    """A product in numpy on the host's memory, and what a test makes it do besides."""

    def __init__(self, record: Record, spoil: Callable[..., None]) -> None:
        self.record, self._spoil = record, spoil

    def run(self, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        m, n, k, lda, ldb, ldc = constants
        shapes = ((m, k, lda), (k, n, ldb), (m, n, ldc))
        a, b, c = (
            np.lib.stride_tricks.as_strided(
                host_memory(buffer).view(np.float32), (rows, columns), (4 * stride, 4)
            )
            for buffer, (rows, columns, stride) in zip(buffers, shapes, strict=True)
        )
        with np.errstate(all="ignore"):
            c[...] = a @ b
            self._spoil(a, b, c)


def nothing(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Leave it right."""


def at_address(array: np.ndarray, elements: int) -> np.ndarray:
    """The element so many after the first of an array, within its memory or not."""
    return np.lib.stride_tricks.as_strided(
        array, (abs(elements) + 1,), (4 if elements > 0 else -4,)
    )[-1:]


def reads_behind(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Multiplies what lies behind A with zero, as a tile that is cut along K might."""
    rows, columns = a.shape
    c[-1, -1] += 0 * at_address(a, rows * columns)[0]


def reads_before(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """As a tile that starts an element too early."""
    c[0, 0] += 0 * at_address(b, -1)[0]


def writes_behind(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Stores one element too many."""
    rows, columns = c.shape
    at_address(c, rows * columns)[0] = 1


def reads_the_next_row(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Multiplies the next row's first element with zero."""
    c[:-1] += 0 * a[1:, :1]


def reads_the_next_column(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """Multiplies the last column's last element with zero, in the column before."""
    c[:, -2] += 0 * b[-1, -1]


def loses_nan(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """As a maximum that prefers numbers."""
    c[np.isnan(c)] = 0


@pytest.fixture(scope="module")
def host(windows_module: bytes) -> Windows:
    """The processor, whose memory a faulty code can reach."""
    return Windows(open_device("local-sync"), windows_module)


@pytest.fixture
def entry(packs: Packs) -> KernelEntry:
    """A product of f32."""
    return kernel_of(packs.path("matmul_f32"))


AT = Problem(dims=("M", "N", "K"), sizes=(7, 5, 3))


def faulty(entry: KernelEntry, spoil: Callable[..., None]) -> Executable:
    """A code that looks as a loaded one does."""
    record = next(r for r in entry.members if not r.workspace)
    code: Any = Faulty(record, spoil)
    return code


def test_a_right_code_passes(host: Windows, entry: KernelEntry) -> None:
    code = faulty(entry, nothing)
    assert spreads(host, code, entry, AT) == []
    assert depends_on_surroundings(host, code, entry, AT, dense_layouts(entry, AT)) is None
    assert depends_on_surroundings(host, code, entry, AT, padded_layouts(entry, AT)) is None
    assert wrong_when_strided(host, code, entry, AT) is None
    assert wrong(host.device, code, entry, [AT]) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (reads_behind, "depends on what lies around"),
        (reads_before, "depends on what lies around"),
        (writes_behind, "bytes outside"),
    ],
)
def test_a_code_that_leaves_its_operands(
    host: Windows, entry: KernelEntry, spoil: Callable[..., None], message: str
) -> None:
    code = faulty(entry, spoil)
    reason = depends_on_surroundings(host, code, entry, AT, dense_layouts(entry, AT))
    assert reason is not None
    assert message in reason


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (reads_the_next_row, "row 6 of a"),
        (reads_the_next_column, "column 4 of b"),
        (loses_nan, "row 0 of a"),
    ],
)
def test_a_code_that_spreads_or_loses_a_nan(
    host: Windows, entry: KernelEntry, spoil: Callable[..., None], where: str
) -> None:
    """None of them shows on finite operands."""
    code = faulty(entry, spoil)
    assert wrong(host.device, code, entry, [AT]) == []
    found = spreads(host, code, entry, AT)
    assert any(f"NaN in {where}" in text for text in found)


def test_cases_are_counted_by_device() -> None:
    """Over the tests that ran, each candidate once; what was wrong is told."""

    def report(when: str, *cases: tuple[str, str, list[str | None]]) -> Any:
        properties: list[tuple[str, object]] = []
        for case in cases:
            count_cases(lambda key, value: properties.append((key, value)), *case)
        return SimpleNamespace(when=when, user_properties=[*properties, ("other", 7)])

    right = ("vulkan", "a", [None, "", None])
    reports = [
        report("call", right),
        report("call", ("vulkan", "a", [None])),
        report("call", ("cuda, direct", "b", [None, "37x1x1: wrong", None])),
        report("teardown", right),
    ]
    assert summary_lines(reports) == [
        "cuda, direct: 2 of 3 cases exact over 1 candidates",
        "vulkan: 4 cases exact over 1 candidates",
    ]
    assert summary_lines([report("call")]) == []
