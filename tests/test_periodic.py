"""What a proof expects at large sizes, by the period of its operands and by multiplying them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dialects.manifest import Argument, KernelEntry
from dialects.member import Problem
from dialects.operands import Contraction, EpilogueStep, Operand
from lowering.builder import dense
from records import KERNEL
from runtime import oracle
from runtime.device import Device
from runtime.oracle import Oracle
from runtime.periodic import Periodic
from runtime.proof import PATTERN, make_case


@pytest.mark.parametrize("batches", [None, 3])
@pytest.mark.parametrize("length", [7, 8191])
def test_a_product_by_the_period(length: int, batches: int | None) -> None:
    """As many rows, sums and results as divide nothing."""
    rng = np.random.default_rng(length)
    pattern = rng.integers(-2, 3, length).astype(np.float64)
    inner, outer = 530, 97
    for stride, step in ((outer, 1), (1, inner)):
        matrix = Periodic(
            pattern=pattern,
            stride=stride,
            step=step,
            count=outer,
            batch_stride=inner * outer,
            batches=batches,
        )
        weights = rng.integers(-512, 513, (*([batches] if batches else []), 5, inner))
        at = np.arange(inner)[:, None] * stride + np.arange(outer) * step
        whole = [pattern[(at + b * inner * outer) % length] for b in range(batches or 1)]
        expected = np.matmul(weights, np.stack(whole) if batches else whole[0])
        found = matrix.times(weights.astype(np.float64))
        assert found is not None
        assert np.array_equal(found, expected)


def test_sums_that_a_transform_could_round_are_not_believed() -> None:
    pattern = np.random.default_rng(1).integers(-2, 3, 8191).astype(np.float64)
    matrix = Periodic(pattern=pattern, stride=1, step=5, count=5)
    assert matrix.times(np.full((1, 5), 1e6)) is not None
    assert matrix.times(np.random.default_rng(2).integers(0, 2**52, (1, 5)).astype(float)) is None


BIAS = Operand(name="bias", type="f32", dims=("N",))
PRODUCTS = {
    "f16": dense("f16"),
    "transposed": dense("f32", transposed_b=True),
    "batch": dense("f16", batch=True, transposed_b=True),
    "integers": dense("i8", "i32"),
    "unsigned": dense("u8", "i32", transposed_b=True),
    "accumulate": dense("f32", accumulate=True),
    "epilogue": dense(
        "f16",
        extras=(BIAS,),
        epilogue=(EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0)),
    ),
    "narrow": dense("f16", "f16"),
}


def kernel_of(contraction: Contraction) -> KernelEntry:
    """A kernel with these operands."""
    modes: dict[str, Any] = {contraction.c.name: "readwrite" if contraction.accumulate else "write"}
    return replace(
        KERNEL,
        dims=contraction.dims,
        args=tuple(
            Argument(name=o.name, type=o.type, dims=o.dims, mode=modes.get(o.name, "read"))
            for o in contraction.operands
        ),
        contraction=contraction,
    )


@pytest.mark.parametrize("name", PRODUCTS)
def test_both_ways_expect_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = kernel_of(PRODUCTS[name])
    sizes = (*((3,) if "batch" in name else ()), 150, 203, 331)
    case = make_case(Device("local-sync"), entry, Problem(dims=entry.dims, sizes=sizes))
    monkeypatch.setattr(oracle, "LEAST_BY_PERIODS", 0)
    asked: list[Periodic] = []
    monkeypatch.setattr(oracle, "Periodic", lambda **f: asked.append(Periodic(**f)) or asked[-1])
    for launches in (1, 3) if name == "accumulate" else (1,):
        one = Oracle(entry.contraction, case.values, period=PATTERN, launches=launches)
        other = Oracle(entry.contraction, case.values, launches=launches)
        for (_, found), (_, expected) in (
            (one._rows, other._rows),
            (one._columns, other._columns),
            (one._projected, other._projected),
        ):
            assert found.dtype == expected.dtype
            assert np.array_equal(found, expected)
    assert asked


def test_only_operands_of_a_proof_have_a_period() -> None:
    """Normal floats repeat nothing, and a case of them has no one right answer."""
    entry = kernel_of(PRODUCTS["f16"])
    at = Problem(dims=entry.dims, sizes=(64, 200, 100))
    device = Device("local-sync")
    assert make_case(device, entry, at).oracle._period == PATTERN
    assert make_case(device, entry, at, integers=False).oracle._period is None
