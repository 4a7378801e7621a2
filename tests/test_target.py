"""Targets are written from facts: there is no table, and the text says only what is known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.errors import FormatError, TargetError
from dialects.facts import DeviceFacts, clamped
from facts_files import PATHS, fixture_facts
from lowering.ir import context, parse_module
from lowering.target import (
    X86_LEVELS,
    Target,
    compiler_flags,
    module_attributes,
    parse_target,
    target_from_facts,
)

FLAGS = {level: set(flags) for level, flags in X86_LEVELS}


def parsed(target: Target) -> str:
    """The attribute of the module as the compiler reads and prints it."""
    with context() as ctx:
        module = parse_module(f"module attributes {{{module_attributes(target)}}} {{}}", "t", ctx)
        return str(module)


def limit(text: str, name: str) -> str:
    """The value of one limit in a printed attribute."""
    found = re.search(rf"{name} = (\[[^]]*\]|[^,>]*)", text)
    assert found, text
    return found[1]


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (set(), "x86-64"),
        (FLAGS["x86-64-v2"], "x86-64-v2"),
        (FLAGS["x86-64-v2"] | {"avx", "avx2"}, "x86-64-v2"),  # AVX2 alone makes no level
        (FLAGS["x86-64-v3"], "x86-64-v3"),
        (FLAGS["x86-64-v3"] - {"movbe"}, "x86-64-v2"),
        (FLAGS["x86-64-v3"] | {"avx512f"}, "x86-64-v3"),
        (FLAGS["x86-64-v4"] | {"amx_tile", "avx512_vnni"}, "x86-64-v4"),
    ],
)
def test_cpu_levels_follow_flags(flags: set[str], level: str) -> None:
    """The best level that the processor has all of; what the code will need is written down."""
    target = target_from_facts(DeviceFacts(backend="cpu", isa="x86_64", features=tuple(flags)))
    assert (target.isa, target.name) == (level, f"cpu:{level}")
    assert set(target.needs) <= flags
    assert f"--iree-llvmcpu-target-cpu={level}" in compiler_flags(target)
    assert module_attributes(target) == ""


def test_cpu_without_flags_or_of_another_family() -> None:
    assert target_from_facts(DeviceFacts(backend="cpu")).isa == "x86-64"
    assert target_from_facts(DeviceFacts(backend="cpu", isa="aarch64")).isa == "generic"


def test_named_cpu_level() -> None:
    target = parse_target("cpu:x86-64-v3")
    assert target.needs == dict(X86_LEVELS)["x86-64-v3"]
    assert target_from_facts(target.facts) == target


def test_cpu_of_this_machine_is_read_when_it_can_be() -> None:
    """Without a reader the family's baseline, which runs everywhere."""
    asked: list[str] = []

    def read(uri: str) -> DeviceFacts:
        asked.append(uri)
        return DeviceFacts(backend="cpu", features=tuple(FLAGS["x86-64-v3"]))

    assert parse_target("cpu", read).isa == "x86-64-v3"
    assert parse_target("device:local-sync", read).isa == "x86-64-v3"
    assert asked == ["local-task", "local-sync"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_facts_file_makes_a_target(path: Path) -> None:
    """Parts that are in no table of the compiler are described all the same."""
    target = parse_target(str(path))
    facts = fixture_facts(path.stem)
    assert target.facts == facts
    text = parsed(target)
    shown = f'"{target.isa}"' if target.backend != "vulkan" else '""'
    assert f"#iree_gpu.target<arch = {shown}" in text
    assert limit(text, "subgroup_size_choices") == str(list(facts.wave_widths or (32,)))
    assert limit(text, "max_workgroup_memory_bytes") == str(facts.shared_limit)
    if facts.max_threads_per_block:
        assert limit(text, "max_thread_count_per_workgroup") == str(facts.max_threads_per_block)


@pytest.mark.parametrize(
    "spec", ["cuda:sm_60", "cuda:sm_90", "cuda:sm_90a", "cuda:sm_100", "cuda:sm_120f"]
)
def test_cuda_needs_no_table(spec: str) -> None:
    target = parse_target(spec)
    text = parsed(target)
    assert f'arch = "{target.isa}", features = ""' in text
    assert limit(text, "subgroup_size_choices") == "[32]"
    assert limit(text, "max_workgroup_memory_bytes") == "232448"


@pytest.mark.parametrize(
    ("spec", "waves"),
    [
        ("rocm:gfx1030", (32, "[32]")),
        ("rocm:gfx1201", (32, "[32]")),
        ("rocm:gfx942", (64, "[64]")),
        ("rocm:gfx90a", (64, "[64]")),
    ],
)
def test_rocm_needs_no_table(spec: str, waves: tuple[int, str]) -> None:
    """GCN and CDNA have waves of 64 alone, RDNA runs narrow unless it is told."""
    target = parse_target(spec)
    assert target.wave == waves[0]
    text = parsed(target)
    assert f'arch = "{target.isa}"' in text
    assert 'abi = "hip"' in text
    assert limit(text, "subgroup_size_choices") == waves[1]


@pytest.mark.parametrize(
    ("isa", "version", "features"),
    [
        ("sm_80", (7, 0), ""),
        ("sm_80", (7, 1), "+ptx71"),
        ("sm_89", (8, 4), "+ptx84"),
        ("sm_90a", (8, 6), "+ptx86"),
        ("sm_90a", None, ""),
        ("sm_100a", (8, 6), ""),  # the back end writes that already, and refuses an older one
        ("sm_120", (8, 4), ""),
    ],
)
def test_only_a_newer_ptx_version_is_asked_for(
    isa: str, version: tuple[int, int] | None, features: str
) -> None:
    text = module_attributes(parse_target(f"cuda:{isa}"), ptx_version=version)
    assert f'arch = "{isa}", features = "{features}"' in text


def test_bare_vulkan_has_the_widest_limits_and_knows_no_wave() -> None:
    target = parse_target("vulkan")
    assert (target.wave, target.facts.wave_widths) == (32, None)
    text = parsed(target)
    assert limit(text, "max_workgroup_memory_bytes") == "65536"
    assert limit(text, "compute") == "fp64|fp32|fp16|int64|int32|int16|int8"
    assert limit(text, "storage") == "b32|b16|b8"


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        ({"features": ()}, "compute", "fp32|int32"),
        ({"features": ("fp16", "int8")}, "compute", "fp32|fp16|int32|int8"),
        ({"features": None}, "compute", "fp64|fp32|fp16|int64|int32|int16|int8"),
        ({"storage_features": ()}, "storage", "b32"),
        ({"storage_features": ("b16",)}, "storage", "b32|b16"),
        ({"storage_features": None}, "storage", "b32|b16|b8"),
        ({"shared_bytes_per_block": 0}, "max_workgroup_memory_bytes", "0"),
        ({"shared_bytes_per_block": 1024}, "max_workgroup_memory_bytes", "1024"),
        ({"wave_widths": (64, 32)}, "subgroup_size_choices", "[64, 32]"),
        ({"max_workgroup_sizes": (1 << 32,) * 3}, "max_workgroup_sizes", f"{[2**31 - 1] * 3}"),
        ({"max_workgroup_counts": (1 << 32,) * 3}, "max_workgroup_counts", f"{[2**31 - 1] * 3}"),
    ],
)
def test_vulkan_limits_follow_facts(changes: dict[str, Any], name: str, value: str) -> None:
    """A limit of zero stays zero; what is unknown is as wide as it can be."""
    facts = replace(DeviceFacts(backend="vulkan"), **changes)
    assert limit(parsed(target_from_facts(facts)), name) == value


@given(
    sizes=st.none() | st.lists(st.integers(-1, 1 << 34), max_size=4).map(tuple),
    waves=st.none() | st.lists(st.integers(0, 1 << 12), max_size=3).map(tuple),
    shared=st.none() | st.integers(-5, 1 << 40),
    threads=st.none() | st.integers(-5, 1 << 40),
    features=st.none() | st.lists(st.text(max_size=5), max_size=2).map(tuple),
)
def test_any_facts_make_a_target_that_parses(
    sizes: tuple[int, ...] | None,
    waves: tuple[int, ...] | None,
    shared: int | None,
    threads: int | None,
    features: tuple[str, ...] | None,
) -> None:
    facts = DeviceFacts(
        backend="vulkan",
        wave_widths=waves,
        shared_bytes_per_block=shared,
        max_threads_per_block=threads,
        max_workgroup_sizes=sizes,
        max_workgroup_counts=sizes,
        features=features,
    )
    assert "#iree_gpu.target" in parsed(target_from_facts(clamped(facts)))


@pytest.mark.parametrize(
    "spec",
    [
        *("", "gpu", "cpu:", "cpu:skylake", "cuda", "cuda:", "cuda:90", "cuda:sm_1", "CUDA:sm_80"),
        *("cuda:sm_٣٣", "rocm:gfx", "rocm:GFX1100", "rocm:gfx1100:xnack+", "hip:gfx1100"),
        *("vulkan:1", "device:", ".", "\0", "x" * 5000),
    ],
)
def test_unknown_names_are_refused(spec: str) -> None:
    with pytest.raises(TargetError, match="is not one of cpu, cuda:sm_NN, rocm:gfxNNN, vulkan"):
        parse_target(spec)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (DeviceFacts(backend="cuda"), "facts of a cuda device lack its isa"),
        (DeviceFacts(backend="cuda", isa='sm_90"'), "is not understood"),
        (DeviceFacts(backend="rocm", isa="sm_90"), "is not understood"),
        (DeviceFacts(backend="metal"), "backend 'metal' is not one of"),
    ],
)
def test_facts_that_name_nothing_are_refused(facts: DeviceFacts, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        target_from_facts(facts)


def test_bad_facts_files(tmp_path: Path) -> None:
    """Missing, a folder, no JSON, JSON of something else: each by its name."""
    with pytest.raises(TargetError, match=r"none.json: cannot read facts file: No such file"):
        parse_target(str(tmp_path / "none.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(TargetError, match=r"folder.json: cannot read facts file: Is a directory"):
        parse_target(str(tmp_path / "folder.json"))
    for text in ("", "[]", "{", json.dumps({"backend": "cuda", "isa": 5}), '{"isa": "sm_90"}'):
        file = tmp_path / "facts"
        file.write_text(text)
        with pytest.raises(FormatError, match="facts"):
            parse_target(str(file))
    with pytest.raises(TargetError, match="needs a device, none can be read here"):
        parse_target("device:cuda")
