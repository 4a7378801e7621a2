"""q8_0 operands of the mma.sync bodies, executed lane by lane on the host: exact at every edge."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from emulated_wave import Fault
from kernel_sources import tile_body
from lowering.builder import dense
from mma_cases import SMALL, TARGET, Case, product, sizes
from runtime.blocks import decode_blocks, pack_q8_0

Q8 = dense("f16", transposed_b=True, source_b="q8_0")
BODIES = ("mma_sync", "mma_sync_words", "mma_sync_narrow")
BIAS = Operand(name="bias", type="f32", dims=("N",))
RELU = (EpilogueStep(op="add", operand="bias"), EpilogueStep(op="max", constant=0.0))


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("shape", [(1, 1, 32), (15, 37, 96), (37, 15, 64), (65, 8, 160), (5, 6, 0)])
def test_awkward_shapes(body: str, shape: tuple[int, int, int]) -> None:
    """Blocks at odd and even words, copies that land late, waves either way; no bank conflicts."""
    case = Case(Q8, SMALL, body, sizes(*shape))
    assert case.run(eager=False) == 0
    assert case.run(reverse=True) == 0


@pytest.mark.parametrize(
    ("tile", "shape"),
    [
        (Tile(m=16, n=16, k=32, waves_m=1, waves_n=1, stages=2), (17, 24, 96)),
        (Tile(m=32, n=16, k=32, waves_m=2, waves_n=1, stages=3), (33, 24, 160)),
        (Tile(m=128, n=64, k=64, waves_m=2, waves_n=2, stages=3), (100, 72, 224)),
        (Tile(m=64, n=256, k=32, waves_m=2, waves_n=4, stages=4), (40, 264, 32)),
        (Tile(m=16, n=64, k=128, waves_m=1, waves_n=4, stages=2), (16, 72, 288)),
        (Tile(m=48, n=96, k=32, waves_m=3, waves_n=1, stages=2), (50, 104, 96)),
    ],
    ids=lambda v: v.name if isinstance(v, Tile) else "",
)
def test_tiles(tile: Tile, shape: tuple[int, int, int]) -> None:
    """One block a row and several, lanes without a row, rings of every length."""
    case = Case(Q8, tile, "mma_sync", sizes(*shape))
    assert case.run(eager=False, reverse=True) == 0
    assert case.run() == 0


@pytest.mark.parametrize("body", ["mma_sync", "mma_sync_narrow"])
@pytest.mark.parametrize("pad", [0, 8])
def test_batches_and_strides(body: str, pad: int) -> None:
    c = product("f16", batch=True, flip_a=True, transposed_b=True, source_b="q8_0")
    Case(c, SMALL, body, sizes(40, 37 if not pad else 40, 96, 3), pad).run(eager=False)


@pytest.mark.parametrize("body", ["mma_sync", "mma_sync_narrow"])
def test_blocks_of_either_operand(body: str) -> None:
    """Of A in place of B, and of both."""
    swapped = replace(Q8, a=replace(Q8.a, source="q8_0"), b=replace(Q8.b, source=None))
    both = replace(Q8, a=replace(Q8.a, source="q8_0"))
    for c in (swapped, both):
        Case(c, SMALL, body, sizes(37, 16, 96)).run(eager=False, reverse=True)


def test_an_epilogue() -> None:
    c = replace(Q8, extras=(BIAS,), epilogue=RELU, accumulate=True)
    for n in (15, 34):
        Case(c, SMALL, "mma_sync", sizes(35, n, 64)).run(eager=False)


def test_every_quant_is_rounded_as_the_reference_rounds() -> None:
    """All bytes, with scales down to the smallest subnormal: d * q in f32, rounded to f16 once."""
    k, n = 256, 40
    case = Case(Q8, SMALL, "mma_sync", sizes(k, n, k))
    rng = np.random.default_rng(0)
    quants = np.stack([rng.permutation(np.arange(-128, 128)) for _ in range(n)]).astype(np.int8)
    scales = rng.standard_normal((n, k // 32)) * np.exp2(rng.integers(-24, 9, (n, k // 32)))
    raw = pack_q8_0(quants, scales.astype(np.float16))
    case.arrays["b"][...] = raw
    case.arrays["a"][...] = np.eye(k, dtype=np.float16)
    exact = quants * np.repeat(scales.astype(np.float16), 32, 1).astype(np.float64)
    assert not np.array_equal(exact.astype(np.float16), exact)  # there is something to round
    assert np.array_equal(decode_blocks(raw, "q8_0").astype(np.float16), exact.astype(np.float16))
    case.run()


@pytest.mark.parametrize(
    ("contraction", "tile", "message"),
    [
        (
            dense("bf16", transposed_b=True, source_b="q8_0"),
            SMALL,
            r"mma_sync: q8_0 is decoded to f16, not bf16 \('b'\)",
        ),
        (
            Q8,
            replace(SMALL, k=16),
            r"mma_sync: staged rows of 16 elements are no whole q8_0 blocks of 32 \('b'\)",
        ),
        (
            Q8,
            Tile(m=128, n=128, k=64, waves_m=2, waves_n=2, stages=3),
            "mma_sync: a lane would hold 228 > 224 sums, fragments and blocks",
        ),
    ],
)
def test_refused(contraction: Contraction, tile: Tile, message: str) -> None:
    """By name; the same without blocks is served."""
    body = tile_body("mma_sync")
    assert re.fullmatch(message, body.refusal(contraction, tile, TARGET) or "")
    plain = replace(contraction, b=replace(contraction.b, source=None))
    assert body.refusal(plain, tile, TARGET) is None


MUTATIONS = (
    ("0x4140", "0x4342"),
    ("0x1010", "0x3210"),
    ('$0, $1, $2, $3;", "=r,r,r,r"', '$0, $2, $1, $3;", "=r,r,r,r"'),
    ("@p ld.global.u32 $3, [$6+12]", "@p ld.global.u32 $3, [$6+8]"),
    ("@q ld.global.u16", "@p ld.global.u16"),
    ("setp.gt.s32 p, $8, 0", "setp.gt.s32 p, $8, 1"),
    ("setp.gt.and.s32 p, $9, 0, p", "setp.gt.and.s32 p, $9, 32, p"),
    ("setp.gt.and.s32 q, $10, 0, p", "setp.gt.and.s32 q, $10, 2, p"),
    ("mul.rn.f16x2", "sub.rn.f16x2"),
    ("constant -2139062144", "constant -2139062016"),
    ("constant 1686135936", "constant 1686135937"),
)


@pytest.mark.parametrize(("old", "new"), MUTATIONS)
def test_one_changed_word_is_noticed(old: str, new: str) -> None:
    """Before the loop and in it; the last block of both ends with its last word."""
    cases = [Case(Q8, SMALL, "mma_sync", sizes(*s)) for s in ((33, 38, 96), (33, 38, 32))]
    text = cases[0].text
    assert cases[1].text == text
    places = [m.start() for m in re.finditer(re.escape(old), text)]
    assert places
    for at in {places[0], places[-1]}:
        changed = text[:at] + new + text[at + len(old) :]
        assert any(_notices(case, changed) for case in cases)


def _notices(case: Case, changed: str) -> bool:
    try:
        case.run(changed)
    except Fault:
        return True
    return False
