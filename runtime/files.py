"""The seam over file calls, and what the store does with files: read small ones, write whole ones.

Everything here raises ``OSError`` as the system reports it; after a failure a file holds either its
old bytes or the new ones, and at most a temporary file is left, which :func:`is_temporary` knows.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dialects.errors import FormatError

ATTEMPTS = 4  # one for a missing directory, the others for a cleaner that took the temporary file

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")


def _lock(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@dataclass(frozen=True, kw_only=True)
class FileCalls:
    """The system's file calls, with its own arguments and errors; a test replaces any of them."""

    open: Callable[[Path, int, int], int] = os.open
    read: Callable[[int, int], bytes] = os.read
    write: Callable[[int, bytes], int] = os.write
    fstat: Callable[[int], os.stat_result] = os.fstat
    fsync: Callable[[int], None] = os.fsync
    close: Callable[[int], None] = os.close
    replace: Callable[[Path, Path], None] = os.replace
    unlink: Callable[[Path], None] = os.unlink
    mkdir: Callable[[Path, int], None] = os.mkdir
    listdir: Callable[[Path], list[str]] = os.listdir
    lock: Callable[[int], None] = _lock  # exclusive, without waiting


SYSTEM = FileCalls()


def describe(error: OSError) -> str:
    """``no space left on device (ENOSPC)``."""
    if error.errno is None:
        return str(error).lower()
    name = errno.errorcode.get(error.errno, str(error.errno))
    return f"{os.strerror(error.errno).lower()} ({name})"


def is_temporary(name: str) -> bool:
    """Whether a file of that name was left by a writer that did not finish."""
    return _TEMPORARY.fullmatch(name) is not None


def read_small(files: FileCalls, path: Path, limit: int) -> bytes:
    """The whole content of a regular file of at most ``limit`` bytes.

    Raises:
        OSError: it cannot be opened or read.
        FormatError: it is no regular file, or larger.
    """
    # A named pipe without a writer would block the open for ever.
    handle = files.open(path, os.O_RDONLY | os.O_NONBLOCK, 0)
    try:
        if not stat.S_ISREG(files.fstat(handle).st_mode):
            raise FormatError("not a regular file", where=str(path))
        data = b""
        while len(data) <= limit and (part := files.read(handle, limit + 1 - len(data))):
            data += part
    finally:
        files.close(handle)
    if len(data) > limit:
        raise FormatError(f"larger than {limit} bytes", where=str(path))
    return data


def write_whole(files: FileCalls, path: Path, data: bytes) -> None:
    """Make ``path`` hold ``data``, durably, so that a reader sees the old bytes or the new ones.

    Missing directories are made. An error of the last step, the sync of the directory, is raised
    too, although the new bytes are then already visible.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _write_once(files, path, data)
        except FileNotFoundError:
            make_directory(files, path.parent)
    return _write_once(files, path, data)


def write_product(path: Path, data: bytes) -> None:
    """Write what a user wants at a path of theirs; a file there stays until all is on disk.

    Raises:
        OSError: the system refuses.
    """
    if path.is_file() or (path.parent.is_dir() and not path.exists()):
        write_whole(SYSTEM, path, data)
    else:
        path.write_bytes(data)  # a device cannot be replaced; for the rest, the reason


def write_group(files: FileCalls, contents: Mapping[Path, bytes], limit: int) -> None:
    """Write several files, or none: after a failure each path is put back as it stood.

    A crash in the middle can leave some new and some old, each of them whole.

    Raises:
        OSError: a path that cannot be read, written or synced.
        FormatError: a path where something stands that cannot be put back (see ``read_small``).
    """
    before = {path: _content(files, path, limit) for path in contents}
    temporaries: dict[Path, Path] = {}
    replaced: list[Path] = []
    try:
        for path, data in contents.items():
            make_directory(files, path.parent)
            temporaries[path] = _temporary(path.parent)
            _fill(files, temporaries[path], data)
        for path, temporary in temporaries.items():
            replaced.append(path)
            files.replace(temporary, path)
        for folder in sorted({path.parent for path in contents}):
            _sync_directory(files, folder)
    except BaseException:
        for path in replaced:
            _put_back(files, path, before[path])
        for temporary in temporaries.values():
            discard(files, temporary)
        raise


def remove_unchanged(files: FileCalls, path: Path, data: bytes, limit: int) -> bool:
    """Delete ``path`` if it still holds ``data``; whether it was.

    What another process put there since it was read stays: the file is moved aside first, where
    nobody can replace it, and moved back when it is another.

    Raises:
        OSError: it could not be moved, or not be moved back.
    """
    aside = _temporary(path.parent)
    files.replace(path, aside)
    try:
        same = read_small(files, aside, limit) == data
    except (OSError, FormatError):
        same = False
    if same:
        discard(files, aside)
    else:
        files.replace(aside, path)
    return same


def discard(files: FileCalls, path: Path) -> None:
    """Delete a temporary file; one that stays is ignored by every reader."""
    with suppress(OSError):
        files.unlink(path)


def make_directory(files: FileCalls, path: Path) -> None:
    """Make a directory and its parents; something that stands there already is left as it is."""
    try:
        _make_one(files, path)
    except FileNotFoundError:
        if path.parent == path:
            raise
        make_directory(files, path.parent)
        _make_one(files, path)


def probe_directory(files: FileCalls, path: Path) -> None:
    """Make the directory, then write, sync and delete a file in it.

    Raises:
        OSError: whichever of these the system refuses.
    """
    make_directory(files, path)
    temporary = _temporary(path)
    try:
        _fill(files, temporary, b"probe\n")
    finally:
        discard(files, temporary)


def _temporary(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(16)}.tmp"


def _write_once(files: FileCalls, path: Path, data: bytes) -> None:
    temporary = _temporary(path.parent)
    try:
        _fill(files, temporary, data)
        files.replace(temporary, path)
    except BaseException:
        discard(files, temporary)
        raise
    _sync_directory(files, path.parent)


def _fill(files: FileCalls, path: Path, data: bytes) -> None:
    handle = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        while data:
            written = files.write(handle, data)
            if written <= 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
            data = data[written:]
        files.fsync(handle)
    except BaseException:
        with suppress(OSError):
            files.close(handle)
        raise
    files.close(handle)  # a network file system may report a full disk only here


def _sync_directory(files: FileCalls, path: Path) -> None:
    handle = files.open(path, os.O_RDONLY | os.O_DIRECTORY, 0)
    try:
        files.fsync(handle)
    except OSError as error:
        # Some network and user-space file systems have no sync of a directory.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        files.close(handle)


def _make_one(files: FileCalls, path: Path) -> None:
    try:
        files.mkdir(path, 0o777)
    except FileExistsError:
        return
    # The parent may be one that this user can pass through but not read, as /home often is.
    with suppress(OSError):
        _sync_directory(files, path.parent)


def _content(files: FileCalls, path: Path, limit: int) -> bytes | None:
    try:
        return read_small(files, path, limit)
    except FileNotFoundError:
        return None


def _put_back(files: FileCalls, path: Path, data: bytes | None) -> None:
    with suppress(OSError):
        if data is None:
            files.unlink(path)
        else:
            write_whole(files, path, data)
