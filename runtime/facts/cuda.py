"""Facts of a CUDA device: what its driver and NVIDIA's management library report."""

from __future__ import annotations

from typing import Any

from iree.runtime import get_driver

from dialects.facts import DeviceFacts

from ..cuda.driver import Driver, find_device, nvml, nvml_handle, open_driver
from .origin import sourced

ARCHITECTURE_SPECIFIC = 9  # compute capability whose ISA names take the suffix ``a`` (PTX ISA 8.0)

_LIMITS = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "registers_per_multiprocessor": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "shared_bytes_per_block": "MAX_SHARED_MEMORY_PER_BLOCK",
    "shared_bytes_per_block_optin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_bytes_per_multiprocessor": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "shared_bytes_reserved_per_block": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "threads_per_multiprocessor": "MAX_THREADS_PER_MULTIPROCESSOR",
    "blocks_per_multiprocessor": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "multiprocessors": "MULTIPROCESSOR_COUNT",
    "l2_bytes": "L2_CACHE_SIZE",
}
_AXES = ("X", "Y", "Z")
_SOURCES = {
    "isa": "compute capability",
    "name": "cuDeviceGetName",
    "api": "cuDriverGetVersion",
    "uuid": "cuDeviceGetUuid",
    "wave_widths": "CU_DEVICE_ATTRIBUTE_WARP_SIZE",
    "max_workgroup_sizes": "CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_*",
    "max_workgroup_counts": "CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_*",
    "memory_bytes": "cuDeviceTotalMem",
    **{field: f"CU_DEVICE_ATTRIBUTE_{name}" for field, name in _LIMITS.items()},
}


def read_cuda_facts(selector: str = "") -> DeviceFacts:
    """Facts of one CUDA device: the first that IREE lists, or the one of that place or UUID.

    Raises:
        DeviceError: no cuda-bindings, no driver, no such device, or a driver that failed.
    """
    driver = open_driver(f"cuda://{selector}" if selector else "cuda")
    place = find_device(driver, selector, listed_by_iree())
    return facts_of(driver, place, nvml())


def listed_by_iree() -> list[str] | None:
    """UUIDs of the devices in IREE's order; None where IREE lists none."""
    try:
        listed = get_driver("cuda").query_available_devices()
    except (RuntimeError, ValueError):
        return None
    return [d["path"].removeprefix("GPU-").replace("-", "").lower() for d in listed]


def facts_of(driver: Driver, place: int, library: Any | None) -> DeviceFacts:
    """The facts of the driver's device of that number; ``library`` is the management library.

    Raises:
        DeviceError: the driver failed.
    """
    device = driver.call("cuDeviceGet", place)
    uuid = driver.uuids()[place]
    version, version_source = _driver_version(driver, library)
    clocks, clock_sources = _clocks(driver, device, uuid, library)
    wave = driver.attribute("WARP_SIZE", device)
    numbers: dict[str, Any] = {
        field: driver.attribute(name, device) for field, name in _LIMITS.items()
    }
    facts = DeviceFacts(
        source=f"read from the CUDA driver {version}",
        backend="cuda",
        isa=isa_name(
            driver.attribute("COMPUTE_CAPABILITY_MAJOR", device),
            driver.attribute("COMPUTE_CAPABILITY_MINOR", device),
        ),
        name=_text(driver.call("cuDeviceGetName", 256, device)),
        api=_api(driver),
        uuid=uuid,
        driver=version,
        wave_widths=(wave,) if wave else None,
        max_workgroup_sizes=_axes(driver, device, "MAX_BLOCK_DIM"),
        max_workgroup_counts=_axes(driver, device, "MAX_GRID_DIM"),
        memory_bytes=int(driver.call("cuDeviceTotalMem", device)),
        **numbers,
        **clocks,
    )
    return sourced(facts, {**_SOURCES, **clock_sources, "driver": version_source})


def isa_name(major: int | None, minor: int | None) -> str | None:
    """How compilers name the ISA of a compute capability; None where that is unknown.

    From 9.0 on the matrix instructions are in the architecture-specific set, which has a suffix
    (PTX ISA, ``.target``).
    """
    if major is None or minor is None:
        return None
    return f"sm_{major}{minor}{'a' if major >= ARCHITECTURE_SPECIFIC else ''}"


def _text(raw: bytes | str) -> str:
    """What a fixed field holds: a zero byte ends it, whatever follows."""
    return raw.partition(b"\0")[0].decode() if isinstance(raw, bytes) else raw


def _api(driver: Driver) -> str:
    version = int(driver.call("cuDriverGetVersion"))  # 1000 * major + 10 * minor
    return f"{version // 1000}.{version % 1000 // 10}"


def _axes(driver: Driver, device: Any, name: str) -> tuple[int, ...] | None:
    values = [driver.attribute(f"{name}_{axis}", device) for axis in _AXES]
    known = tuple(v for v in values if v is not None)
    return known if len(known) == len(_AXES) else None


def _driver_version(driver: Driver, library: Any | None) -> tuple[str, str]:
    """The driver's own version where NVML tells it, else that of its API; and who said so."""
    if library is not None:
        try:
            return _text(library.nvmlSystemGetDriverVersion()), "nvmlSystemGetDriverVersion"
        except library.NVMLError:
            pass
    return f"API {_api(driver)}", "cuDriverGetVersion"


def _clocks(
    driver: Driver, device: Any, uuid: str, library: Any | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Clocks and bus width with their sources: the driver's where it has them, else NVML's."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for field, attribute in (
        ("clock_khz", "CLOCK_RATE"),
        ("memory_clock_khz", "MEMORY_CLOCK_RATE"),
        ("memory_bus_bits", "GLOBAL_MEMORY_BUS_WIDTH"),
    ):
        value, source = driver.attribute(attribute, device), f"CU_DEVICE_ATTRIBUTE_{attribute}"
        if not value:
            value, source = _from_nvml(field, uuid, library)
        values[field], sources[field] = value, source
    return values, sources


def _from_nvml(field: str, uuid: str, library: Any | None) -> tuple[int | None, str]:
    handle = nvml_handle(library, uuid) if library is not None else None
    if library is None or handle is None:
        return None, ""
    try:
        if field == "memory_bus_bits":
            return int(library.nvmlDeviceGetMemoryBusWidth(handle)), "nvmlDeviceGetMemoryBusWidth"
        kind = library.NVML_CLOCK_SM if field == "clock_khz" else library.NVML_CLOCK_MEM
        megahertz = int(library.nvmlDeviceGetMaxClockInfo(handle, kind))
        return megahertz * 1000, "nvmlDeviceGetMaxClockInfo"
    except library.NVMLError:
        return None, ""
