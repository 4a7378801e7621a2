"""Damaged and odd files: a miss with a reason, never an exception, never a wrong value."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from runtime.store import (
    Store,
    entries,
    verify,
)
from stored_choices import KEY, PLACE, file_of, made


def _directory(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _link_loop(path: Path) -> None:
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _large(path: Path) -> None:
    path.write_bytes(b" " * ((1 << 20) + 1))


def _deep(path: Path) -> None:
    path.write_text("[" * 200_000)


def _empty(path: Path) -> None:
    path.touch()


def _number(path: Path) -> None:
    path.write_text("7")


def _schema(path: Path) -> None:
    path.write_text('{"schema_version": 2}')


def _utf16(path: Path) -> None:
    path.write_bytes("{}".encode("utf-16"))


@pytest.mark.parametrize(
    ("make", "reason", "heals"),
    [
        (_directory, "not a regular file", False),
        (_pipe, "not a regular file", True),
        (_device, "not a regular file", True),
        (_link_loop, "too many levels of symbolic links (eloop)", True),
        (_large, "larger than 1048576 bytes", True),
        (_deep, "not valid json", True),
        (_empty, "empty file", True),
        (_number, "'' must be an object, found 7", True),
        (_schema, "schema 2, required 1", True),
        (_utf16, "schema none, required 1", True),
    ],
)
def test_an_odd_file_is_a_miss_with_a_reason(
    tmp_path: Path, make: Any, reason: str, heals: bool
) -> None:
    file = file_of(tmp_path)
    file.parent.mkdir()
    make(file)
    store = Store(tmp_path)
    recalled = store.recall(PLACE, "b")
    assert recalled.value is None
    assert reason in recalled.reason.lower()
    assert [path for path, _ in verify(tmp_path)] == [file]
    assert (store.remember(PLACE, "b", made()) is None) == heals
    assert store.recall(PLACE, "b").value == made()
    assert (Store(tmp_path).recall(PLACE, "b").value == made()) == heals


def _edited(data: bytes, edit: Any) -> bytes:
    content = json.loads(data)
    edit(content)
    return (json.dumps(content, indent=1) + "\n").encode()


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda c: c["choice"].update(member="other"), "checksum does not match"),
        (lambda c: c.update(build="other"), "checksum does not match"),
        (lambda c: c.update(extra=1), "unknown key 'extra'"),
        (lambda c: c["choice"].pop("tie"), "key 'choice.tie' is missing"),
        (lambda c: c["choice"].update(tie=0), "'choice.tie' must be true or false"),
        (lambda c: c.update(sha256=""), "checksum does not match"),
        (lambda c: c["location"].update(identity="x"), "identity 'x' is not 8 hex digits"),
        (
            lambda c: c["choice"]["samples"].update(a=[10**400]),
            "'choice.samples.a[0]' must be a number",
        ),
        (lambda c: c["choice"]["samples"].update(a=[math.nan]), "not valid JSON"),
        (lambda c: c.update(build="\ud800"), "not valid JSON"),
    ],
)
def test_an_edited_file_is_a_miss_with_a_reason(tmp_path: Path, edit: Any, reason: str) -> None:
    Store(tmp_path).remember(PLACE, "b", made())
    file = file_of(tmp_path)
    file.write_bytes(_edited(file.read_bytes(), edit))
    recalled = Store(tmp_path).recall(PLACE, "b")
    assert recalled.value is None
    assert reason in recalled.reason


def test_only_the_written_bytes_are_believed(tmp_path: Path) -> None:
    Store(tmp_path).remember(PLACE, "b", made())
    file = file_of(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_bytes())))
    recalled = Store(tmp_path).recall(PLACE, "b")
    assert recalled.reason == "not the bytes that were written for its content"


def test_a_file_under_the_name_of_another_is_a_miss(tmp_path: Path) -> None:
    Store(tmp_path).remember(PLACE, "b", made())
    other = dataclasses.replace(PLACE, key=KEY + "-t")
    os.rename(file_of(tmp_path), file_of(tmp_path, other))
    recalled = Store(tmp_path).recall(other, "b")
    assert (recalled.value, recalled.reason) == (None, f"wrong key: {KEY}")
    assert entries(tmp_path) == []
    ((path, reason),) = verify(tmp_path)
    assert (path, reason) == (file_of(tmp_path, other), f"wrong key: {KEY}")


def test_cut_anywhere_is_a_miss_with_a_reason(tmp_path: Path) -> None:
    Store(tmp_path).remember(PLACE, "b", made())
    file = file_of(tmp_path)
    data = file.read_bytes()
    store = Store(tmp_path)
    for length in range(len(data)):
        file.write_bytes(data[:length])
        recalled = store.recall(PLACE, "b")
        assert recalled.value is None, length
        assert recalled.reason, length
        assert recalled.dropped is None, length
    file.write_bytes(data + b"\n")
    assert store.recall(PLACE, "b").value is None
    file.write_bytes(data)
    assert store.recall(PLACE, "b").value == made()


def test_any_flipped_bit_is_a_miss_with_a_reason(tmp_path: Path) -> None:
    Store(tmp_path).remember(PLACE, "b", made())
    file = file_of(tmp_path)
    data = file.read_bytes()
    store = Store(tmp_path)
    with file.open("r+b", buffering=0) as handle:
        for bit in range(8 * len(data)):
            place, flipped = bit // 8, data[bit // 8] ^ (1 << bit % 8)
            os.pwrite(handle.fileno(), bytes([flipped]), place)
            recalled = store.recall(PLACE, "b")
            assert recalled.value is None, bit
            assert recalled.reason, bit
            assert recalled.dropped is None, bit
            os.pwrite(handle.fileno(), data[place : place + 1], place)
    assert store.recall(PLACE, "b").value == made()
