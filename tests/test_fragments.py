"""Kernels in cooperative-matrix IR hold the instructions they claim, and compute exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from coop_candidates import CASES, DOUBLED, SAMPLE, SAMPLE_KERNELS, SHAPES, Candidates
from coop_kernels import Coop, coop_text
from dialects.expressions import Expression
from dialects.manifest import Record
from dialects.operands import OperandGroup
from facts_files import FOLDER
from kernel_sources import built, code_of
from lowering.artifacts.matrix_sums import count_groups, sums_by_type
from lowering.artifacts.ptx import read_ptx
from lowering.artifacts.spirv import (
    COOPERATIVE_MULTIPLY_ADD,
    read_spirv,
    spirv_instructions,
    spirv_words,
)
from lowering.build import Build
from lowering.target import Target, parse_target, target_from_facts
from runtime.facts import read_facts

LISTED = str(FOLDER / "vulkan-h200.json")
NATIVE, SOFTWARE = "fragments", "fragments_software"


def record(result: Build, kernel: str, body: str) -> Record:
    """The record of a kernel that one body made."""
    entry = next(k for k in result.manifest.kernels if k.kernel == kernel)
    return next(r for r in entry.members if r.identity.body == body)


def rows(found: Record) -> list[tuple[str, str, int | None]]:
    """(accumulator, tier, count) of each group."""
    return [(g.acc, g.tier, g.count) for g in found.groups]


@pytest.mark.parametrize(
    ("target", "integers"),
    [(LISTED, ("i32", "software", 0)), ("cuda:sm_80", ("i32", "native", 1))],
)
def test_each_group_of_the_sample_has_its_own_tier(
    target: str, integers: tuple[str, str, int], compile_cache: Path
) -> None:
    """The artifact holds one instruction of each native group, and none of the software ones."""
    result = built(SAMPLE, target, compile_cache)
    assert rows(record(result, "coop_f16", NATIVE)) == [("f32", "native", 1)]
    assert rows(record(result, "coop_f16", SOFTWARE)) == [("f32", "software", 0)]
    mixed = record(result, "coop_two_types", NATIVE)
    assert rows(mixed) == [integers, ("f32", "native", 1)]
    assert all(n == 0 for _, _, n in rows(record(result, "coop_two_types", SOFTWARE)))
    natives = sum(t == "native" for _, t, _ in rows(mixed))
    code = code_of(result, mixed)
    found = read_ptx(code) if "sm" in target else read_spirv(code, where="")
    assert found.matrix_instructions == natives
    assert all(g.status == "ok" for g in mixed.gates)


@pytest.mark.parametrize("target", ["vulkan", "rocm:gfx1030"])
def test_without_an_instruction_the_tiles_are_spread(target: str, compile_cache: Path) -> None:
    """A wave that is not known, or no native form: only the software body is built."""
    result = built(SAMPLE, target, compile_cache)
    for entry in result.manifest.kernels:
        assert [r.identity.body for r in entry.members] == [SOFTWARE]
        assert {g.tier for r in entry.members for g in r.groups} == {"software"}


@pytest.mark.parametrize("target", ["rocm:gfx1100", "rocm:gfx942"])
def test_amd_instructions_take_no_slots(target: str, compile_cache: Path) -> None:
    """Tiles come straight from memory; the author's own arrays stay, and nothing spills."""
    result = built(SAMPLE, target, compile_cache, tier="native")
    for kernel, shared in (("coop_f16", 0), ("coop_two_types", 2 * 16 * 16 * 4)):
        found = record(result, kernel, NATIVE)
        used = found.footprint
        spread = any(g.tier == "software" for g in found.groups)
        assert used.static_shared_bytes == shared + spread * 2 * 256
        assert (used.spill_bytes, used.wave_width) == (0, found.needs.wave_width)


def test_workgroup_memory_is_what_was_predicted(compile_cache: Path) -> None:
    """The emitter's sum of the author's arrays and of the tiles' own, against the artifact's."""
    listed = built(SAMPLE, LISTED, compile_cache)
    cuda = built(SAMPLE, "cuda:sm_80", compile_cache, body=SOFTWARE)
    ours = record(listed, "coop_two_types", SOFTWARE).footprint
    assert ours.static_shared_bytes == 2 * 16 * 16 * 4 + 2 * 256 + 2 * 512
    launch = record(cuda, "coop_two_types", SOFTWARE).launch
    assert launch is not None
    assert launch.dynamic_shared_bytes == ours.static_shared_bytes


GROUP = OperandGroup(a="f16", b="f16", acc="f32", tier="native", reason="")


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([("f32", "native")], [5]),
        ([("f32", "software")], [5]),
        ([("f32", "native"), ("i32", "software")], [3, 2]),
        ([("f32", "native"), ("u32", "native")], [3, 2]),
        ([("f32", "native"), ("f32", "software")], [3, None]),
        ([("f32", "software"), ("i32", "software")], [5, 5]),
    ],
)
def test_counts_are_told_apart_by_the_type_of_the_sum(
    groups: list[tuple[str, str]], expected: list[int | None]
) -> None:
    """Three instructions sum in f32, two in i32; the gate sees what a software group must not."""
    given = [
        replace(GROUP, acc=a, tier="native" if t == "native" else "software") for a, t in groups
    ]
    found = count_groups(given, 5, Counter({"f32": 3, "i32": 2}))
    assert [g.count for g in found] == expected


def test_every_kernel_of_a_candidate_is_counted() -> None:
    """Split-K has a second kernel, in a code object of its own on some targets."""
    line = b"wmma.mma.sync.aligned.row.row.m16n16k16.%s a, b, c, d;\n"
    first, second = line % b"f32.f32" * 2, line % b"s32.u8.u8.s32" + line % b"f32.f32"
    assert sums_by_type("cuda", [first], where="") == Counter({"f32": 2})
    assert sums_by_type("cuda", [first, second], where="") == Counter({"f32": 3, "i32": 1})
    assert sums_by_type("rocm", [first, second], where="") is None


def device_target(**facts: object) -> Target:
    """The Vulkan device of this machine, some of its facts replaced."""
    return target_from_facts(replace(read_facts("vulkan"), **facts))


@pytest.mark.device("vulkan")
@pytest.mark.parametrize("name", CASES)
def test_every_size_is_exact(name: str, tmp_path: Path, compile_cache: Path) -> None:
    """Native where this device lists the config, and spread over its waves."""
    coop = CASES[name]
    candidates = Candidates(coop_text(coop), device_target(), tmp_path / "pack", compile_cache)
    assert any(SOFTWARE in n for n in candidates.check_every_size(coop))


@pytest.mark.device("vulkan")
@pytest.mark.parametrize("wave", [1, 4, 12, 32])
def test_any_wave_width_is_exact(wave: int, tmp_path: Path, compile_cache: Path) -> None:
    """A lane's share may span columns, rows or parts of both: nothing assumes the hardware's."""
    target = device_target(wave_widths=(wave,), native_matrix_configs=())
    text = coop_text(Coop(type="f32", m=4, n=8, k=4, waves_m=2, between=DOUBLED))
    candidates = Candidates(text, target, tmp_path / "pack", compile_cache)
    for shape in ((37, 15, 7), (33, 50, 41)):
        assert candidates.check("coop", shape, 2.0) == [f"8x8x4_w2x1/{SOFTWARE}"]


@pytest.mark.device("vulkan")
@pytest.mark.parametrize("kernel", SAMPLE_KERNELS)
def test_the_sample_is_exact(kernel: str, tmp_path: Path, compile_cache: Path) -> None:
    candidates = Candidates(SAMPLE, device_target(), tmp_path / "pack", compile_cache)
    for shape in (*SHAPES, (64, 64, 64)):
        assert candidates.check(kernel, shape)


@pytest.mark.device("vulkan")
def test_operands_are_read_by_the_callers_strides(tmp_path: Path, compile_cache: Path) -> None:
    Candidates(coop_text(Coop()), device_target(), tmp_path / "pack", compile_cache).check_windows()


def test_the_grid_covers_the_result_with_the_authors_tile(compile_cache: Path) -> None:
    found = record(built(SAMPLE, LISTED, compile_cache), "coop_f16", NATIVE)
    assert found.launch is not None
    assert found.launch.grid is not None
    sizes = {"M": 33, "N": 65, "K": 7}
    assert [Expression(g).evaluate(sizes) for g in found.launch.grid] == [3, 2, 1]
    assert found.launch.block == (128, 1, 1)
    assert found.needs.wave_width == 32
    assert found.needs.alignment is None


def test_a_signed_product_has_a_signed_sum(compile_cache: Path) -> None:
    """Drivers list i8 * i8 -> i32; with an unsigned sum one of them took A for unsigned."""
    facts = parse_target(str(FOLDER / "vulkan-lavapipe-26.2.json"))
    text = coop_text(Coop(type="i8", accumulator="i32", m=8, n=8, k=8))
    result = built(text, facts, compile_cache)
    code = code_of(result, record(result, "coop", NATIVE))
    flags = [
        found[5]
        for opcode, found in spirv_instructions(spirv_words(code, where=""), where="")
        if opcode == COOPERATIVE_MULTIPLY_ADD
    ]
    assert flags == [0b1111]  # A, B, C and the result
