"""DeviceFacts: the limits that a driver reports. Every field is a value or unknown (None)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .codec import decode, encode, loads
from .errors import FormatError
from .types import signless

if TYPE_CHECKING:
    from .occupancy import Residency, Usage

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MatrixConfig:
    """One matrix instruction that a driver lists: D[m,n] = A[m,k] * B[k,n] + C."""

    m: int
    n: int
    k: int
    a: str
    b: str
    acc: str
    scope: str = "subgroup"


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """What is known of one device. Units stand in the names; ``sources`` says who reported a field.

    On the CPU a multiprocessor is a worker, ``wave_widths`` is its SIMD width in 32-bit lanes and
    ``features`` are its instruction-set flags.
    """

    schema_version: int = SCHEMA_VERSION
    source: str = ""
    backend: str
    isa: str | None = None
    name: str | None = None
    api: str | None = None
    uuid: str | None = None
    driver: str | None = None
    wave_widths: tuple[int, ...] | None = None
    requirable_wave_widths: tuple[int, ...] | None = None
    max_threads_per_block: int | None = None
    max_workgroup_sizes: tuple[int, ...] | None = None
    max_workgroup_counts: tuple[int, ...] | None = None
    registers_per_block: int | None = None
    registers_per_multiprocessor: int | None = None
    registers_per_thread: int | None = None
    shared_bytes_per_block: int | None = None
    shared_bytes_per_block_optin: int | None = None
    shared_bytes_per_multiprocessor: int | None = None
    shared_bytes_reserved_per_block: int | None = None
    threads_per_multiprocessor: int | None = None
    blocks_per_multiprocessor: int | None = None
    multiprocessors: int | None = None
    simds_per_multiprocessor: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    max_binding_bytes: int | None = None
    clock_khz: int | None = None
    memory_clock_khz: int | None = None
    memory_bus_bits: int | None = None
    features: tuple[str, ...] | None = None
    storage_features: tuple[str, ...] | None = None
    native_matrix_configs: tuple[MatrixConfig, ...] | None = None
    sources: dict[str, str] | None = None

    @cached_property
    def shared_limit(self) -> int | None:
        """Shared bytes one block may have, opt-in included."""
        known = [
            v
            for v in (self.shared_bytes_per_block, self.shared_bytes_per_block_optin)
            if v is not None
        ]
        return max(known) if known else None

    def matrix_configs(self, a: str, b: str, acc: str) -> tuple[MatrixConfig, ...]:
        """The listed configs of one subgroup for exactly these types (A, B, accumulator)."""
        types = (a, b, signless(acc))
        return tuple(
            row
            for row in self.native_matrix_configs or ()
            if (row.a, row.b, signless(row.acc)) == types and row.scope == "subgroup"
        )

    @cached_property
    def residencies(self) -> dict[Usage, Residency | None]:
        """What :func:`dialects.occupancy.residency` has answered for this device."""
        return {}


# Least and greatest believable value of each number; outside, a driver's reading is unknown.
RANGES: dict[str, tuple[int, int]] = {
    "max_threads_per_block": (1, 1 << 16),
    "registers_per_block": (1, 1 << 24),
    "registers_per_multiprocessor": (1, 1 << 24),
    "registers_per_thread": (1, 1 << 16),
    "shared_bytes_per_block": (0, 1 << 30),
    "shared_bytes_per_block_optin": (0, 1 << 30),
    "shared_bytes_per_multiprocessor": (0, 1 << 30),
    "shared_bytes_reserved_per_block": (0, 1 << 24),
    "threads_per_multiprocessor": (1, 1 << 20),
    "blocks_per_multiprocessor": (1, 1 << 16),
    "multiprocessors": (1, 1 << 20),
    "simds_per_multiprocessor": (1, 1 << 10),
    "l2_bytes": (1, 1 << 40),
    "memory_bytes": (1, 1 << 60),
    "max_binding_bytes": (1, 1 << 60),
    "clock_khz": (1, 1 << 30),
    "memory_clock_khz": (1, 1 << 30),
    "memory_bus_bits": (1, 1 << 20),
}
_WAVES = (1, 1 << 10)
STORAGE_FEATURES = ("b8", "b16")  # what ``storage_features`` may hold; the rest are ``features``
_TUPLES = ("max_workgroup_sizes", "max_workgroup_counts", "wave_widths", "requirable_wave_widths")


def clamped(facts: DeviceFacts) -> DeviceFacts:
    """The facts with every unbelievable number made unknown, so that no rule acts on noise."""
    changes: dict[str, Any] = {}
    for name, (least, greatest) in RANGES.items():
        value = getattr(facts, name)
        if value is not None and not least <= value <= greatest:
            changes[name] = None
    for name in _TUPLES:
        values = getattr(facts, name)
        bounds = _WAVES if "wave" in name else (1, 1 << 32)
        if values is None:
            continue
        axes = len(values) if "wave" in name else 3
        if len(values) != axes or not all(bounds[0] <= v <= bounds[1] for v in values):
            changes[name] = None
    if not facts.wave_widths:
        changes["wave_widths"] = None  # code always runs at some width
    return replace(facts, **changes)


def facts_from_json(text: str | bytes, *, where: str) -> DeviceFacts:
    """Read a facts file.

    Raises:
        FormatError: malformed JSON, an unknown key, a wrong type or another schema version.
    """
    value = loads(text, where=where)
    facts = decode(DeviceFacts, value, where=where)
    if facts.schema_version != SCHEMA_VERSION:
        raise FormatError(
            f"facts of schema {facts.schema_version}, required {SCHEMA_VERSION}", where=where
        )
    return clamped(facts)


def facts_to_json(facts: DeviceFacts) -> dict[str, Any]:
    """The JSON object of a facts file; unknown fields are left out."""
    return {f.name: encode(v) for f in fields(facts) if (v := getattr(facts, f.name)) is not None}
