"""Facts of a Vulkan device, from made-up reports and from the device of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from iree.runtime import get_driver

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts, MatrixConfig, facts_from_json, facts_to_json
from facts_files import PATHS, fixture_facts
from runtime.facts import read_facts
from runtime.facts.vulkan import facts_of, read_vulkan_facts, select
from runtime.facts.vulkan_report import CooperativeRow, Report, ShaderCore

REPORT = Report(
    name="Some Device",
    api_version=1 << 22 | 3 << 12 | 230,
    uuid="00" * 15 + "2a",
    driver="driver 1.2",
    extensions=frozenset(),
    features=frozenset({"shaderFloat16", "subgroupSizeControl", "storageBuffer16BitAccess"}),
    subgroup_size=32,
    min_subgroup_size=8,
    max_subgroup_size=32,
    sized_stages=0x20,
    max_invocations=1024,
    max_sizes=(1024, 1024, 64),
    max_counts=(65535, 65535, 65535),
    shared_bytes=49152,
    max_storage_range=1 << 30,
    local_bytes=8 << 30,
)
ROW = CooperativeRow(m=16, n=8, k=16, a=0, b=0, c=1, result=1, saturating=False, scope=3)


def test_the_facts_of_a_report() -> None:
    facts = facts_of(REPORT)
    assert facts == DeviceFacts(
        source="read from the Vulkan driver driver 1.2",
        backend="vulkan",
        name="Some Device",
        api="1.3.230",
        uuid="00" * 15 + "2a",
        driver="driver 1.2",
        wave_widths=(8, 16, 32),
        requirable_wave_widths=(8, 16, 32),
        max_threads_per_block=1024,
        max_workgroup_sizes=(1024, 1024, 64),
        max_workgroup_counts=(65535, 65535, 65535),
        shared_bytes_per_block=49152,
        memory_bytes=8 << 30,
        max_binding_bytes=1 << 30,
        features=("fp16",),
        storage_features=("b16",),
        native_matrix_configs=(),
        sources=facts.sources,
    )
    assert set(facts.sources or {}) == set(facts_to_json(facts)) - {
        "schema_version", "source", "backend", "sources",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "widths", "requirable"),
    [
        ({"sized_stages": 0x10}, (32,), ()),
        ({"features": frozenset()}, (32,), ()),
        ({"min_subgroup_size": 0, "max_subgroup_size": 0}, (32,), ()),
        ({"min_subgroup_size": 32, "max_subgroup_size": 64}, (32, 64), (32, 64)),
    ],
)
def test_wave_widths_of_a_report(
    change: dict[str, Any], widths: tuple[int, ...], requirable: tuple[int, ...]
) -> None:
    facts = facts_of(replace(REPORT, **change))
    assert (facts.wave_widths, facts.requirable_wave_widths) == (widths, requirable)


def test_cooperative_matrix_rows_become_configs() -> None:
    rows = (
        ROW,
        ROW,
        replace(ROW, a=1000141000, b=1000141000),
        replace(ROW, k=32, a=7, b=7, c=9, result=9),
        replace(ROW, k=32, a=3, b=3, c=5, result=5, saturating=True),
        replace(ROW, a=4, b=4),
        replace(ROW, c=0),
        replace(ROW, scope=2),
    )
    assert facts_of(replace(REPORT, cooperative_rows=rows)).native_matrix_configs == (
        MatrixConfig(m=16, n=8, k=16, a="f16", b="f16", acc="f32"),
        MatrixConfig(m=16, n=8, k=16, a="bf16", b="bf16", acc="f32"),
        MatrixConfig(m=16, n=8, k=32, a="u8", b="u8", acc="u32"),
        MatrixConfig(m=16, n=8, k=16, a="f16", b="f16", acc="f32", scope="workgroup"),
    )


def test_all_feature_bits_and_the_bfloat_extension() -> None:
    bits = "shaderFloat16 shaderInt8 shaderInt16 shaderInt64 shaderFloat64 storageBuffer8BitAccess"
    report = replace(
        REPORT,
        features=frozenset(bits.split()),
        extensions=frozenset({"VK_KHR_shader_bfloat16"}),
    )
    facts = facts_of(report)
    assert facts.features == ("fp16", "int8", "int16", "int64", "fp64", "bf16")
    assert facts.storage_features == ("b8",)


def test_geometry_from_the_vendor_extensions() -> None:
    facts = facts_of(replace(REPORT, sm_builtins=(132, 64), min_subgroup_size=32))
    assert (facts.multiprocessors, facts.threads_per_multiprocessor) == (132, 2048)

    core = ShaderCore(
        compute_units=40,
        simds_per_unit=2,
        wavefronts_per_simd=16,
        wavefront_size=64,
        vgprs_per_simd=768,
    )
    report = replace(REPORT, shader_core=core, min_subgroup_size=32, max_subgroup_size=64)
    known = fixture_facts("rocm-gfx1151")
    for field in (
        "multiprocessors",
        "simds_per_multiprocessor",
        "threads_per_multiprocessor",
        "registers_per_multiprocessor",
    ):
        assert getattr(facts_of(report), field) == getattr(known, field), field
    assert (facts_of(replace(report, min_subgroup_size=64)).multiprocessors) == 40


def test_an_unbelievable_limit_is_unknown_and_has_no_source() -> None:
    facts = facts_of(replace(REPORT, max_invocations=0, max_storage_range=1 << 61))
    assert (facts.max_threads_per_block, facts.max_binding_bytes) == (None, None)
    assert not {"max_threads_per_block", "max_binding_bytes"} & set(facts.sources or {})


UUIDS = ["6d65" + "00" * 14, "ab" * 16]


@pytest.mark.parametrize(
    ("selector", "place"),
    [
        ("", 0),
        ("0", 0),
        ("1", 1),
        ("ab" * 16, 1),
        ("GPU-" + "ab" * 16, 1),
        ("ABABABAB-ABAB-ABAB-ABAB-ABABABABABAB", 1),
    ],
)
def test_a_device_is_selected_by_place_or_uuid(selector: str, place: int) -> None:
    assert select(selector, UUIDS) == UUIDS[place]


@pytest.mark.parametrize("selector", ["2", "-1", "ab", "GPU-", "²", "0x0"])
def test_a_selector_that_fits_nothing_is_refused_with_what_there_is(selector: str) -> None:
    with pytest.raises(DeviceError, match=f"no device '{selector}', there are 0: GPU-6d65"):
        select(selector, UUIDS)


def test_no_device_at_all() -> None:
    with pytest.raises(DeviceError, match="there is no device"):
        select("", [])


def test_the_live_vulkan_device(vulkan_device: str) -> None:
    listed = get_driver("vulkan").query_available_devices()[0]
    facts = read_facts(vulkan_device)
    assert facts.backend == "vulkan"
    assert listed["path"] == f"GPU-{facts.uuid}"
    assert facts.name is not None
    assert listed["name"].startswith(facts.name)
    assert (facts.max_threads_per_block or 0) >= 128  # the least that Vulkan allows
    assert (facts.shared_bytes_per_block or 0) >= 16384
    assert (facts.max_binding_bytes or 0) >= 1 << 27
    assert (facts.memory_bytes or 0) >= 1 << 27
    for uri in (f"vulkan://GPU-{facts.uuid}", f"vulkan://{facts.uuid}", "vulkan://0", "vulkan://"):
        assert read_facts(uri) == facts
    assert facts_from_json(json.dumps(facts_to_json(facts)), where="live") == facts


def test_the_live_vulkan_device_matches_its_fixture(vulkan_device: str) -> None:
    facts = read_facts(vulkan_device)
    known = [fixture_facts(p.stem) for p in PATHS]
    name = facts.name or ""
    same = [
        f
        for f in known
        if (f.backend, f.api) == ("vulkan", facts.api) and f.name and name.startswith(f.name)
    ]
    if not same:
        pytest.skip(f"no fixture of {facts.name} with Vulkan {facts.api}")
    for field, value in facts_to_json(same[0]).items():
        if field in ("source", "name"):
            continue
        found = facts_to_json(facts)[field]
        if field == "features":  # a fixture lists only the types that matrices are made of
            found = [f for f in found if f in ("fp16", "int8", "bf16")]
        assert found == value, field


def test_without_a_driver_the_error_says_so() -> None:
    script = (
        "from dialects.errors import DeviceError\n"
        "from runtime.facts import read_facts\n"
        "try:\n read_facts('vulkan')\n"
        "except DeviceError as error:\n print(error)\n"
    )
    nowhere = {"VK_ICD_FILENAMES": os.devnull, "VK_DRIVER_FILES": os.devnull}
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("vulkan: the loader ")


def test_without_a_loader_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vulkan", None)
    with pytest.raises(DeviceError, match="vulkan: the loader cannot be opened"):
        read_vulkan_facts()
