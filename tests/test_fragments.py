"""Kernels in cooperative-matrix IR hold the instructions they claim, and compute exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coop_kernels import Coop, coop_text
from dialects.expressions import Expression
from dialects.manifest import KernelEntry, Record
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
from lowering.pack import write_pack
from lowering.target import Target, parse_target, target_from_facts
from runtime import Session
from runtime.dtypes import dtype_of
from runtime.facts import read_facts
from runtime.reference import evaluate

SAMPLE = (FOLDER.parent.parent.parent / "samples" / "06_coop_matrix.mlir").read_text()
LISTED = str(FOLDER / "vulkan-h200.json")
NATIVE, SOFTWARE = "fragments", "fragments_software"
SHAPES = ((1, 1, 1), (16, 16, 16), (37, 15, 7), (33, 50, 41), (2, 3, 0), (0, 5, 3))
DOUBLED = "%last = gpu.subgroup_mma_elementwise addf %sum, %sum : ({acc}, {acc}) -> {acc}"


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


class Candidates:
    """A pack of one kernel on the Vulkan device of this machine."""

    def __init__(self, text: str, target: Target, folder: Path, cache: Path) -> None:
        write_pack(built(text, target, cache), folder)
        self.session = Session([folder], device="vulkan", tuning="off")

    def check(self, kernel: str, sizes: Sequence[int], change: float = 1.0) -> list[str]:
        """Exact equality of every candidate on an output full of 77; their names."""
        entry = self.session.reference(kernel).entry
        host = operands(entry, sizes)
        expected = evaluate(entry.contraction, host) * change
        names = [v.record.name for v in self.session.explain(kernel, *sizes).verdicts if v.ok]
        for name in names:
            self.session.override(kernel, name)
            out = np.full(expected.shape, 77, dtype_of(entry.result.type))
            if entry.result.mode == "readwrite":
                out[...] = host[entry.result.name]
            inputs = [host[a.name] for a in entry.inputs]
            getattr(self.session, kernel)(*inputs, out=out)
            np.testing.assert_array_equal(out, expected, err_msg=f"{name} at {sizes}")
        return names


def operands(entry: KernelEntry, sizes: Sequence[int]) -> dict[str, np.ndarray]:
    """Small integers for every operand."""
    values = dict(zip(entry.dims, sizes, strict=True))
    rng = np.random.default_rng(sum(sizes))
    return {
        a.name: rng.integers(0 if a.type == "u8" else -3, 4, [values[d] for d in a.dims]).astype(
            dtype_of(a.type)
        )
        for a in entry.args
    }


def device_target(**facts: object) -> Target:
    """The Vulkan device of this machine, some of its facts replaced."""
    return target_from_facts(replace(read_facts("vulkan"), **facts))


CASES = {
    "f16 sums": Coop(accumulator="f16", m=8, n=8, k=8),
    "i8": Coop(type="i8", accumulator="i32", m=8, n=8, k=8),
    "u8": Coop(type="u8", accumulator="i32", m=8, n=8, k=8),
    "four waves": Coop(m=8, n=8, k=8, waves_m=2, waves_n=2),
    "turned, added to, doubled": Coop(
        m=8, n=8, k=8, transposed_b=True, accumulate=True, between=DOUBLED
    ),
    "batch": Coop(m=8, n=8, k=8, batch=True),
    "no power of two": Coop(type="f32", m=5, n=3, k=7, waves_n=2),
}


@pytest.mark.device("vulkan")
@pytest.mark.parametrize("name", CASES)
def test_every_size_is_exact(name: str, tmp_path: Path, compile_cache: Path) -> None:
    """Native where this device lists the config, and spread over its waves."""
    coop = CASES[name]
    candidates = Candidates(coop_text(coop), device_target(), tmp_path / "pack", compile_cache)
    for shape in SHAPES:
        sizes = (2, *shape) if coop.batch else shape
        found = candidates.check("coop", sizes, 2.0 if coop.between else 1.0)
        assert any(SOFTWARE in n for n in found)


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
@pytest.mark.parametrize("kernel", ["coop_f16", "coop_two_types"])
def test_the_sample_is_exact(kernel: str, tmp_path: Path, compile_cache: Path) -> None:
    candidates = Candidates(SAMPLE, device_target(), tmp_path / "pack", compile_cache)
    for shape in (*SHAPES, (64, 64, 64)):
        assert candidates.check(kernel, shape)


@pytest.mark.device("vulkan")
def test_operands_are_read_by_the_callers_strides(tmp_path: Path, compile_cache: Path) -> None:
    """Windows of larger arrays, on device; nothing beside the result is written."""
    candidates = Candidates(coop_text(Coop()), device_target(), tmp_path / "pack", compile_cache)
    entry = candidates.session.reference("coop").entry
    host = operands(entry, (37, 15, 40))
    expected = evaluate(entry.contraction, host)
    wide = {name: np.pad(array, ((0, 0), (3, 6))) for name, array in host.items()}
    a, b = (wide[n][:, 3:-6] for n in ("a", "b"))
    out = np.full((37, 24), np.float32(7))
    candidates.session.coop(a, b, out=out[:, 3:-6])
    np.testing.assert_array_equal(out[:, 3:-6], expected)
    out[:, 3:-6] = 7
    assert np.all(out == 7)


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
