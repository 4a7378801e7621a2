"""What a stored choice is filed under: the device, the kernel and sizes, and the build."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from dialects.errors import FormatError
from dialects.facts import DeviceFacts
from dialects.member import Problem

EXACT_ROWS = 16  # M up to here is its own bucket
NAME_LENGTH = 180  # with the identity's 9 characters still below the 255 bytes of a file name

_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9._-]")
_IDENTITY = re.compile(r"[0-9a-f]{8}")
_ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\.[0-9a-f]{8}")


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where one choice is kept: device key, full key, and the 8 hex digits of one device's driver.

    Raises:
        FormatError: an identity that is not 8 lower-case hex digits.
    """

    device: str
    key: str
    identity: str

    def __post_init__(self) -> None:
        if not _IDENTITY.fullmatch(self.identity):
            raise FormatError(f"identity '{self.identity}' is not 8 hex digits")

    @property
    def path(self) -> PurePosixPath:
        """The file, relative to the store's directory; two names at most, both safe anywhere."""
        return PurePosixPath(_safe(self.device), f"{_safe(self.key)}.{self.identity}")


def location(facts: DeviceFacts, key: str) -> Location:
    """The location of a key of :func:`choice_key` for that device."""
    identity = _digest([facts.uuid or facts.name or "", facts.driver])[:8]
    return Location(device=device_key(facts), key=key, identity=identity)


def device_key(facts: DeviceFacts) -> str:
    """Backend and the geometry an answer depends on: ``cuda-m132-w32-r65536-l233472-t2048``.

    m: multiprocessors (x SIMDs each), w: wave widths, r: registers, l: shared bytes and t: threads
    of a multiprocessor, or of a block where only that is known. On the CPU m are the workers and
    i is a digest of the instruction-set flags. What is unknown is left out; with nothing known
    the key is ``<backend>-unknown`` (origin section 12).
    """
    parts: list[str] = []
    if facts.multiprocessors is not None or facts.simds_per_multiprocessor is not None:
        simds = facts.simds_per_multiprocessor
        count = "" if facts.multiprocessors is None else str(facts.multiprocessors)
        parts.append(f"m{count}" + ("" if simds is None else f"x{simds}"))
    if facts.wave_widths:
        parts.append("w" + ".".join(str(w) for w in sorted(facts.wave_widths)))
    for letter, values in (
        ("r", (facts.registers_per_multiprocessor, facts.registers_per_block)),
        ("l", (facts.shared_bytes_per_multiprocessor, facts.shared_bytes_per_block)),
        ("t", (facts.threads_per_multiprocessor, facts.max_threads_per_block)),
    ):
        known = next((v for v in values if v is not None), None)
        if known is not None:
            parts.append(f"{letter}{known}")
    if facts.backend == "cpu" and facts.features is not None:
        parts.append("i" + _digest(sorted(set(facts.features)))[:8])
    return "-".join([facts.backend, *(parts or ["unknown"])])


def bucket_rows(m: int) -> int:
    """The bucket of a row count: exact to 16, then the next of 2^i and 3*2^(i-1), so < 1.5 * m."""
    if m <= EXACT_ROWS:
        return m
    power = 1 << (m - 1).bit_length()  # the least 2^i >= m
    return power * 3 // 4 if m <= power * 3 // 4 else power


def choice_key(pack8: str, kernel: str, problem: Problem, layout: str) -> str:
    """``<pack8>.<kernel>.<sizes>.<layout>``, with M bucketed where there is one.

    Three sizes are M, N, K and four B, M, N, K; another count is kept as it is. ``layout`` is the
    caller's short text for transposes, alignment and accumulation, such as ``nn-a4-acc0``.
    """
    sizes = list(problem.sizes)
    if len(sizes) in (3, 4):
        sizes[-3] = bucket_rows(sizes[-3])
    return f"{pack8}.{kernel}.{'x'.join(str(s) for s in sizes)}.{layout}"


def build_id(facts: DeviceFacts, code_hashes: Sequence[str]) -> str:
    """sha256 of uuid, driver and the survivors' code hashes in family order (seed section 3)."""
    return _digest([facts.uuid, facts.driver, list(code_hashes)])


def is_entry_name(name: str) -> bool:
    """Whether a file of that name can be an entry."""
    return _ENTRY_NAME.fullmatch(name) is not None


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _safe(text: str) -> str:
    """The text itself where it is a plain file name, otherwise a readable part and a digest."""
    if _SAFE.fullmatch(text) and len(text) <= NAME_LENGTH:
        return text
    readable = _UNSAFE_CHARACTER.sub("_", text[: NAME_LENGTH - 20]).lstrip(".-")
    return f"{readable or '_'}-{_digest(text)[:16]}"
