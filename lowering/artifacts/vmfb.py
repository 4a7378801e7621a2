"""Reads the loadable module: a zip whose executables say how a kernel will be launched.

IREE's CUDA executable is a flatbuffer of identifier ``CDA1`` (its cuda_executable_def.fbs): a list
of exports with kernel name, block and dynamic shared memory, and the PTX.
"""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass

from dialects.errors import FormatError

_CUDA = b"CDA1"
_NAME, _BLOCK, _SHARED = 1, 2, 3  # fields of one export


@dataclass(frozen=True, kw_only=True)
class ExportReading:
    """One export of an executable: its block and the dynamic shared bytes of a launch."""

    kernel: str
    block: tuple[int, int, int] | None
    dynamic_shared_bytes: int


def read_cuda_exports(vmfb: bytes, *, where: str) -> tuple[ExportReading, ...]:
    """The exports of every CUDA executable in a module.

    Raises:
        FormatError: no module, or an executable that is damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(vmfb)) as archive:
            files = [archive.read(name) for name in archive.namelist()]
        tables = [f for content in files for f in _flatbuffers(content)]
        return tuple(export for table in tables for export in _exports(table))
    except (zipfile.BadZipFile, struct.error, IndexError, UnicodeDecodeError) as error:
        raise FormatError(f"damaged module: {error}", where=where) from None


def _flatbuffers(content: bytes) -> list[bytes]:
    """The flatbuffer of a CUDA executable: it stands behind a header that starts alike."""
    place = content.find(_CUDA, len(_CUDA)) if content.startswith(_CUDA) else -1
    return [content[place - 4 :]] if place >= 4 else []


def _exports(buffer: bytes) -> list[ExportReading]:
    root = _Table(buffer, _word(buffer, 0))
    return [_export(table) for table in root.tables(0)]


def _export(table: _Table) -> ExportReading:
    place = table.place(_BLOCK)
    return ExportReading(
        kernel=table.text(_NAME),
        block=struct.unpack_from("<3I", table.buffer, place) if place else None,
        dynamic_shared_bytes=_word(table.buffer, table.place(_SHARED))
        if table.place(_SHARED)
        else 0,
    )


def _word(buffer: bytes, place: int) -> int:
    return struct.unpack_from("<I", buffer, place)[0]


class _Table:
    """A flatbuffer table: a signed distance to its list of field offsets, then its fields."""

    def __init__(self, buffer: bytes, start: int) -> None:
        self.buffer, self.start = buffer, start
        self.fields = start - struct.unpack_from("<i", buffer, start)[0]

    def place(self, number: int) -> int:
        """Where a field stands, 0 when it is absent."""
        size = struct.unpack_from("<H", self.buffer, self.fields)[0]
        entry = 4 + 2 * number
        if entry + 2 > size:
            return 0
        offset = struct.unpack_from("<H", self.buffer, self.fields + entry)[0]
        return self.start + offset if offset else 0

    def _target(self, number: int) -> int:
        place = self.place(number)
        return place + _word(self.buffer, place)

    def text(self, number: int) -> str:
        """A string field."""
        target = self._target(number)
        size = _word(self.buffer, target)
        return self.buffer[target + 4 : target + 4 + size].decode()

    def tables(self, number: int) -> list[_Table]:
        """A field that is a vector of tables."""
        if not self.place(number):
            return []
        vector = self._target(number)
        count = _word(self.buffer, vector)
        if vector + 4 + 4 * count > len(self.buffer):
            raise IndexError(f"a vector of {count} tables does not fit")
        places = [vector + 4 + 4 * i for i in range(count)]
        return [_Table(self.buffer, p + _word(self.buffer, p)) for p in places]
