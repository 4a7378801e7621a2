"""Device facts: the JSON of a facts file, ranges, and the URIs of devices."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dialects.errors import DeviceError, FormatError
from dialects.facts import RANGES, DeviceFacts, clamped, facts_from_json, facts_to_json
from facts_files import PATHS, fixture_facts
from runtime.facts import read_facts


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_fixture_survives_a_round_trip(path: Path) -> None:
    facts = facts_from_json(path.read_bytes(), where=path.name)
    assert facts_to_json(facts) == json.loads(path.read_text())
    assert facts_from_json(json.dumps(facts_to_json(facts)), where="again") == facts


def test_there_are_fixtures_of_every_gpu_backend() -> None:
    assert {fixture_facts(p.stem).backend for p in PATHS} == {"cuda", "rocm", "vulkan"}


def test_a_missing_key_is_unknown_and_a_listed_one_is_not() -> None:
    facts = fixture_facts("cuda-rtx4090")
    assert facts.l2_bytes is None
    assert facts.native_matrix_configs is None
    assert facts.shared_limit == 101376
    assert fixture_facts("vulkan-swiftshader").native_matrix_configs == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"multiprocesors": 4}, "f.json: unknown key 'multiprocesors'"),
        ({"multiprocessors": "4"}, "f.json: 'multiprocessors' must be an integer, found \"4\""),
        ({"multiprocessors": True}, "f.json: 'multiprocessors' must be an integer, found true"),
        ({"multiprocessors": 4.0}, "f.json: 'multiprocessors' must be an integer, found 4.0"),
        ({"wave_widths": 32}, "f.json: 'wave_widths' must be a list, found 32"),
        ({"wave_widths": [32, None]}, "f.json: 'wave_widths[1]' must be an integer, found null"),
        ({"backend": None}, "f.json: 'backend' must be a string, found null"),
        ({"schema_version": 2}, "f.json: facts of schema 2, required 1"),
        (
            {"native_matrix_configs": [{"m": 8, "n": 8, "k": 8, "a": "f16", "b": "f16"}]},
            "f.json: key 'native_matrix_configs[0].acc' is missing",
        ),
        (
            {"native_matrix_configs": [{"m": 8, "tile": 8}]},
            "f.json: unknown key 'native_matrix_configs[0].tile'",
        ),
        ({"sources": {"name": 3}}, "f.json: 'sources.name' must be a string, found 3"),
    ],
)
def test_a_wrong_facts_file_is_refused_by_path(change: dict[str, Any], message: str) -> None:
    text = json.dumps({"schema_version": 1, "backend": "cuda", **change})
    with pytest.raises(FormatError) as caught:
        facts_from_json(text, where="f.json")
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"backend": NaN}', '{"backend": 1e999}'])
def test_what_is_no_facts_object_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        facts_from_json(text, where="f.json")


@pytest.mark.parametrize(("field", "bounds"), RANGES.items())
def test_a_number_outside_its_range_is_unknown(field: str, bounds: tuple[int, int]) -> None:
    least, greatest = bounds
    for value, kept in ((least, least), (greatest, greatest), (least - 1, None)):
        assert getattr(clamped(replace(DeviceFacts(backend="cuda"), **{field: value})), field) == (
            kept
        )
    over = replace(DeviceFacts(backend="cuda", name="kept"), **{field: greatest + 1})
    assert clamped(over) == DeviceFacts(backend="cuda", name="kept")


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("wave_widths", (32, 64), (32, 64)),
        ("wave_widths", (0, 64), None),
        ("wave_widths", (2048,), None),
        ("wave_widths", (), None),
        ("requirable_wave_widths", (), ()),
        ("max_workgroup_counts", (0, 1, 1), None),
        ("max_workgroup_counts", (2147483647, 65535, 65535), (2147483647, 65535, 65535)),
        ("max_workgroup_sizes", (1024, 1024, (1 << 32) + 1), None),
    ],
)
def test_a_list_with_one_unbelievable_number_is_unknown(
    field: str, value: tuple[int, ...], kept: tuple[int, ...] | None
) -> None:
    facts = replace(DeviceFacts(backend="vulkan"), **{field: value})
    assert getattr(clamped(facts), field) == kept


@pytest.mark.parametrize("uri", ["", "metal", "Vulkan", "vulkan:0", "local-task/0"])
def test_an_unknown_uri_is_refused_with_what_works(uri: str) -> None:
    with pytest.raises(DeviceError, match="local-sync, local-task, vulkan") as caught:
        read_facts(uri)
    assert f"'{uri}'" in caught.value.message


@pytest.mark.parametrize("uri", ["local-task://0", "local-sync://x"])
def test_the_processor_takes_no_path(uri: str) -> None:
    with pytest.raises(DeviceError, match="takes no path"):
        read_facts(uri)
