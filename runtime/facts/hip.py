"""Facts of an AMD device: what the HIP runtime's library reports, asked for by attribute number.

Numbers are those of ``hipDeviceAttribute_t`` since HIP 4.3; the structure of device properties
differs from version to version, so that only the ISA's name is taken from it, by how it looks.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts

from ..selection import select
from .origin import sourced

LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5")
OLDEST = 40300000  # HIP 4.3 renumbered the attributes: major * 10^7 + minor * 10^5 + patch
_PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")  # new structure, old one
_PROPERTY_BYTES = 1 << 14  # far more than either structure
_TEXT_BYTES = 256
_UUID_BYTES = 16
_ISA = re.compile(rb"gfx[0-9a-f]{3,4}")

_LIMITS = {
    "max_threads_per_block": (56, "MaxThreadsPerBlock"),
    "registers_per_block": (71, "MaxRegistersPerBlock"),
    "registers_per_multiprocessor": (72, "MaxRegistersPerMultiprocessor"),
    "shared_bytes_per_block": (74, "MaxSharedMemoryPerBlock"),
    "shared_bytes_per_block_optin": (75, "SharedMemPerBlockOptin"),
    "shared_bytes_per_multiprocessor": (10002, "MaxSharedMemoryPerMultiprocessor"),
    "threads_per_multiprocessor": (57, "MaxThreadsPerMultiProcessor"),
    "blocks_per_multiprocessor": (25, "MaxBlocksPerMultiProcessor"),
    "multiprocessors": (63, "MultiprocessorCount"),
    "l2_bytes": (19, "L2CacheSize"),
    "clock_khz": (5, "ClockRate"),
    "memory_clock_khz": (60, "MemoryClockRate"),
    "memory_bus_bits": (59, "MemoryBusWidth"),
}
_WAVE = (87, "WarpSize")
_AXES = {
    "max_workgroup_sizes": ((26, 27, 28), "MaxBlockDimX, Y, Z"),
    "max_workgroup_counts": ((29, 30, 31), "MaxGridDimX, Y, Z"),
}
_SOURCES = {
    "isa": "hipGetDeviceProperties: gcnArchName",
    "name": "hipDeviceGetName",
    "api": "hipRuntimeGetVersion",
    "uuid": "hipDeviceGetUuid",
    "driver": "hipDriverGetVersion",
    "wave_widths": f"hipDeviceAttribute{_WAVE[1]}",
    "memory_bytes": "hipDeviceTotalMem",
    **{field: f"hipDeviceAttribute{name}" for field, (_, name) in _LIMITS.items()},
    **{field: f"hipDeviceAttribute{name}" for field, (_, name) in _AXES.items()},
}


def read_hip_facts(selector: str = "", libraries: Sequence[str] = LIBRARIES) -> DeviceFacts:
    """Facts of one HIP device: the first, or the one of that place or UUID.

    ``libraries`` are the names under which the HIP library is looked for, in order.

    Raises:
        DeviceError: no HIP library, one that is too old, no such device, or one that failed.
    """
    library = _Library(libraries)
    version = library.integer("hipRuntimeGetVersion")
    if version < OLDEST:
        raise DeviceError(f"hip: runtime {_version(version)} < {_version(OLDEST)}, the oldest read")
    uuids = [library.uuid(place) for place in range(library.integer("hipGetDeviceCount"))]
    place = uuids.index(select("hip", selector, uuids))
    wave = library.attribute(place, _WAVE[0])
    driver = _version(library.integer("hipDriverGetVersion"))
    limits: dict[str, Any] = {
        **{field: library.attribute(place, number) for field, (number, _) in _LIMITS.items()},
        **{field: library.axes(place, numbers) for field, (numbers, _) in _AXES.items()},
    }
    facts = DeviceFacts(
        source=f"read from the HIP runtime {_version(version)}",
        backend="rocm",
        isa=library.isa(place),
        name=library.text("hipDeviceGetName", place),
        api=_version(version),
        uuid=uuids[place],
        driver=driver,
        wave_widths=(wave,) if wave else None,
        memory_bytes=library.memory_bytes(place),
        **limits,
    )
    return sourced(facts, _SOURCES)


def _version(number: int) -> str:
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


class _Library:
    """The functions of the HIP library; a status other than 0 is an error of its own name."""

    def __init__(self, names: Sequence[str]) -> None:
        self._library = _opened(names)
        self._check("hipInit", ctypes.c_uint(0))

    def _call(self, name: str, *arguments: object) -> int:
        try:
            return int(getattr(self._library, name)(*arguments))
        except AttributeError:
            raise DeviceError(f"hip: the library has no '{name}'") from None

    def _check(self, name: str, *arguments: object) -> None:
        status = self._call(name, *arguments)
        if status:
            raise DeviceError(f"hip: {name} failed with status {status}: {self._reason(status)}")

    def _reason(self, status: int) -> str:
        try:
            function = self._library.hipGetErrorString
        except AttributeError:
            return "no reason given"
        function.restype = ctypes.c_char_p
        return (function(ctypes.c_int(status)) or b"no reason given").decode(errors="replace")

    def integer(self, name: str) -> int:
        """A function that gives one integer."""
        value = ctypes.c_int(0)
        self._check(name, ctypes.byref(value))
        return value.value

    def attribute(self, device: int, number: int) -> int | None:
        """One attribute; None where the device has no such, which 0 says too."""
        value = ctypes.c_int(0)
        at = (ctypes.c_int(number), ctypes.c_int(device))
        status = self._call("hipDeviceGetAttribute", ctypes.byref(value), *at)
        return value.value if status == 0 and value.value else None

    def axes(self, device: int, numbers: Sequence[int]) -> tuple[int, ...] | None:
        """Three attributes, None when one of them is unknown."""
        values = [self.attribute(device, number) for number in numbers]
        known = tuple(v for v in values if v is not None)
        return known if len(known) == len(numbers) else None

    def text(self, name: str, device: int) -> str | None:
        """A function that fills a text."""
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        self._check(name, buffer, ctypes.c_int(_TEXT_BYTES - 1), ctypes.c_int(device))
        return buffer.value.decode(errors="replace") or None

    def uuid(self, device: int) -> str:
        """The UUID in hex, as IREE writes it."""
        buffer = ctypes.create_string_buffer(_UUID_BYTES)
        self._check("hipDeviceGetUuid", buffer, ctypes.c_int(device))
        return buffer.raw.hex()

    def memory_bytes(self, device: int) -> int:
        """Memory of the device."""
        value = ctypes.c_size_t(0)
        self._check("hipDeviceTotalMem", ctypes.byref(value), ctypes.c_int(device))
        return value.value

    def isa(self, device: int) -> str | None:
        """The ISA's name without its feature suffixes."""
        name = next((n for n in _PROPERTIES if hasattr(self._library, n)), _PROPERTIES[-1])
        buffer = ctypes.create_string_buffer(_PROPERTY_BYTES)
        self._check(name, buffer, ctypes.c_int(device))
        found = _ISA.search(buffer.raw)
        return found[0].decode() if found else None


def _opened(names: Sequence[str]) -> ctypes.CDLL:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise DeviceError(f"hip: no HIP library, looked for {', '.join(names)}")
