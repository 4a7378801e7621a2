"""What a body cannot do it refuses before anything is emitted; what it emits is always IR."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dialects.errors import UnsupportedError
from dialects.facts import DeviceFacts
from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from facts_files import FOLDER
from kernel_sources import TILE, lowered, source, tile_body, whole_pipeline
from lowering.builder import dense
from lowering.target import parse_target, target_from_facts
from lowering.tiles import BODIES, body_named

LISTED = str(FOLDER / "vulkan-h200.json")
RDNA, CDNA = "rocm:gfx1100", "rocm:gfx942"
WAVES = Tile(m=32, n=32, k=16, waves_m=1, waves_n=1)
STAGED = replace(WAVES, stages=2)
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
        ("cuda:sm_80", dense("f8e5m2"), STAGED, r"sm_80 has no mma.sync for f8e5m2\*f8e5m2->f32"),
        ("cuda:sm_75", dense("f16"), STAGED, r"cuda:sm_75 has no mma.sync for f16\*f16->f32"),
        ("cuda:sm_80", dense("f64", "f64"), STAGED, r"no mma.sync for f64\*f64->f64"),
        ("cuda:sm_80", dense("f16"), WAVES, "mma_sync needs waves_m, waves_n, and stages of at"),
        ("cuda:sm_80", dense("f16"), replace(STAGED, m=24), "1x1 waves do not cut 24x32 into"),
        ("cuda:sm_80", dense("i8", "i32"), replace(STAGED, k=16), "k = 16 is no multiple of 32"),
        ("cuda:sm_80", dense("f16"), replace(STAGED, m=128, n=64), "would hold 352 > 224 sums"),
        (
            "cuda:sm_80",
            dense("f16"),
            replace(STAGED, k=48),
            r"rows of 96 B are not 32, 64 or .*'a'",
        ),
        (
            "cuda:sm_80",
            dense("i8", "i32"),
            replace(STAGED, k=32),
            r"rows of 32 B are not 64 or a multiple of 128 B \('b'\)",
        ),
        (
            "cuda:sm_80",
            dense("f16"),
            replace(STAGED, n=192, waves_n=2),
            "64 lanes do not copy whole",
        ),
        (
            "cuda:sm_80",
            dense("f16"),
            replace(STAGED, waves_m=33, m=528),
            "1056 threads > 1024 of a workgroup",
        ),
        ("cuda:sm_80", dense("f16"), replace(STAGED, k=256, stages=17), "issue 1088 > 1024 copies"),
        ("cuda:sm_80", dense("f16"), replace(STAGED, k=32, stages=3, m=24), "_words has 2 stages"),
        (
            "cuda:sm_80",
            dense("f16", result="f64", epilogue=(EpilogueStep(op="cast", type="f64"),)),
            STAGED,
            r"mma_sync stores no f64 \('c'\)",
        ),
        (
            "cuda:sm_90",
            dense("f16", result="f8e4m3", epilogue=NARROW),
            STAGED,
            r"no f8e4m3 \('c'\)",
        ),
        ("vulkan", Q8, replace(TILE, k=3), "q8_0 is read in pairs, each lane would copy one"),
        (
            "cuda:sm_90a",
            Q8,
            replace(STAGED, k=16),
            r"mma_sync: staged rows of 16 elements are no whole q8_0 blocks of 32 \('b'\)",
        ),
        (
            RDNA,
            Q8,
            Tile(m=128, n=16, k=16, waves_m=8, waves_n=1),
            "q8_0 is read in pairs, each lane would copy one element",
        ),
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
        (RDNA, dense("f16"), replace(WAVES, m=40), "no wmma shape for .* divides the wave tile"),
        (RDNA, dense("f16"), replace(WAVES, m=96, waves_m=5), "no wmma shape for .* divides"),
        (RDNA, dense("f32"), WAVES, r"gfx1100 has no wmma for f32\*f32->f32"),
        (RDNA, dense("f16"), replace(WAVES, k=16384), r"memory \d+ B > 65536 B of rocm:gfx1100"),
        (RDNA, dense("f16", result="f8e4m3", epilogue=NARROW), WAVES, "wmma has no f8e4m3"),
        ("rocm:gfx1250", dense("f16"), WAVES, "gfx1250 has no wmma for f16"),  # another shape
        (CDNA, dense("u8", "i32"), WAVES, r"gfx942 has no mfma for u8\*u8->i32"),
        (CDNA, dense("f16", "f16"), WAVES, r"gfx942 has no mfma for f16\*f16->f16"),
        (CDNA, dense("i8", "i32"), replace(WAVES, m=16, k=16), "no mfma shape for .* divides"),
        (
            CDNA,
            dense("f16"),
            Tile(m=512, n=512, k=16, waves_m=8, waves_n=4),
            "2048 lanes > 1024 of a workgroup",
        ),
    ],
)
def test_refusals(target: str, contraction: Contraction, tile: Tile, message: str) -> None:
    """Nothing else is left for the member, so that the reason is the error."""
    with pytest.raises(UnsupportedError, match=message) as caught:
        lowered(source(contraction, tile), whole_pipeline(target))
    assert caught.value.message.startswith("kernel 'gemm': no member can be built for ")


@pytest.mark.parametrize("widths", [(32, 64), (64,), None])
def test_wmma_takes_a_wave_of_32_where_the_device_has_it(widths: tuple[int, ...] | None) -> None:
    facts = DeviceFacts(backend="rocm", isa="gfx1100", wave_widths=widths)
    refusal = tile_body("wmma").refusal(dense("f16"), WAVES, target_from_facts(facts))
    wrong = "wmma takes a wave of 32, the device offers none"
    assert refusal == (wrong if widths == (64,) else None)


def test_copies_of_16_bytes_need_as_much_of_a_tile() -> None:
    """The narrow body takes what the wide one cannot."""
    tile, target = replace(WAVES, k=8), target_from_facts(DeviceFacts(backend="rocm", isa="gfx90a"))
    product = dense("i8", "i32")
    assert tile_body("mfma_narrow").refusal(product, tile, target) is None
    refusal = tile_body("mfma").refusal(product, tile, target)
    assert refusal == "copies of 16 bytes need a tile in multiples of 16"


def test_decoded_blocks_are_stored_in_whole_units() -> None:
    """A cooperative matrix's wide unit; lone elements take any run of a block."""
    tile, target = replace(WAVES, n=16, waves_m=2), parse_target(LISTED)
    assert tile_body("coop_matrix_narrow").refusal(Q8, tile, target) is None
    refusal = tile_body("coop_matrix").refusal(Q8, tile, target)
    assert refusal == "each lane would decode 4 < 8 elements of 'b'"
    assert tile_body("coop_matrix").refusal(Q8, WAVES, target) is None


@pytest.mark.parametrize(
    ("body", "target", "tile", "needs"),
    [
        ("software", "cuda:sm_80", TILE, {"b.0": 2, "b": 4}),
        ("mma_sync_narrow", "cuda:sm_80", replace(STAGED, k=32), {"b.0": 2}),
        ("wmma", RDNA, WAVES, {"K": 8, "a.0": 8, "b.0": 2, "b": 4}),
        ("mfma_narrow", CDNA, WAVES, {"b.0": 2, "b": 4}),
        ("coop_matrix", LISTED, WAVES, {"K": 8, "a.0": 8, "b.0": 2, "b": 4}),
    ],
)
def test_where_blocks_may_lie(body: str, target: str, tile: Tile, needs: dict[str, int]) -> None:
    """Rows a scale apart; and where blocks are read in words from the start, that is a word."""
    emitted = tile_body(body).emit("gemm", Q8, tile, parse_target(target))
    assert emitted.needs.alignment == needs


def test_bodies_without_a_decoder_say_so() -> None:
    """Copies by the engine or asynchronous ones move bytes as they are."""
    target, tile = parse_target("cuda:sm_90a"), Tile(m=128, n=128, k=64, waves_m=2, waves_n=4)
    for name in ("wgmma", "tma_wgmma"):
        served = replace(tile, stages=3)
        assert (
            tile_body(name).refusal(replace(Q8, b=replace(Q8.b, source=None)), served, target)
            is None
        )
        refusal = tile_body(name).refusal(Q8, served, target)
        assert refusal == f"{name} has no q8_0 source ('b'), only dense"


def test_the_wave_of_an_isa_without_facts_of_it() -> None:
    """CDNA has one width, whatever else is unknown; RDNA runs the narrower."""
    isas = {"gfx942": 64, "gfx90a": 64, "gfx1100": 32, "gfx1201": 32}
    found = {i: target_from_facts(DeviceFacts(backend="rocm", isa=i)).wave for i in isas}
    assert found == isas


def test_workgroup_memory_is_what_the_isa_has_until_the_driver_says() -> None:
    known = DeviceFacts(backend="rocm", isa="gfx950", shared_bytes_per_block=4096)
    unknown = [DeviceFacts(backend="rocm", isa=i) for i in ("gfx950", "gfx942")]
    assert [target_from_facts(f).shared_bytes for f in (known, *unknown)] == [4096, 163840, 65536]


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
    refused = tile_body("software_wide").refusal(contraction, tile, target)
    assert message in (refused or "")
    assert tile_body("software").refusal(contraction, tile, target) is None


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
