"""What the compiler makes of the mma.sync bodies, read from its PTX."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.errors import UnsupportedError
from dialects.member import Tile
from dialects.operands import Contraction
from kernel_sources import built, code_of, records, source, tile_body
from lowering.artifacts.ptx import read_ptx
from lowering.builder import dense
from lowering.target import parse_target

SMALL = Tile(m=32, n=64, k=64, waves_m=1, waves_n=2, stages=2)
DEEP = Tile(m=64, n=64, k=32, waves_m=2, waves_n=2, stages=3)
Q8 = dense("f16", transposed_b=True, source_b="q8_0")
BYTES = Tile(m=64, n=64, k=64, waves_m=2, waves_n=2, stages=3)


@pytest.mark.parametrize(
    ("isa", "contraction", "tile", "version"),
    [
        ("sm_80", dense("f16"), DEEP, (7, 0)),
        ("sm_80", dense("i8", "i32"), BYTES, (7, 0)),
        ("sm_89", dense("bf16", transposed_b=True), DEEP, (7, 8)),
        ("sm_89", dense("f8e4m3"), BYTES, (8, 4)),
        ("sm_90a", dense("f16", batch=True, accumulate=True), DEEP, (8, 0)),
        ("sm_80", Q8, DEEP, (7, 0)),
        ("sm_90a", Q8, replace(DEEP, m=128, n=128, k=64, waves_n=4), (8, 0)),
        ("sm_120", dense("f8e5m2", transposed_b=True), BYTES, (8, 7)),
    ],
)
def test_the_artifact_holds_what_was_emitted(
    isa: str, contraction: Contraction, tile: Tile, version: tuple[int, int], compile_cache: Path
) -> None:
    """The ISA asked for, a PTX version that has the instructions, each ``.aligned`` one once."""
    build = built(source(contraction, tile), f"cuda:{isa}", compile_cache)
    (record,) = records(build)
    code = code_of(build, record)
    reading = read_ptx(code)
    emitted = tile_body("mma_sync").emit("gemm", contraction, tile, parse_target(f"cuda:{isa}"))
    assert (reading.target, reading.version) == (isa, version)
    assert emitted.ptx_version is not None
    assert version >= emitted.ptx_version
    assert reading.max_threads is not None
    assert reading.max_threads[0] == record.footprint.threads_per_group
    assert record.groups[0].tier == "native"
    assert record.groups[0].count == emitted.aligned["mma.sync.aligned"] > 0
    assert emitted.aligned["ldmatrix.sync.aligned"] > 0
    counts = Counter(re.findall(r"\b(?:mma|ldmatrix)\.sync\.aligned\b", code.decode()))
    assert counts == emitted.aligned
    assert not re.search(r"@%p\d+ (?:mma|ldmatrix)", code.decode())


def test_bodies_for_every_alignment(compile_cache: Path) -> None:
    """Each says what its copies need; the one that copies elements needs nothing."""
    build = built(source(dense("f16"), SMALL), "cuda:sm_80", compile_cache)
    needs = {r.identity.body: r.needs.alignment for r in records(build)}
    names = ("K", "N", "a.0", "b.0")
    assert needs == {
        "mma_sync": dict.fromkeys(names, 8),
        "mma_sync_words": dict.fromkeys(names, 2),
        "mma_sync_narrow": None,
    }
    assert all(r.groups[0].count for r in records(build))


def test_blocks_need_whole_scales(compile_cache: Path) -> None:
    """Rows of blocks start at even bytes, whatever the copies of A need."""
    build = built(source(Q8, SMALL), "cuda:sm_80", compile_cache)
    needs = {r.identity.body: r.needs.alignment for r in records(build)}
    assert needs == {
        "mma_sync": {"a.0": 8, "K": 8, "b.0": 2},
        "mma_sync_words": {"a.0": 2, "K": 2, "b.0": 2},
        "mma_sync_narrow": {"b.0": 2},
    }
    assert all(r.groups[0].count for r in records(build))
    modes = {(a.param, a.mode) for r in records(build) for a in r.access}
    assert modes == {("a", "read"), ("b", "read"), ("c", "write")}


def test_a_narrow_sum_is_rounded_once() -> None:
    """f16 sums are kept in f32, so that is the instruction; where none exists, none is made up."""
    target = parse_target("cuda:sm_80")
    emitted = tile_body("mma_sync").emit("gemm", dense("f16", "f16"), DEEP, target)
    (group,) = emitted.groups
    assert (group.acc, group.instruction) == ("f16", "mma.sync.m16n8k16.f32.f16")
    assert group.reason.endswith(", rounded to f16 once")
    with pytest.raises(UnsupportedError, match=r"no mma.sync for bf16\*bf16->bf16"):
        built(source(dense("bf16", "bf16"), DEEP), target, Path())
