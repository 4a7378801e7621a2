"""Writes packs: a folder with ``manifest.json`` and the files it names, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from dialects.errors import PackError
from dialects.manifest import manifest_text

from .build import Build

MANIFEST = "manifest.json"


def write_pack(result: Build, out: Path) -> None:
    """Write the pack to ``out``; an older pack there is replaced, anything else is left alone.

    The content is complete on disk in a sibling folder before ``out`` changes.

    Raises:
        PackError: ``out`` is no pack, or the disk refuses.
    """
    _check_replaceable(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise PackError(f"cannot write a pack: {error.strerror}", where=str(out)) from None
    try:
        _fill(result, fresh)
        _swap(fresh, out)
    except OSError as error:
        raise PackError(f"cannot write a pack: {error.strerror}", where=str(out)) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check_replaceable(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise PackError("the output exists and is no directory", where=str(out))
    if out.is_dir() and not (out / MANIFEST).exists() and any(out.iterdir()):
        raise PackError("the output directory is not empty and holds no pack", where=str(out))


def _fill(result: Build, folder: Path) -> None:
    folder.chmod(0o755)
    for path, content in result.files.items():
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        _write(target, content)
    _write(folder / MANIFEST, manifest_text(result.manifest).encode())


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap(fresh: Path, out: Path) -> None:
    """Two renames: a crash between them leaves the old pack under a hidden name, never a mix."""
    if not out.exists():
        os.rename(fresh, out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}-old-", dir=out.parent))
    os.rename(out, old / "pack")
    try:
        os.rename(fresh, out)
    except OSError:
        os.rename(old / "pack", out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
