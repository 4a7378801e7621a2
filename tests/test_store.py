"""Recall and remember: round trips, builds and odd directories."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from dialects.errors import StoreError
from runtime.files import SYSTEM, FileCalls
from runtime.store import (
    Location,
    Store,
    StoredChoice,
    check_directory,
    entries,
    verify,
)
from stored_choices import NO_SYNC, PLACE, choices, file_of, made, places, texts


@settings(max_examples=150)
@given(places, texts, choices)
def test_any_key_and_value_round_trips(place: Location, build: str, value: StoredChoice) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        assert Store(directory, NO_SYNC).remember(place, build, value) is None
        recalled = Store(directory).recall(place, build)
        assert (recalled.value, recalled.reason) == (value, "disk")
        (file,) = [p for p in directory.rglob("*") if p.is_file()]
        assert file.relative_to(directory).parts == place.path.parts
        assert all(c.isascii() and (c.isalnum() or c in "._-") for c in "".join(place.path.parts))
        assert [e.choice for e in entries(directory)] == [value]
        assert verify(directory) == []


def test_a_new_process_recalls_what_was_remembered(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "store")
    assert store.recall(PLACE, "b").reason == "not stored"
    assert store.remember(PLACE, "b", made()) is None
    assert store.persists
    assert store.recall(PLACE, "b").reason == "memory"
    fresh = Store(tmp_path / "deep" / "store")
    assert (fresh.recall(PLACE, "b").value, fresh.recall(PLACE, "b").reason) == (made(), "memory")
    assert [p.name for p in file_of(tmp_path / "deep" / "store").parent.iterdir()] == [
        PLACE.path.name
    ]


def test_without_a_directory_nothing_is_written(tmp_path: Path) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("a file call")

    calls = FileCalls(**{f.name: refuse for f in dataclasses.fields(FileCalls)})
    store = Store(None, calls)
    assert store.recall(PLACE, "b").reason == "not stored"
    assert store.remember(PLACE, "b", made()) is None
    assert store.recall(PLACE, "b").value == made()
    assert not store.persists


def test_the_value_of_another_build_is_dropped_and_reported(tmp_path: Path) -> None:
    Store(tmp_path).remember(PLACE, "old", made())
    recalled = Store(tmp_path).recall(PLACE, "new")
    assert (recalled.value, recalled.reason) == (None, "another build")
    assert recalled.dropped == file_of(tmp_path)
    assert list(file_of(tmp_path).parent.iterdir()) == []
    assert Store(tmp_path).recall(PLACE, "new").reason == "not stored"


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_rebuild_in_the_same_process_is_a_miss(tmp_path: Path, on_disk: bool) -> None:
    store = Store(tmp_path if on_disk else None)
    store.remember(PLACE, "old", made("a"))
    recalled = store.recall(PLACE, "new")
    assert (recalled.value, recalled.reason) == (None, "another build")
    store.remember(PLACE, "new", made("b"))
    assert store.recall(PLACE, "new").value == made("b")
    assert store.recall(PLACE, "old").value is None


@pytest.mark.parametrize("readable", [True, False])
def test_a_file_that_changed_since_it_was_read_is_not_dropped(
    tmp_path: Path, readable: bool
) -> None:
    Store(tmp_path).remember(PLACE, "old", made("a"))
    overtakers = []

    def replace(source: Path, target: Path) -> None:
        if source == file_of(tmp_path):
            overtakers.append(Store(tmp_path).remember(PLACE, "new", made("b")))
        os.replace(source, target)

    def read(handle: int, count: int) -> bytes:
        if overtakers and not readable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.read(handle, count)

    slow = Store(tmp_path, dataclasses.replace(SYSTEM, replace=replace, read=read))
    recalled = slow.recall(PLACE, "new")
    assert overtakers == [None]
    assert (recalled.reason, recalled.dropped) == ("another build", None)
    assert Store(tmp_path).recall(PLACE, "new").value == made("b")


def test_integer_times_are_the_same_value_as_their_floats(tmp_path: Path) -> None:
    whole = dataclasses.replace(made(), samples={"a": (3, 4)})
    Store(tmp_path).remember(PLACE, "b", whole)
    recalled = Store(tmp_path).recall(PLACE, "b").value
    assert recalled is not None
    assert recalled == whole
    assert all(type(t) is float for t in recalled.samples["a"])


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": {"a": (math.inf,)}},
        {"samples": {"a": (math.nan,)}},
        {"samples": {"a": ("slow",)}},
        {"clocks": {"sm": object()}},
        {"member": "\ud800"},
        {"samples": {"a": (1.5,) * 150_000}},
    ],
)
def test_a_value_that_no_file_can_carry_stays_in_memory(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    store, value = Store(tmp_path), dataclasses.replace(made(), **changes)
    warning = store.remember(PLACE, "b", value)
    assert warning is not None
    assert "choices stay in the memory of this process" in warning
    assert store.recall(PLACE, "b").value == value
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def _refusing(code: int, *names: str) -> FileCalls:
    def refuse(*_: object) -> Any:
        raise OSError(code, os.strerror(code))

    return dataclasses.replace(SYSTEM, **{name: refuse for name in names})


def _odd_directories(base: Path) -> list[tuple[Path, FileCalls, str]]:
    (base / "file").write_text("mine")
    (base / "loop").symlink_to(base / "loop")
    (base / "dangling").symlink_to(base / "gone")
    return [
        (base / "file", SYSTEM, "is a file"),
        (base / "file" / "below", SYSTEM, "is a file, or lies under one"),
        (base / "loop", SYSTEM, "is a loop of symbolic links"),
        (base / "dangling" / "below", SYSTEM, "no such file or directory (ENOENT)"),
        (base / "locked", _refusing(errno.EACCES, "mkdir", "open"), "permission denied (EACCES)"),
        (base / "sealed", _refusing(errno.EROFS, "mkdir"), "read-only file system (EROFS)"),
        (base / "full", _refusing(errno.ENOSPC, "write"), "no space left on device (ENOSPC)"),
        (base / "quota", _refusing(errno.EDQUOT, "close"), "disk quota exceeded (EDQUOT)"),
        (base / "a\0b", SYSTEM, "embedded null byte"),
        (base / ("n" * 300), SYSTEM, "file name too long (ENAMETOOLONG)"),
    ]


@pytest.mark.parametrize("index", range(10))
def test_an_unusable_directory_gives_memory_and_one_warning(tmp_path: Path, index: int) -> None:
    directory, files, what = _odd_directories(tmp_path)[index]
    with pytest.raises(StoreError) as refused:
        check_directory(directory, files)
    assert what in refused.value.message
    assert refused.value.where == str(directory)
    store = Store(directory, files)
    assert store.recall(PLACE, "b").value is None
    warning = store.remember(PLACE, "b", made())
    assert warning is not None
    assert str(directory) in warning
    assert store.remember(PLACE, "b", made("later")) is None
    assert store.recall(PLACE, "b").value == made("later")
    assert not store.persists
    assert (tmp_path / "file").read_text() == "mine"


def test_check_directory_makes_a_missing_one_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    check_directory(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_link_to_a_directory_works(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Store(tmp_path / "link").remember(PLACE, "b", made()) is None
    assert Store(tmp_path / "real").recall(PLACE, "b").value == made()


def test_a_directory_deleted_under_the_store_is_made_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.remember(PLACE, "b", made())
    file_of(tmp_path / "store").unlink()
    file_of(tmp_path / "store").parent.rmdir()
    (tmp_path / "store").rmdir()
    assert store.remember(PLACE, "b", made("again")) is None
    assert Store(tmp_path / "store").recall(PLACE, "b").value == made("again")


def test_a_store_persists_again_when_the_directory_can_be_written_again(tmp_path: Path) -> None:
    broken = [True]

    def write(handle: int, data: bytes) -> int:
        if broken[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(handle, data)

    store = Store(tmp_path, dataclasses.replace(SYSTEM, write=write))
    assert store.remember(PLACE, "b", made("a")) is not None
    assert not store.persists
    broken[0] = False
    assert store.remember(PLACE, "b", made("b")) is None
    assert store.persists
    assert Store(tmp_path).recall(PLACE, "b").value == made("b")
