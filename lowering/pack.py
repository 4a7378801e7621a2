"""Writes packs: a folder with ``manifest.json`` and the files it names, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from dialects.errors import PackError
from dialects.manifest import FILE_NAME, manifest_text

from .build import Build


def write_pack(result: Build, out: Path) -> None:
    """Write the pack to ``out``; an older pack there is replaced, anything else is left alone.

    The content is complete on disk in a sibling folder before ``out`` changes.

    Raises:
        PackError: ``out`` is no pack, or the disk refuses.
    """
    try:
        _check_replaceable(out)
        _write(result, out.resolve())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PackError(f"cannot write a pack: {reason}", where=str(out)) from None


def _check_replaceable(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise PackError("the output exists and is no directory", where=str(out))
    if out.is_dir() and any(out.iterdir()) and not _holds_pack(out):
        raise PackError("the output directory is not empty and holds no pack", where=str(out))


def _holds_pack(folder: Path) -> bool:
    """Whether a manifest of ours is there, be it cut off or of another version."""
    try:
        with open(folder / FILE_NAME, "rb") as file:
            return b'"requires_runtime"' in file.read(4096)
    except FileNotFoundError:
        return False


def _write(result: Build, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        _fill(result, fresh)
        _swap(fresh, out)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _fill(result: Build, folder: Path) -> None:
    folder.chmod(0o755)
    for path, content in result.files.items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        _write_file(target, content)
    _write_file(folder / FILE_NAME, manifest_text(result.manifest).encode())
    for directory in (*(p for p in folder.iterdir() if p.is_dir()), folder):
        _sync_directory(directory)


def _write_file(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """A name is on disk only once its folder is."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put_back(old: Path, out: Path) -> None:
    try:
        os.rename(old, out)
    except OSError as error:
        raise PackError(
            f"cannot write a pack: {error.strerror}; the old one is in {old}", where=str(out)
        ) from None


def _swap(fresh: Path, out: Path) -> None:
    """Two renames: a crash between them leaves the old pack under a hidden name, never a mix."""
    if not out.exists():
        os.rename(fresh, out)
        _sync_directory(out.parent)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
    old = aside / "pack"
    try:
        os.rename(out, old)
        try:
            os.rename(fresh, out)
        except OSError:
            _put_back(old, out)
            raise
        _sync_directory(out.parent)
    finally:
        if out.exists():  # else the old pack is all there is, and stays where it is
            shutil.rmtree(aside, ignore_errors=True)
