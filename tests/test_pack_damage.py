"""Nothing of a damaged or foreign pack is loaded: an odd byte is an error that names the file."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialects.codec import dumps
from dialects.errors import Error, PackError
from dialects.facts import DeviceFacts
from dialects.member import problem
from packs import Packs, copied
from runtime import Session
from runtime.filter import filter_candidates
from runtime.pack import open_pack
from runtime.report import Explanation

KERNEL = "matmul_f32"
FACTS = DeviceFacts(backend="cpu")


@pytest.fixture
def pack(packs: Packs, tmp_path: Path) -> Path:
    """A pack to spoil."""
    return copied(packs.path(KERNEL), tmp_path / "pack")


def files_of(pack: Path) -> list[Path]:
    """Every file of a pack."""
    return sorted(p for p in pack.rglob("*") if p.is_file())


def refused(pack: Path) -> str:
    """The error, which is the same from the reader and from a session."""
    with pytest.raises(PackError) as caught:
        open_pack(pack).verify()
    with pytest.raises(PackError) as again:
        Session(pack)
    assert str(again.value) == str(caught.value)
    return str(caught.value)


def test_flipped_bits(pack: Path) -> None:
    """In any file, at its start, its end, and between."""
    for path in files_of(pack):
        content = path.read_bytes()
        for offset in {0, 1, len(content) // 4, len(content) // 2, len(content) - 2}:
            for bit in (0, 7):
                spoiled = bytearray(content)
                spoiled[offset] ^= 1 << bit
                path.write_bytes(spoiled)
                assert str(path) in refused(pack)
        path.write_bytes(content)
    open_pack(pack).verify()


def test_cut_and_grown_files(pack: Path) -> None:
    for path in files_of(pack):
        content = path.read_bytes()
        for other in (
            b"",
            content[:1],
            content[: len(content) // 2],
            content[:-1],
            content + b"\n",
        ):
            path.write_bytes(other)
            assert str(path) in refused(pack)
        path.write_bytes(content)


def test_missing_files_and_things_that_are_none(pack: Path) -> None:
    for path in files_of(pack):
        content = path.read_bytes()
        path.unlink()
        assert "No such file" in refused(pack)
        path.mkdir()
        assert "Is a directory" in refused(pack)
        path.rmdir()
        path.symlink_to(path)
        refused(pack)
        path.unlink()
        path.write_bytes(content)


def test_files_may_not_lead_out_of_the_pack(pack: Path, tmp_path: Path) -> None:
    """A link to the very same content elsewhere is none of the pack's files."""
    for path in files_of(pack):
        if path.name != "manifest.json":
            outside = tmp_path / path.name
            shutil.move(path, outside)
            path.symlink_to(outside)
            assert "lies outside of the pack" in refused(pack)
            path.unlink()
            shutil.move(outside, path)


def test_a_pack_is_a_folder(pack: Path, tmp_path: Path) -> None:
    assert "Not a directory" in refused(pack / "manifest.json")
    assert "No such file" in refused(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "No such file" in refused(tmp_path / "empty")


def manifest(pack: Path) -> dict[str, Any]:
    """The manifest as JSON."""
    return json.loads((pack / "manifest.json").read_text())


def sealed(value: dict[str, Any]) -> str:
    """The text of a manifest with a digest that fits."""
    text = dumps({**value, "digest": ""})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text.replace('"digest": ""', f'"digest": "{digest}"', 1)


def write(pack: Path, value: dict[str, Any]) -> None:
    """Replace the manifest, with a digest that fits."""
    (pack / "manifest.json").write_text(sealed(value))


def test_the_seal_of_these_tests_is_the_real_one(pack: Path) -> None:
    before = (pack / "manifest.json").read_text()
    write(pack, manifest(pack))
    assert (pack / "manifest.json").read_text() == before


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("schema_version", 2, "pack of schema 2, this runtime reads 1"),
        ("schema_version", "1", 'pack of schema "1", this runtime reads 1'),
        ("schema_version", None, "pack of schema null"),
        ("requires_runtime", "iree 3.12", 'pack requires runtime "iree 3.12", this one is'),
        ("requires_runtime", None, "pack requires runtime null"),
        ("later", 1, "unknown key 'later'"),
        ("kernels", {}, "kernels"),
    ],
)
def test_another_schema_or_runtime(pack: Path, key: str, value: Any, text: str) -> None:
    write(pack, {**manifest(pack), key: value})
    assert text in refused(pack)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "[" * 100000, '{"schema_version": 1e999}', '{"a": ' + "9" * 5000 + "}"],
    ids=["empty", "cut", "a list", "null", "deep", "infinite", "a large number"],
)
def test_texts_that_are_no_manifest(pack: Path, text: str) -> None:
    (pack / "manifest.json").write_text(text)
    assert str(pack / "manifest.json") in refused(pack)


@pytest.mark.parametrize(
    "path", ["../manifest.json", "/etc/hostname", "", ".", "a\0b", "x" * 5000, "nothing"]
)
def test_a_manifest_that_names_odd_files(pack: Path, path: str) -> None:
    value = manifest(pack)
    files = value["kernels"][0]["members"][0]["files"]
    files["sha256"] = {path: files["sha256"][files["vmfb"]]}
    files["vmfb"] = path
    write(pack, value)
    refused(pack)


def places(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value."""
    yield here
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from places(child, (*here, key))


def changed(value: Any, place: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy with one value replaced."""
    if not place:
        return change(value)
    result = copy.copy(value)
    result[place[0]] = changed(value[place[0]], place[1:], change)
    return result


ODD = [
    None,
    True,
    -1,
    0,
    1 << 70,
    1.5,
    "",
    "M",
    "x",
    "9 ** 9",
    "M // 0",
    [],
    ["M", "M"],
    {},
    {"a": 1},
]


@pytest.fixture(scope="module")
def example(packs: Packs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One pack that a property test spoils again and again."""
    return copied(packs.path("matmul_bias_relu"), tmp_path_factory.mktemp("fuzzed") / "pack")


@settings(
    max_examples=250,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_manifest_that_a_faulty_builder_sealed(
    example: Path, packs: Packs, data: st.DataObject
) -> None:
    """One odd value anywhere: it is refused, or judged like any other; nothing else is raised."""
    value = manifest(packs.path("matmul_bias_relu"))
    place = data.draw(st.sampled_from(list(places(value))))
    odd = data.draw(st.sampled_from(ODD))
    spoiled = changed(value, place, lambda old: odd)
    if not isinstance(spoiled, dict):
        return
    write(example, spoiled)
    with suppress(Error):
        opened = open_pack(example)
        for kernel in opened.manifest.kernels:
            at = problem(kernel.kernel, kernel.dims, (5,) * len(kernel.dims))
            verdicts = tuple(filter_candidates(kernel, FACTS, at))
            explanation = Explanation(
                kernel=kernel.kernel, problem=at, device="cpu", verdicts=verdicts
            )
            json.dumps(explanation.to_json())
            assert explanation.table().row_count == len(verdicts)
            assert str(explanation)
