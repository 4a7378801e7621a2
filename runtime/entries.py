"""One stored choice as a file: readable JSON, believed only when nothing about it is odd.

The bytes must be exactly those that would be written for the content they parse to, which no cut
and no flipped bit leaves true.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

from dialects.codec import decode, dumps, loads
from dialects.errors import FormatError

from .choice import TIE_PERMILLE, Decision, decide
from .keys import Location

SCHEMA_VERSION = 1
MAX_BYTES = 1 << 20  # of one file; an entry takes a few KiB


@dataclass(frozen=True, kw_only=True)
class StoredChoice:
    """A measured choice, by names and never by index.

    ``samples`` are each candidate's bracket times in microseconds, candidates in family order and
    times in the order in which they were taken; ``taken`` names the candidate of each bracket. They
    decide again, see :func:`replay`.
    ``clocks`` are readings by name, in kHz; ``timer`` is the timer tier they were taken with.
    ``margin_permille`` is the lead over the second, per mille of the second's median.
    """

    kernel: str
    member: str
    body: str
    code_hash: str
    margin_permille: int
    tie: bool
    samples: dict[str, tuple[float, ...]]
    taken: tuple[str, ...]
    clocks: dict[str, int] | None
    timer: str


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The content of one file; ``sha256`` is that of the same content with an empty ``sha256``."""

    schema_version: int = SCHEMA_VERSION
    sha256: str = ""
    location: Location
    build: str
    choice: StoredChoice


def replay(choice: StoredChoice, band: int = TIE_PERMILLE) -> Decision | None:
    """What the stored samples decide under a tie band in per mille; None where there are none.

    The winner is named as in ``samples``: ``member/body@target``.
    """
    return decide(choice.samples, list(choice.samples), taken=choice.taken, band=band)


def new_entry(location: Location, build: str, choice: StoredChoice) -> Entry:
    """The entry to write.

    Raises:
        FormatError: a value that JSON cannot carry, such as an infinite time.
    """
    content = Entry(location=location, build=build, choice=choice)
    try:
        # A round trip makes integers of float fields floats, as a reader will see them.
        entry = decode(Entry, loads(dumps(content), where="choice"), where="choice")
        return dataclasses.replace(entry, sha256=_checksum(entry))
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise FormatError(f"the choice cannot be written: {error}") from None


def entry_bytes(entry: Entry) -> bytes:
    """The only bytes that are believed to be this entry.

    Raises:
        FormatError: text that is not Unicode, or more than ``MAX_BYTES``.
    """
    try:
        data = dumps(entry).encode()
    except ValueError as error:
        raise FormatError(f"the entry cannot be written: {error}") from None
    if len(data) > MAX_BYTES:
        raise FormatError(f"an entry of {len(data)} bytes > {MAX_BYTES}")
    return data


def entry_of(content: Any, *, where: str) -> Entry:
    """The entry of a JSON value.

    Raises:
        FormatError: another schema, a key or value that does not belong there, a wrong checksum.
    """
    try:
        version = content.get("schema_version") if isinstance(content, dict) else SCHEMA_VERSION
        if version != SCHEMA_VERSION:
            raise FormatError(f"schema {version!r:.40}, required {SCHEMA_VERSION}", where=where)
        entry = decode(Entry, content, where=where)
        checksum = _checksum(entry)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise FormatError(f"a value out of range: {error}", where=where) from None
    if entry.sha256 != checksum:
        raise FormatError("checksum does not match", where=where)
    return entry


def parse_entry(data: bytes, *, where: str) -> Entry:
    """Read the bytes of a file.

    Raises:
        FormatError: anything that :func:`entry_bytes` would not have written.
    """
    if not data:
        raise FormatError("empty file", where=where)
    entry = entry_of(loads(data, where=where), where=where)
    if entry_bytes(entry) != data:
        raise FormatError("not the bytes that were written for its content", where=where)
    return entry


def _checksum(entry: Entry) -> str:
    text = dumps(dataclasses.replace(entry, sha256=""))
    return hashlib.sha256(text.encode()).hexdigest()
