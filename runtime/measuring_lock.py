"""One measuring process a device at a time, so that processes do not time over each other.

An advisory lock on an empty file. Who dies lets go of it; a file system that refuses locks, files
or folders is done without, because a disturbed measurement is better than none.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .files import FileCalls, make_directory
from .keys import Location

WAIT_S = 120.0  # far above what a queue of processes with a budget of a second each needs
POLL_S = 0.02
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_BUSY = (errno.EAGAIN, errno.EACCES)  # both mean that another holds it (flock, fcntl)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.[0-9a-f]{8}\.lock")


def is_lock_name(name: str) -> bool:
    """Whether a file of that name in a store's directory is a measuring lock."""
    return _NAME.fullmatch(name) is not None


def lock_path(folder: Path, place: Location) -> Path:
    """The file of a device's lock: one for every kernel and build."""
    return folder / f"{place.path.parts[0]}.{place.identity}.lock"


@contextmanager
def measuring_lock(
    files: FileCalls,
    path: Path | None,
    *,
    wait_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """Hold the lock inside the block; whether it is held.

    It is not where ``path`` is None, the system refuses it, or another one keeps it for ``wait_s``.
    """
    handle = None if path is None else _opened(files, path)
    try:
        yield handle is not None and _taken(files, handle, clock() + wait_s, clock, sleep)
    finally:
        if handle is not None:
            with suppress(OSError):  # the lock goes with the handle
                files.close(handle)


def _opened(files: FileCalls, path: Path) -> int | None:
    try:
        make_directory(files, path.parent)
        return files.open(path, _FLAGS, 0o666)
    except (OSError, ValueError):  # a path may hold a NUL
        return None


def _taken(
    files: FileCalls,
    handle: int,
    end: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> bool:
    while True:
        try:
            files.lock(handle)
            return True
        except OSError as error:
            if error.errno not in _BUSY or clock() >= end:
                return False
        sleep(POLL_S)
