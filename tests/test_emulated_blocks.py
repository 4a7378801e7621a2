"""q8_0 operands of the bodies that stage through registers, lane by lane from their IR: exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dialects.member import Tile
from dialects.operands import EpilogueStep, Operand
from emulated_launch import case_of, check, transposed
from facts_files import FOLDER
from lowering.builder import dense
from runtime.blocks import pack_q8_0

LISTED = str(FOLDER / "vulkan-h200.json")
RDNA = Tile(m=32, n=32, k=32, waves_m=2, waves_n=1)
CDNA = Tile(m=64, n=32, k=32, waves_m=2, waves_n=1)
Q8 = dense("f16", transposed_b=True, source_b="q8_0")
BIAS = Operand(name="bias", type="f32", dims=("N",))
RELU = (EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0))
SHAPES = ((1, 1, 32), (37, 15, 96), (33, 70, 64), (3, 5, 0))
BODIES = [
    ("wmma", "rocm:gfx1100", RDNA),
    ("wmma", "rocm:gfx1201", RDNA),
    ("mfma", "rocm:gfx942", CDNA),
    ("coop_matrix", LISTED, RDNA),
]
KERNELS = {
    "plain": Q8,
    "bf16": dense("bf16", transposed_b=True, source_b="q8_0"),
    "batch": dense("f16", batch=True, transposed_b=True, source_b="q8_0"),
    "turned_a": transposed(Q8, a=True),
    "epilogue": replace(Q8, extras=(BIAS,), epilogue=RELU, accumulate=True),
    "of_a": replace(Q8, a=replace(Q8.a, source="q8_0"), b=replace(Q8.b, source=None)),
    "of_both": replace(Q8, a=replace(Q8.a, source="q8_0")),
}


@pytest.mark.parametrize("narrow", ["", "_narrow"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("body", "target", "tile"), BODIES)
def test_every_kernel(body: str, target: str, tile: Tile, kernel: str, narrow: str) -> None:
    """Blocks at odd and even words, with poison between rows and without."""
    if (body, kernel) == ("coop_matrix", "bf16"):
        pytest.skip("gpu.mma_matrix has no bf16")
    case = case_of(body + narrow, target, KERNELS[kernel], tile)
    batch = (2,) if case.contraction.batch else ()
    # M in units that a turned A is copied in
    multiple = (case.needs.alignment or {}).get("M", 1)
    for m, n, k in SHAPES:
        sizes = (*batch, -(-m // multiple) * multiple, n, k)
        for slack in (0, 8) if k else (0,):
            check(case, sizes, slack=slack)


@pytest.mark.parametrize(
    ("body", "target", "tile"),
    [
        ("wmma", "rocm:gfx1100", Tile(m=16, n=16, k=16, waves_m=1, waves_n=1)),
        ("wmma", "rocm:gfx1151", Tile(m=64, n=64, k=32, waves_m=2, waves_n=2)),
        ("wmma", "rocm:gfx1201", Tile(m=48, n=64, k=48, waves_m=3, waves_n=2)),
        ("mfma", "rocm:gfx942", Tile(m=16, n=64, k=64, waves_m=1, waves_n=4)),
        ("mfma", "rocm:gfx942", Tile(m=128, n=128, k=32, waves_m=2, waves_n=4)),
        ("mfma", "rocm:gfx950", Tile(m=64, n=96, k=64, waves_m=2, waves_n=3)),
    ],
)
def test_tiles(body: str, target: str, tile: Tile) -> None:
    """Runs of half a block and shorter ones, passes that are not full."""
    for name in (body, f"{body}_narrow"):
        check(case_of(name, target, Q8, tile), (tile.m + 5, tile.n + 3, 96))


@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize(("body", "target", "tile"), BODIES[:3])
def test_every_quant_is_rounded_as_the_reference_rounds(
    body: str, target: str, tile: Tile, type_: str
) -> None:
    """All bytes and many scales: d * q in f32, rounded once to the type of the product."""
    k, n = 256, 20
    rng = np.random.default_rng(0)
    quants = np.stack([rng.permutation(np.arange(-128, 128)) for _ in range(n)]).astype(np.int8)
    scales = rng.standard_normal((n, k // 32)) * np.exp2(rng.integers(-20, 9, (n, k // 32)))
    given = {"a": np.eye(k), "b": pack_q8_0(quants, scales.astype(np.float16))}
    case = case_of(body, target, dense(type_, transposed_b=True, source_b="q8_0"), tile)
    check(case, (k, n, k), given=given)
