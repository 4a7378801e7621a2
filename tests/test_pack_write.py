"""A pack is written whole or not at all, over an old one or beside nothing, whatever fails."""

from __future__ import annotations

import builtins
import errno
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dialects.errors import PackError
from dialects.manifest import Manifest, manifest_text
from lowering import pack as packing
from lowering.build import Build
from lowering.pack import write_pack

Tree = dict[str, bytes]
CALLS = ("open", "write", "fsync", "rename", "mkdir", "mkdtemp", "chmod")


def result(mark: bytes) -> Build:
    """A build of two files, told from others by ``mark``."""
    files = {"gemm/a.vmfb": b"module " + mark, "peers/p.vmfb": mark * 1000}
    return Build(manifest=Manifest(kernels=()), files=files, notes=())


OLD, NEW = result(b"old"), result(b"new")


def content(build: Build) -> Tree:
    """What the pack of a build holds."""
    return {**build.files, "manifest.json": manifest_text(build.manifest).encode()}


def tree(folder: Path) -> Tree:
    """What a folder holds, by path."""
    paths = [p for p in folder.rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}


class Faults:
    """Counts file calls and fails those that are asked for."""

    def __init__(self, failing: Callable[[int, str], bool]) -> None:
        self.failing = failing
        self.calls: list[str] = []

    def __call__(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if self.failing(len(self.calls), name):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*arguments, **named)

        return wrapped


@contextmanager
def faulty(faults: Faults) -> Iterator[None]:
    """Put the faults between a pack's writer and the system."""
    with pytest.MonkeyPatch.context() as patch:
        opened = faults("open", builtins.open)

        def open_file(*arguments: Any, **named: Any) -> Any:
            file = opened(*arguments, **named)
            if "w" in arguments[1]:
                file.write = faults("write", file.write)
            return file

        patch.setattr(packing, "open", open_file, raising=False)
        for owner, name in ((os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "chmod")):
            patch.setattr(owner, name, faults(name, getattr(owner, name)))
        patch.setattr(tempfile, "mkdtemp", faults("mkdtemp", tempfile.mkdtemp))
        yield


def refusal(out: Path) -> PackError | None:
    """What writing the new pack raises, when it does."""
    try:
        write_pack(NEW, out)
    except PackError as error:
        return error
    return None


@pytest.mark.parametrize("before", [None, OLD], ids=["nothing there", "an old pack there"])
def test_every_single_fault(before: Build | None, tmp_path: Path) -> None:
    """The n-th file call fails, for all n: the old pack or the new one, and nothing beside it."""
    seen: set[str] = set()
    for number in itertools.count(1):
        out = tmp_path / str(number) / "pack"
        if before is not None:
            write_pack(before, out)
        faults = Faults(lambda n, _, number=number: n == number)
        with faulty(faults):
            error = refusal(out)
        if len(faults.calls) < number:
            assert error is None
            assert tree(out) == content(NEW)
            break
        assert error is None or error.lines() == [
            f"{out}: error: cannot write a pack: Input/output error"
        ]
        seen.add(faults.calls[number - 1])
        states = [content(NEW)]
        if error is not None:
            states.append({} if before is None else content(before))
        assert tree(out) in states
        beside = list(out.parent.iterdir()) if out.parent.exists() else []
        assert beside in ([], [out])
    assert seen == {*CALLS}


def test_when_nothing_can_be_renamed_any_more_the_old_pack_is_still_there(tmp_path: Path) -> None:
    """After it was set aside, every rename fails: it is not deleted, and the error says where."""
    out = tmp_path / "pack"
    write_pack(OLD, out)
    faults = Faults(lambda _, name: name == "rename" and faults.calls.count("rename") > 1)
    with faulty(faults), pytest.raises(PackError, match="the old one is in ") as caught:
        write_pack(NEW, out)
    kept = Path(caught.value.message.rpartition("the old one is in ")[2])
    assert tree(kept) == content(OLD)
    assert [p.name for p in tmp_path.iterdir()] == [kept.parent.name]


def test_an_old_pack_is_replaced(tmp_path: Path) -> None:
    """All of it: files that the new one does not have are gone."""
    out = tmp_path / "below" / "pack"
    write_pack(Build(manifest=Manifest(kernels=()), files={"x/y": b""}, notes=()), out)
    write_pack(NEW, out)
    assert tree(out) == content(NEW)
    assert list(out.parent.iterdir()) == [out]
    assert out.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("text", ["", '{"schema_version": 9, "requires_runtime": "other"'])
def test_a_damaged_pack_is_still_a_pack(tmp_path: Path, text: str) -> None:
    """Cut off or of another version, it may be written over; an empty file says nothing."""
    out = tmp_path / "pack"
    out.mkdir()
    (out / "manifest.json").write_text(text)
    if text:
        write_pack(NEW, out)
        assert tree(out) == content(NEW)
    else:
        with pytest.raises(PackError, match="is not empty and holds no pack"):
            write_pack(NEW, out)


def test_what_is_no_pack_is_left_alone(tmp_path: Path) -> None:
    """Other folders, also with a manifest of somebody else, files, and links."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "manifest.json").write_text('{"name": "a web page"}')
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("none")
    before = tree(tmp_path)
    for name in ("site", "notes"):
        with pytest.raises(PackError, match="is not empty and holds no pack") as caught:
            write_pack(NEW, tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
    for name in ("file", "link", "dangling"):
        with pytest.raises(PackError, match="exists and is no directory"):
            write_pack(NEW, tmp_path / name)
    assert tree(tmp_path) == before
    write_pack(NEW, tmp_path / "empty")
    assert tree(tmp_path / "empty") == content(NEW)


@pytest.mark.parametrize("place", ["file/pack", "x" * 300, "nul\0"])
def test_impossible_places(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PackError, match="cannot write a pack"):
        write_pack(NEW, tmp_path / place)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a name of its own, empty or with a pack in it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_pack(OLD, Path("."))
    monkeypatch.chdir(tmp_path / "here")
    write_pack(NEW, Path("."))
    assert tree(tmp_path / "here") == content(NEW)
    assert [p.name for p in tmp_path.iterdir()] == ["here"]
