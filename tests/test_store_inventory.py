"""What the command line does with a store's directory."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.errors import FormatError, StoreError
from runtime.files import SYSTEM
from runtime.store import (
    Store,
    drop,
    entries,
    export_all,
    import_all,
    show,
    verify,
)
from stored_choices import PLACE, file_of, filled, made, texts


def test_entries_and_show(tmp_path: Path) -> None:
    assert entries(tmp_path / "missing") == []
    places = filled(tmp_path)
    assert [e.location for e in entries(tmp_path)] == places
    assert [e.choice.member for e in show(tmp_path, places[1].key)] == ["m1"]
    assert [e.choice.member for e in show(tmp_path, places[1].path.name)] == ["m1"]
    assert len(show(tmp_path, "cuda-*/*")) == 3
    with pytest.raises(StoreError, match="no entry matches 'nothing'"):
        show(tmp_path, "nothing")
    file_of(tmp_path, places[1]).write_bytes(b"")
    with pytest.raises(StoreError, match="empty file") as refused:
        show(tmp_path, places[1].key)
    assert refused.value.where == str(file_of(tmp_path, places[1]))
    assert [e.choice.member for e in show(tmp_path, "*")] == ["m0", "m2"]


def test_drop_deletes_what_matches_and_no_file_of_others(tmp_path: Path) -> None:
    places = filled(tmp_path)
    file_of(tmp_path, places[2]).write_text("damaged")
    strangers = [tmp_path / "notes.txt", file_of(tmp_path).parent / "notes.txt"]
    for stranger in strangers:
        stranger.write_text("mine")
    assert drop(tmp_path, "nothing") == []
    assert drop(tmp_path, places[0].key) == [file_of(tmp_path, places[0])]
    assert drop(tmp_path, "*") == [file_of(tmp_path, p) for p in places[1:]]
    assert drop(tmp_path, "*") == []
    assert all(s.read_text() == "mine" for s in strangers)


def test_verify_names_what_is_odd_and_cleans_up_after_crashed_writers(tmp_path: Path) -> None:
    places = filled(tmp_path)
    assert verify(tmp_path) == []
    damaged = file_of(tmp_path, places[1])
    damaged.write_bytes(damaged.read_bytes()[:100])
    left = damaged.parent / f".{'0' * 32}.tmp"
    left.write_text("half")
    (tmp_path / "notes.txt").write_text("mine")
    reasons = dict(verify(tmp_path))
    assert set(reasons) == {damaged, left, tmp_path / "notes.txt"}
    assert "not valid JSON" in reasons[damaged]
    assert reasons[left] == "left by a writer that did not finish, deleted"
    assert reasons[tmp_path / "notes.txt"] == "not a store entry"
    assert not left.exists()
    assert damaged.exists()
    assert (tmp_path / "notes.txt").exists()
    assert len(entries(tmp_path)) == 2


def test_a_writer_whose_temporary_file_is_cleaned_away_writes_again(tmp_path: Path) -> None:
    cleaned = []

    def replace(source: Path, target: Path) -> None:
        if not cleaned:
            cleaned.extend(verify(tmp_path))
        os.replace(source, target)

    store = Store(tmp_path, dataclasses.replace(SYSTEM, replace=replace))
    assert store.remember(PLACE, "b", made()) is None
    assert len(cleaned) == 1
    assert Store(tmp_path).recall(PLACE, "b").value == made()


def test_export_and_import_carry_everything(tmp_path: Path) -> None:
    places = filled(tmp_path / "one")
    text = json.dumps(export_all(tmp_path / "one"))
    assert import_all(tmp_path / "two", json.loads(text)) == 3
    for place in places:
        assert file_of(tmp_path / "two", place).read_bytes() == (
            file_of(tmp_path / "one", place).read_bytes()
        )
    assert import_all(tmp_path / "two", export_all(tmp_path / "missing")) == 0
    assert len(entries(tmp_path / "two")) == 3


def _samples(time: float) -> Any:
    return lambda d: d["entries"][2]["choice"]["samples"].update(a=[time])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.update(schema_version=2), "not an export of schema 1"),
        (lambda d: d.update(entries={}), "not an export of schema 1"),
        (lambda d: d.pop("entries"), "not an export"),
        (lambda d: d.update(more=1), "not an export"),
        (lambda d: d["entries"].append(7), "entries[3]: '' must be an object"),
        (lambda d: d["entries"].append(d["entries"][0]), "entries[3]: a second entry"),
        (lambda d: d["entries"][2].update(build="x"), "entries[2]: checksum does not match"),
        (lambda d: d["entries"][2].update(schema_version=9), "entries[2]: schema 9, required 1"),
        (lambda d: d["entries"][2].update(build="\ud800"), "entries[2]: a value out of range"),
        (_samples(math.nan), "entries[2]: a value out of range"),
        (_samples(10**400), "entries[2]: 'choice.samples.a[0]' must be a number"),
        (lambda d: d["entries"][2]["choice"].pop("body"), "entries[2]: key 'choice.body'"),
    ],
)
def test_a_malformed_import_changes_nothing(tmp_path: Path, edit: Any, message: str) -> None:
    filled(tmp_path / "one")
    data = export_all(tmp_path / "one")
    edit(data)
    with pytest.raises(FormatError) as refused:
        import_all(tmp_path / "two", data)
    assert message in str(refused.value)
    assert not (tmp_path / "two").exists()


def test_an_import_cannot_leave_the_directory(tmp_path: Path) -> None:
    place = dataclasses.replace(PLACE, device="../../outside", key="../../../key")
    Store(tmp_path / "one").remember(place, "b", made())
    import_all(tmp_path / "a" / "two", export_all(tmp_path / "one"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "one"]
    assert Store(tmp_path / "a" / "two").recall(place, "b").value == made()


@pytest.mark.parametrize("action", [entries, export_all, verify, lambda d: drop(d, "*")])
def test_a_directory_that_cannot_be_listed_is_named(tmp_path: Path, action: Any) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="is a file") as refused:
        action(tmp_path / "file")
    assert refused.value.where == str(tmp_path / "file")


def test_export_refuses_to_leave_out_what_it_cannot_read(tmp_path: Path) -> None:
    places = filled(tmp_path)
    file = file_of(tmp_path, places[1])
    file.write_text("damaged")
    assert len(export_all(tmp_path)["entries"]) == 2
    file.unlink()
    file.symlink_to(file)
    with pytest.raises(StoreError, match="too many levels of symbolic links") as refused:
        export_all(tmp_path)
    assert refused.value.where == str(file)
    assert drop(tmp_path, places[1].key) == [file]
    assert len(export_all(tmp_path)["entries"]) == 2


def test_import_refuses_a_directory_that_is_a_file(tmp_path: Path) -> None:
    filled(tmp_path / "one")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StoreError, match="is a file"):
        import_all(tmp_path / "file", export_all(tmp_path / "one"))


@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["entries", "schema_version", "choice"]), inner)
        ),
        max_leaves=10,
    )
)
def test_no_json_value_breaks_the_import(data: Any) -> None:
    with tempfile.TemporaryDirectory() as name:
        with suppress(FormatError):
            assert import_all(Path(name), data) == 0
        assert list(Path(name).iterdir()) == []
