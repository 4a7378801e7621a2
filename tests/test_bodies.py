"""What a body cannot do it refuses before anything is emitted; what it emits is always IR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dialects.errors import UnsupportedError
from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from facts_files import FOLDER
from kernel_sources import TILE, lowered, source, whole_pipeline
from lowering.builder import dense
from lowering.target import parse_target
from lowering.tiles import BODIES, body_named

LISTED = str(FOLDER / "vulkan-h200.json")
WAVES = Tile(m=32, n=32, k=16, waves_m=1, waves_n=1)
FLIPPED = Operand(name="x", type="f32", dims=("N", "M"))
Q8 = dense("f16", transposed_b=True, source_b="q8_0")
NARROW = (EpilogueStep(op="cast", type="f8e4m3"),)


def with_extra(extra: Operand) -> Contraction:
    """A product to which an operand is added."""
    return dense("f32", extras=(extra,), epilogue=(EpilogueStep(op="add", operand="x"),))


@pytest.mark.parametrize(
    ("target", "contraction", "tile", "message"),
    [
        ("cpu", dense("f32"), WAVES, "cpu_mmt4d needs thread_m and thread_n, its inner tile"),
        ("cpu", dense("f32"), replace(TILE, thread_m=3), "inner tile 3x4 does not divide 16x16"),
        ("cpu", dense("f32"), replace(TILE, m=2048, thread_m=1024), "1024x4 > 1024 elements"),
        ("cpu", with_extra(FLIPPED), TILE, "cpu_mmt4d reads rows, N must be the last of"),
        ("cpu", dense("f8e4m3"), TILE, r"cpu_mmt4d has no f8e4m3 \('a'\)"),
        ("cpu", dense("f32", result="f8e4m3", epilogue=NARROW), TILE, r"no f8e4m3 \('c'\)"),
        ("vulkan", dense("f32"), WAVES, "the software tile needs thread_m and thread_n"),
        ("vulkan", dense("f32"), replace(TILE, thread_n=5), "tile 4x5 does not divide 16x16"),
        ("vulkan", dense("f32"), replace(TILE, k=65536), "16 lanes would stage 65536 > 1024"),
        ("cuda:sm_80", dense("f8e5m2"), TILE, r"software has no f8e5m2 \('a'\)"),
        ("vulkan", Q8, replace(TILE, k=3), "q8_0 is read in pairs, each lane would copy one"),
        (LISTED, Q8, WAVES, r"coop_matrix has no q8_0 source \('b'\), only dense"),
        (LISTED, dense("i8", "i16"), WAVES, r"the driver lists no config for i8\*i8->i16"),
        (LISTED, dense("bf16"), WAVES, "gpu.mma_matrix has no bf16 operand"),
        (LISTED, dense("f16"), replace(WAVES, m=20), "no listed config .* divides the wave tile"),
        (LISTED, dense("f16"), replace(WAVES, k=32768), "each wave would multiply 8192 > 1024"),
        (
            LISTED,
            dense("f16", result="f8e4m3", epilogue=NARROW),
            WAVES,
            r"coop_matrix has no f8e4m3 \('c'\)",
        ),
    ],
)
def test_refusals(target: str, contraction: Contraction, tile: Tile, message: str) -> None:
    """Nothing else is left for the member, so that the reason is the error."""
    with pytest.raises(UnsupportedError, match=message) as caught:
        lowered(source(contraction, tile), whole_pipeline(target))
    assert caught.value.message.startswith("kernel 'gemm': no member can be built for ")


@pytest.mark.parametrize(
    ("contraction", "tile", "message"),
    [
        (dense("f32"), TILE, "software_wide needs 64 lanes, found 16"),
        (
            dense("f32"),
            replace(TILE, m=64, n=64, k=2),
            "would copy 1 < 4 elements of 'a' at a time",
        ),
        (dense("f64", "f64"), replace(TILE, m=64, n=64), "copy 2 < 4 elements of 'a' at a time"),
        (
            replace(Q8, a=replace(Q8.a, source="q8_0")),
            replace(TILE, m=64, n=64),
            "software_wide needs a dense operand, blocks are copied in one way",
        ),
    ],
)
def test_what_is_not_copied_wide_is_copied_narrow(
    contraction: Contraction, tile: Tile, message: str
) -> None:
    target = parse_target("vulkan")
    refused = body_named("software_wide").refusal(contraction, tile, target)
    assert message in (refused or "")
    assert body_named("software").refusal(contraction, tile, target) is None


def test_an_operand_in_the_other_order_is_read_by_lanes() -> None:
    """Where each element has an address of its own, any order will do."""
    assert '"N", "M"' in lowered(source(with_extra(FLIPPED)), whole_pipeline("vulkan"))


@pytest.mark.parametrize("name", ["kernel", "mmt4d", "pack_a", "gemm", "main", "_"])
@pytest.mark.parametrize("target", ["cpu", "vulkan"])
def test_names_of_kernels_do_not_clash_with_ours(name: str, target: str) -> None:
    text = lowered(source(name=name), whole_pipeline(target))
    assert f"util.func public @{name}(" in text
    assert f"util.func public @{name}.async(" in text


def test_bodies_have_distinct_names() -> None:
    assert len({b.name for b in BODIES}) == len(BODIES)
    assert all(body_named(b.name) is b for b in BODIES)
    with pytest.raises(UnsupportedError, match=r"here: body 'none' is not one of .*software"):
        body_named("none", where="here")
