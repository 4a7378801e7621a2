"""Kernels in cooperative-matrix IR on a processor: one worker runs the waves of a workgroup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coop_candidates import (
    CASES,
    DOUBLED,
    SAMPLE,
    SAMPLE_KERNELS,
    SHAPES,
    Candidates,
    operands,
)
from coop_kernels import Coop, coop_text
from dialects.errors import Error
from lowering.build import BuildOptions, lower
from lowering.candidate import Candidate
from lowering.target import parse_target
from runtime.dtypes import dtype_of
from runtime.facts import read_facts
from runtime.reference import evaluate

BODY = "cpu_fragments"
HERE = parse_target("cpu", read_facts)
SHARED = "#gpu.address_space<workgroup>"
WAVES = Coop(type="f32", m=5, n=3, k=4, waves_m=2, waves_n=3)


def emitted(text: str, target: str = "cpu") -> list[Candidate]:
    """The candidates of a source, not compiled."""
    candidates, _ = lower(text, "test.mlir", parse_target(target), BuildOptions())
    return candidates


def exchanged(coop: Coop, before: str, after: str, name: str) -> str:
    """Lines that hand ``before`` to the wave before this one and back, through workgroup memory."""
    memory = f"memref<{coop.waves_m * coop.waves_n * coop.m}x{coop.n}xf32, {SHARED}>"
    lead = f"leadDimension {coop.n}"
    store, load = "gpu.subgroup_mma_store_matrix", "gpu.subgroup_mma_load_matrix"
    return f"""
    {store} {before}, %shared[%mine, %c0] {lead} : {{acc}}, {memory}
    gpu.barrier
    %{name} = {load} %shared[%other, %c0] {lead} : {memory} -> {{acc}}
    gpu.barrier
    {store} %{name}, %shared[%other, %c0] {lead} : {{acc}}, {memory}
    gpu.barrier
    {after} = {load} %shared[%mine, %c0] {lead} : {memory} -> {{acc}}
    gpu.barrier
    """


def rows_of_waves(coop: Coop) -> str:
    """Workgroup memory with rows for each wave: %mine and %other are where two waves' start."""
    count = coop.waves_m * coop.waves_n
    return f"""
    %shared = memref.alloc() : memref<{count * coop.m}x{coop.n}xf32, {SHARED}>
    %c1 = arith.constant 1 : index
    %waves = gpu.num_subgroups : index
    %mine = arith.muli %wave, %cm : index
    %next_wave = arith.addi %wave, %c1 : index
    %other_wave = arith.remui %next_wave, %waves : index
    %other = arith.muli %other_wave, %cm : index
    """


@pytest.mark.parametrize("name", CASES)
def test_every_size_is_exact(name: str, tmp_path: Path, compile_cache: Path) -> None:
    coop = CASES[name]
    candidates = Candidates(coop_text(coop), HERE, tmp_path / "pack", compile_cache)
    (found,) = candidates.check_every_size(coop)
    assert found.endswith(f"/{BODY}")


@pytest.mark.parametrize("target", ["cpu:x86-64", ""])
@pytest.mark.parametrize("kernel", SAMPLE_KERNELS)
def test_the_sample_is_exact(kernel: str, target: str, tmp_path: Path, compile_cache: Path) -> None:
    """On the oldest processors' instructions too, which have no halves and no fused product."""
    candidates = Candidates(SAMPLE, target or HERE, tmp_path / "pack", compile_cache)
    for shape in (*SHAPES, (64, 64, 64)):
        assert candidates.check(kernel, shape)


def test_operands_are_read_by_the_callers_strides(tmp_path: Path, compile_cache: Path) -> None:
    Candidates(coop_text(Coop()), HERE, tmp_path / "pack", compile_cache).check_windows()


def test_waves_exchange_through_workgroup_memory(tmp_path: Path, compile_cache: Path) -> None:
    """At the end and in every round of the loop: a wave that ran ahead would find its own."""
    text = coop_text(
        Coop(
            type="f32",
            m=5,
            n=3,
            k=4,
            waves_m=2,
            waves_n=3,
            before=rows_of_waves(WAVES),
            inside=exchanged(WAVES, "%acc", "%back", "theirs"),
            between=exchanged(WAVES, "%sum", "%last", "its"),
        )
    ).replace("compute %fa, %fb, %acc", "compute %fa, %fb, %back")
    candidates = Candidates(text, HERE, tmp_path / "pack", compile_cache)
    for shape in SHAPES:
        assert candidates.check("coop", shape)


def test_lanes_share_out_what_waits_in_workgroup_memory(
    tmp_path: Path, compile_cache: Path
) -> None:
    """Each lane doubles elements of any wave's; a branch that all take has a barrier in it."""
    rows = 2 * 3 * WAVES.m
    memory = f"memref<{rows}x{WAVES.n}xf32, {SHARED}>"
    lines = f"""
    gpu.subgroup_mma_store_matrix %sum, %shared[%mine, %c0] leadDimension {WAVES.n}
        : {{acc}}, {memory}
    gpu.barrier
    %elements = arith.constant {rows * WAVES.n} : index
    %thread = gpu.thread_id x
    %threads = gpu.block_dim x
    scf.for %e = %thread to %elements step %threads {{
      %er = arith.divui %e, %cn : index
      %ec = arith.remui %e, %cn : index
      %value = memref.load %shared[%er, %ec] : {memory}
      %twice = arith.addf %value, %value : f32
      memref.store %twice, %shared[%er, %ec] : {memory}
    }}
    %some = arith.cmpi ugt, %size_M, %c0 : index
    %last = scf.if %some -> ({{acc}}) {{
      gpu.barrier
      %loaded = gpu.subgroup_mma_load_matrix %shared[%mine, %c0] leadDimension {WAVES.n}
          : {memory} -> {{acc}}
      scf.yield %loaded : {{acc}}
    }} else {{
      scf.yield %sum : {{acc}}
    }}
    """
    text = coop_text(
        Coop(
            type="f32",
            m=5,
            n=3,
            k=4,
            waves_m=2,
            waves_n=3,
            before=rows_of_waves(WAVES),
            between=lines,
        )
    )
    candidates = Candidates(text, HERE, tmp_path / "pack", compile_cache)
    for shape in SHAPES:
        assert candidates.check("coop", shape, 2.0)


def test_tiles_turn_in_workgroup_memory(tmp_path: Path, compile_cache: Path) -> None:
    """Turned when stored and when loaded, beside what a plain load finds there."""
    memory = f"memref<4x4xf32, {SHARED}>"
    lines = f"""
    %turned = memref.alloc() : {memory}
    gpu.subgroup_mma_store_matrix %sum, %turned[%c0, %c0] leadDimension 4 transpose
        : {{acc}}, {memory}
    %t = gpu.subgroup_mma_load_matrix %turned[%c0, %c0] leadDimension 4 : {memory} -> {{acc}}
    %back = gpu.subgroup_mma_load_matrix %turned[%c0, %c0] leadDimension 4 transpose
        : {memory} -> {{acc}}
    gpu.subgroup_mma_store_matrix %t, %turned[%c0, %c0] leadDimension 4 : {{acc}}, {memory}
    %again = gpu.subgroup_mma_load_matrix %turned[%c0, %c0] leadDimension 4 transpose
        : {memory} -> {{acc}}
    %last = gpu.subgroup_mma_elementwise addf %back, %again : ({{acc}}, {{acc}}) -> {{acc}}
    """
    text = coop_text(Coop(type="f32", m=4, n=4, k=5, between=lines))
    candidates = Candidates(text, HERE, tmp_path / "pack", compile_cache)
    for shape in SHAPES:
        assert candidates.check("coop", shape, 2.0)


def chain(*steps: str) -> str:
    """Elementwise ops one after another; ``x`` is what the one before made, ``s`` the sum."""
    lines, before = [], "%sum"
    for number, step in enumerate(steps):
        kind, *operands = step.split()
        names = [{"x": before, "s": "%sum"}[o] for o in operands]
        after = "%last" if number == len(steps) - 1 else f"%e{number}"
        types = ", ".join("{acc}" for _ in names)
        op = f"gpu.subgroup_mma_elementwise {kind} {', '.join(names)}"
        lines.append(f"{after} = {op} : ({types}) -> {{acc}}")
        before = after
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("coop", "steps"),
    [
        (
            Coop(type="f32"),
            ("negatef x", "subf s x", "maxf x s", "negatef x", "minf x s", "addf x s"),
        ),
        (Coop(type="i8", accumulator="i32"), ("negates x", "subi s x", "subi x s", "addi x s")),
    ],
)
def test_elementwise_ops_are_exact(
    coop: Coop, steps: tuple[str, ...], tmp_path: Path, compile_cache: Path
) -> None:
    """Floats: max(2 s, s), negated, the least with s, plus s. Integers: 2 s."""
    text = coop_text(replace(coop, between=chain(*steps)))
    candidates = Candidates(text, HERE, tmp_path / "pack", compile_cache)
    entry = candidates.session.reference("coop").entry
    host = operands(entry, (37, 15, 7))
    product = evaluate(entry.contraction, host)
    expected = 2 * product
    if coop.type == "f32":
        expected = np.minimum(-np.maximum(2 * product, product), product) + product
    out = np.zeros(expected.shape, dtype_of(entry.result.type))
    candidates.session.coop(host["a"], host["b"], out=out)
    np.testing.assert_array_equal(out, expected)


def test_arrays_are_made_once(tmp_path: Path) -> None:
    """On the stack, before any loop: in one they would grow with every round."""
    for text in (SAMPLE, coop_text(CASES["turned, added to, doubled"])):
        for candidate in emitted(text):
            kernel = candidate.text[candidate.text.index("func.func @gemm") :]
            assert kernel.count("memref.alloca") == kernel[: kernel.index("scf.for")].count(
                "memref.alloca"
            )
            assert "memref.alloca" in kernel
            assert "gpu." not in kernel.partition("util.func")[0]


ADDED = (
    "%float = arith.sitofp %word : i32 to f32\n"
    "%tile = gpu.subgroup_mma_constant_matrix %float : {acc}\n"
    "%last = gpu.subgroup_mma_elementwise addf %sum, %tile : ({acc}, {acc}) -> {acc}"
)
SHUFFLE = (
    "%w = arith.constant 32 : i32\n%one = arith.constant 1 : i32\n"
    f"%word, %ok = gpu.shuffle xor %one, %one, %w : i32\n{ADDED}"
)
LANE = f"%lane = gpu.lane_id\n%word = arith.index_cast %lane : index to i32\n{ADDED}"
BARRIER = f"gpu.barrier\n{DOUBLED}"


def alloc(nbytes: int) -> str:
    """Workgroup memory that the kernel uses."""
    memory = f"memref<{nbytes}xi8, {SHARED}>"
    return (
        f"%room = memref.alloc() : {memory}\n%byte = arith.constant 1 : i8\n"
        f"memref.store %byte, %room[%c0] : {memory}"
    )


@pytest.mark.parametrize(
    ("coop", "message"),
    [
        (Coop(between=SHUFFLE, wave=32), "'gpu.shuffle' is between the lanes of a wave, of which"),
        (Coop(between=LANE, wave=32), "'gpu.lane_id' assumes waves of 32 lanes, a CPU's have one"),
        (Coop(between=LANE), None),
        (Coop(between=DOUBLED, wave=32), None),
        (Coop(between=BARRIER, waves_m=8, waves_n=9), "72 waves with barriers hold 1152 > 1024"),
        (Coop(between=BARRIER, waves_m=8, waves_n=8), None),
        (Coop(between=DOUBLED, waves_m=8, waves_n=9), None),
        (Coop(before=alloc(29185)), "32800 B of workgroup memory and tiles > 32768 B of the stack"),
        (Coop(before=alloc(29184)), None),
    ],
)
def test_what_a_processor_cannot_run_is_refused_by_name(coop: Coop, message: str | None) -> None:
    text = coop_text(coop)
    if message is None:
        assert [c.info.body for c in emitted(text)] == [BODY]
        return
    with pytest.raises(Error, match=message):
        emitted(text)


def test_the_waves_of_a_member_are_stated() -> None:
    text = coop_text(Coop())
    assert emitted(text)
    with pytest.raises(Error, match=f"{BODY} needs waves_m and waves_n"):
        emitted(text.replace("waves_m = 1, ", ""))


def test_the_most_memory_that_is_taken_compiles(tmp_path: Path, compile_cache: Path) -> None:
    text = coop_text(Coop(before=alloc(29184), between=BARRIER))
    candidates = Candidates(text, HERE, tmp_path / "pack", compile_cache)
    assert candidates.check("coop", (37, 15, 7), 2.0)


def test_it_is_the_body_of_a_processor_alone() -> None:
    def bodies(target: str, **options: Any) -> list[str]:
        given = BuildOptions(**options)
        candidates, _ = lower(coop_text(Coop()), "test.mlir", parse_target(target), given)
        return [c.info.body for c in candidates]

    assert bodies("cpu") == bodies("cpu", tier="software") == bodies("cpu", body=BODY) == [BODY]
    assert BODY not in bodies("vulkan")
    with pytest.raises(Error, match=f"{BODY} was not asked for"):
        bodies("cpu", tier="native")
    with pytest.raises(Error, match="fragments was not asked for"):
        bodies("vulkan", body=BODY)
