"""The memory of measured choices: one small file each, believed only when it is beyond doubt.

Layout ``<directory>/<device key>/<key>.<uuid8>`` (seed section 4, "Across runs"). Recalling never
raises: whatever is odd is a miss with a reason. Remembering never loses what was there before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from dialects.errors import FormatError

from .entries import MAX_BYTES, Entry, StoredChoice, entry_bytes, new_entry, parse_entry, replay
from .files import SYSTEM, FileCalls, describe, read_small, remove_unchanged, write_whole
from .inventory import check_directory, drop, entries, export_all, import_all, show, verify
from .keys import Location, bucket_rows, build_id, choice_key, device_key, location

__all__ = [
    "Entry",
    "Location",
    "Recall",
    "Store",
    "StoredChoice",
    "bucket_rows",
    "build_id",
    "check_directory",
    "choice_key",
    "device_key",
    "drop",
    "entries",
    "export_all",
    "import_all",
    "location",
    "replay",
    "show",
    "verify",
]

ANOTHER_BUILD = "another build"
NOT_STORED = "not stored"


@dataclass(frozen=True, kw_only=True)
class Recall:
    """What is remembered: a value and where it came from, or no value and why.

    ``dropped`` is the file of another build that was deleted on the way.
    """

    value: StoredChoice | None
    reason: str
    dropped: Path | None = None


class Store:
    """Choices by location; every thread of a process, and several processes, may use one.

    ``directory`` None keeps them in memory only. A value is served only to the build that
    remembered it, from memory as from disk.
    """

    def __init__(self, directory: Path | None, files: FileCalls = SYSTEM) -> None:
        self.directory = directory
        self.files = files
        self._memory: dict[Location, tuple[str, StoredChoice]] = {}
        self._memory_lock = Lock()
        # Apart, so that a slow disk never holds up a value that is in memory.
        self._disk_lock = Lock()
        self._persists = directory is not None
        self._warned = False

    @property
    def persists(self) -> bool:
        """Whether the last value went to disk, or the next one is expected to."""
        return self._persists

    def recall(self, location: Location, build: str) -> Recall:
        """The value of that location and build, or a miss with its reason; never an exception.

        A value of another build is dropped, from memory and from disk.
        """
        kept = self._from_memory(location, build)
        if kept is not None:
            return kept
        with self._disk_lock:
            # Another thread may have remembered or read it while this one waited.
            return self._from_memory(location, build) or self._from_disk(location, build)

    def remember(self, location: Location, build: str, value: StoredChoice) -> str | None:
        """Keep a value, on disk where there is a directory.

        Returns:
            The warning to show when it could not be written, once in the life of the store;
            the value then serves in this process, and later ones are still tried on disk.
        """
        with self._disk_lock:
            try:
                entry = new_entry(location, build, value)
                self._keep(location, build, entry.choice)
                if self.directory is not None:
                    path = self.directory / location.path
                    write_whole(self.files, path, entry_bytes(entry))
                    self._persists = True
                return None
            except OSError as error:
                reason = describe(error)
            except (FormatError, ValueError) as error:  # a path may hold a NUL
                reason = str(error)
            self._keep(location, build, value)
            return self._degrade(reason)

    def _degrade(self, reason: str) -> str | None:
        self._persists = False
        if self._warned or self.directory is None:
            return None
        self._warned = True
        return f"store {self.directory}: choices stay in the memory of this process: {reason}"

    def _keep(self, location: Location, build: str, value: StoredChoice) -> None:
        with self._memory_lock:
            self._memory[location] = (build, value)

    def _from_memory(self, location: Location, build: str) -> Recall | None:
        with self._memory_lock:
            kept = self._memory.get(location)
        if kept is None or kept[0] != build:
            return None
        return Recall(value=kept[1], reason="memory")

    def _from_disk(self, location: Location, build: str) -> Recall:
        with self._memory_lock:
            stale = self._memory.pop(location, None) is not None
        missing = ANOTHER_BUILD if stale else NOT_STORED
        if self.directory is None:
            return Recall(value=None, reason=missing)
        path = self.directory / location.path
        try:
            data = read_small(self.files, path, MAX_BYTES)
            entry = parse_entry(data, where=str(path))
        except FileNotFoundError:
            return Recall(value=None, reason=missing)
        except OSError as error:
            return Recall(value=None, reason=f"cannot be read: {describe(error)}")
        except FormatError as error:
            return Recall(value=None, reason=error.message)
        except ValueError as error:  # a path may hold a NUL
            return Recall(value=None, reason=f"cannot be read: {error}")
        if entry.location != location:
            return Recall(value=None, reason=f"wrong key: {entry.location.key}")
        if entry.build != build:
            return Recall(value=None, reason=ANOTHER_BUILD, dropped=self._drop(path, data))
        self._keep(location, build, entry.choice)
        return Recall(value=entry.choice, reason="disk")

    def _drop(self, path: Path, data: bytes) -> Path | None:
        try:
            return path if remove_unchanged(self.files, path, data, MAX_BYTES) else None
        except OSError:
            return None
