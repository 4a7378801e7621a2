"""What the command line does with a store's directory: list, show, drop, verify, export, import.

Unlike the store, which degrades, these raise :class:`StoreError` for a directory that cannot be
used, because a user named it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dialects.codec import encode
from dialects.errors import FormatError, StoreError

from .entries import MAX_BYTES, SCHEMA_VERSION, Entry, entry_bytes, entry_of, parse_entry
from .files import (
    SYSTEM,
    FileCalls,
    describe,
    is_temporary,
    probe_directory,
    read_small,
    write_group,
)
from .keys import is_entry_name
from .measuring_lock import is_lock_name


@dataclass(frozen=True, kw_only=True)
class _Found:
    """One thing in the directory: an entry, or the reason why it is none.

    ``unseen`` says that the system refused to show what it is.
    """

    path: Path
    entry: Entry | None = None
    reason: str = ""
    unseen: bool = False

    def matches(self, pattern: str) -> bool:
        name = self.path.name
        names = [name, name.rpartition(".")[0], f"{self.path.parent.name}/{name}"]
        if self.entry is not None:
            names.append(self.entry.location.key)
        return any(fnmatchcase(name, pattern) for name in names)


def check_directory(directory: Path, files: FileCalls = SYSTEM) -> None:
    """Make the directory where it is missing and prove that a file can be written in it.

    Raises:
        StoreError: it is a file, a loop of links, not writable, full; by name.
    """
    try:
        probe_directory(files, directory)
    except (OSError, ValueError) as error:
        message = _trouble(error, "is not writable")
        raise StoreError(message, where=str(directory)) from None


def entries(directory: Path, files: FileCalls = SYSTEM) -> list[Entry]:
    """The sound entries in the order of their paths; none where the directory is missing.

    Raises:
        StoreError: the directory cannot be listed.
    """
    return [f.entry for f in _scan(directory, files) if f.entry is not None]


def show(directory: Path, pattern: str, files: FileCalls = SYSTEM) -> list[Entry]:
    """The sound entries whose key, file name or ``<device>/<file name>`` matches a shell pattern.

    Raises:
        StoreError: none matches or those that do are damaged, or the directory cannot be listed.
    """
    matching = [f for f in _scan(directory, files) if f.matches(pattern)]
    sound = [f.entry for f in matching if f.entry is not None]
    if not sound and matching:
        raise StoreError(matching[0].reason, where=str(matching[0].path))
    if not sound:
        raise StoreError(f"no entry matches '{pattern}'", where=str(directory))
    return sound


def drop(directory: Path, pattern: str, files: FileCalls = SYSTEM) -> list[Path]:
    """Delete the entries that :func:`show` would match, damaged ones included; their paths.

    A file whose name no store gives is never deleted.

    Raises:
        StoreError: one cannot be deleted, or a directory cannot be listed.
    """
    dropped = []
    for found in _scan(directory, files):
        if found.unseen and found.path.parent == directory:
            raise StoreError(found.reason, where=str(found.path))
        if not is_entry_name(found.path.name) or not found.matches(pattern):
            continue
        try:
            files.unlink(found.path)
            dropped.append(found.path)
        except FileNotFoundError:
            continue  # another process was first
        except OSError as error:
            message = f"cannot be deleted: {describe(error)}"
            raise StoreError(message, where=str(found.path)) from None
    return dropped


def verify(directory: Path, files: FileCalls = SYSTEM) -> list[tuple[Path, str]]:
    """Everything that is no sound entry, with the reason; left temporary files are deleted.

    A writer that is still at work notices and writes again.

    Raises:
        StoreError: the directory cannot be listed.
    """
    odd = []
    for found in _scan(directory, files):
        if is_temporary(found.path.name):
            odd.append((found.path, f"{found.reason}, {_cleaned(found.path, files)}"))
        elif found.entry is None:
            odd.append((found.path, found.reason))
    return odd


def export_all(directory: Path, files: FileCalls = SYSTEM) -> dict[str, Any]:
    """Every sound entry as one JSON value that :func:`import_all` takes; odd ones are left out.

    Raises:
        StoreError: the system refuses to list or read something, so that more may be missing.
    """
    exported = []
    for found in _scan(directory, files):
        if found.unseen:
            raise StoreError(found.reason, where=str(found.path))
        if found.entry is not None:
            exported.append(encode(found.entry))
    return {"schema_version": SCHEMA_VERSION, "entries": exported}


def import_all(directory: Path, data: Any, files: FileCalls = SYSTEM) -> int:
    """Write every entry of an export, over those that stand there, or none; how many.

    Raises:
        FormatError: the value is malformed in any place, which it names.
        StoreError: the directory cannot be written; what stood there is put back.
    """
    contents = _import_contents(directory, data)
    if not contents:
        return 0
    check_directory(directory, files)
    try:
        write_group(files, contents, MAX_BYTES)
    except (OSError, FormatError) as error:
        message = f"nothing imported: {_trouble(error, 'cannot be written')}"
        raise StoreError(message, where=str(directory)) from None
    return len(contents)


def _import_contents(directory: Path, data: Any) -> dict[Path, bytes]:
    if not isinstance(data, dict) or set(data) != {"schema_version", "entries"}:
        raise FormatError("not an export: the keys must be schema_version and entries")
    if data["schema_version"] != SCHEMA_VERSION or not isinstance(data["entries"], list):
        raise FormatError(f"not an export of schema {SCHEMA_VERSION}")
    contents: dict[Path, bytes] = {}
    for index, content in enumerate(data["entries"]):
        where = f"entries[{index}]"
        entry = entry_of(content, where=where)
        path = directory / entry.location.path
        if path in contents:
            raise FormatError(f"a second entry for {entry.location.path}", where=where)
        contents[path] = entry_bytes(entry)
    return contents


def _scan(directory: Path, files: FileCalls) -> Iterator[_Found]:
    try:
        devices = [n for n in sorted(files.listdir(directory)) if not is_lock_name(n)]
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        message = _trouble(error, "cannot be listed")
        raise StoreError(message, where=str(directory)) from None
    for device in devices:
        folder = directory / device
        try:
            names = sorted(files.listdir(folder))
        except NotADirectoryError:
            yield _not_an_entry(folder)
        except OSError as error:
            yield _unseen(folder, f"cannot be listed: {describe(error)}", error)
        else:
            for name in names:
                yield _look(directory, folder / name, files)


def _look(directory: Path, path: Path, files: FileCalls) -> _Found:
    if not is_entry_name(path.name):
        return _not_an_entry(path)
    try:
        entry = parse_entry(read_small(files, path, MAX_BYTES), where=str(path))
    except OSError as error:
        return _unseen(path, f"cannot be read: {describe(error)}", error)
    except FormatError as error:
        return _Found(path=path, reason=error.message)
    if directory / entry.location.path != path:
        return _Found(path=path, reason=f"wrong key: {entry.location.key}")
    return _Found(path=path, entry=entry)


def _not_an_entry(path: Path) -> _Found:
    left = is_temporary(path.name)
    reason = "left by a writer that did not finish" if left else "not a store entry"
    return _Found(path=path, reason=reason)


def _cleaned(path: Path, files: FileCalls) -> str:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return "gone"
    except OSError as error:
        return f"cannot be deleted: {describe(error)}"
    return "deleted"


def _unseen(path: Path, reason: str, error: OSError) -> _Found:
    # What is gone by now was deleted by another process, which hides nothing.
    return _Found(path=path, reason=reason, unseen=not isinstance(error, FileNotFoundError))


def _trouble(error: Exception, what: str) -> str:
    match error:
        case FileExistsError() | NotADirectoryError():
            return "is a file, or lies under one, and not a directory"
        case OSError(errno=errno.ELOOP):
            return "is a loop of symbolic links"
        case OSError():
            return f"{what}: {describe(error)}"
        case FormatError():
            return str(error)
        case _:
            return f"is not a path: {error}"
