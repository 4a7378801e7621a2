"""Facts of a Vulkan device: what its driver reports, in our names and units."""

from __future__ import annotations

from collections.abc import Sequence

from iree.runtime import get_driver

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts, MatrixConfig

from ..selection import select as select_by_path
from .origin import sourced
from .vulkan_report import CooperativeRow, Report, read_reports

_COMPUTE_STAGE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
_BFLOAT16 = "VK_KHR_shader_bfloat16"

# VkComponentTypeKHR and VkScopeKHR; a row with any other type cannot be named and is left out.
_TYPES = {0: "f16", 1: "f32", 2: "f64", 3: "i8", 5: "i32", 7: "u8", 9: "u32", 1000141000: "bf16"}
_SCOPES = {1: "device", 2: "workgroup", 3: "subgroup", 5: "queue_family"}

_FEATURES = {
    "fp16": "shaderFloat16",
    "int8": "shaderInt8",
    "int16": "shaderInt16",
    "int64": "shaderInt64",
    "fp64": "shaderFloat64",
}
_STORAGE_FEATURES = {"b8": "storageBuffer8BitAccess", "b16": "storageBuffer16BitAccess"}

_GEOMETRY = "VK_NV_shader_sm_builtins or VK_AMD_shader_core_properties"
_SOURCES = {
    "name": "deviceName",
    "api": "apiVersion",
    "uuid": "deviceUUID",
    "driver": "driverName, driverInfo",
    "wave_widths": "minSubgroupSize to maxSubgroupSize, subgroupSize where none can be required",
    "requirable_wave_widths": "requiredSubgroupSizeStages, minSubgroupSize to maxSubgroupSize",
    "max_threads_per_block": "maxComputeWorkGroupInvocations",
    "max_workgroup_sizes": "maxComputeWorkGroupSize",
    "max_workgroup_counts": "maxComputeWorkGroupCount",
    "shared_bytes_per_block": "maxComputeSharedMemorySize",
    "max_binding_bytes": "maxStorageBufferRange",
    "memory_bytes": "sum of the device-local heaps",
    "multiprocessors": _GEOMETRY,
    "simds_per_multiprocessor": _GEOMETRY,
    "threads_per_multiprocessor": _GEOMETRY,
    "registers_per_multiprocessor": _GEOMETRY,
    "features": f"{', '.join(_FEATURES.values())}, {_BFLOAT16}",
    "storage_features": ", ".join(_STORAGE_FEATURES.values()),
    "native_matrix_configs": "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
}


def read_vulkan_facts(selector: str = "") -> DeviceFacts:
    """Facts of one Vulkan device: the first that IREE lists, or the one of that place or UUID.

    Raises:
        DeviceError: no loader, no driver, no such device, or a driver that failed.
    """
    reports = {report.uuid: report for report in reversed(read_reports())}
    return facts_of(reports[select(selector, [u for u in _listed_by_iree() if u in reports])])


def select(selector: str, uuids: Sequence[str]) -> str:
    """The UUID, in hex, that a URI's path names: empty, a place in the list, or ``GPU-<uuid>``.

    Raises:
        DeviceError: nothing in the list, or nothing that fits, with what there is.
    """
    if not uuids:
        raise DeviceError("vulkan: there is no device with Vulkan 1.3 that IREE can use")
    return select_by_path("vulkan", selector, uuids)


def _listed_by_iree() -> list[str]:
    try:
        listed = get_driver("vulkan").query_available_devices()
    except (RuntimeError, ValueError) as error:
        raise DeviceError(f"vulkan: IREE cannot list the devices: {error}") from None
    return [device["path"].removeprefix("GPU-") for device in listed]


def facts_of(report: Report) -> DeviceFacts:
    """The facts that one driver's report gives; no driver is asked anything."""
    version = report.api_version
    bfloat16 = ("bf16",) if _BFLOAT16 in report.extensions else ()
    configs = (_matrix_config(row) for row in report.cooperative_rows)
    widths, requirable = _wave_widths(report)
    units, simds, threads, registers = _geometry(report, min(widths))
    facts = DeviceFacts(
        source=f"read from the Vulkan driver {report.driver}",
        backend="vulkan",
        name=report.name,
        api=f"{version >> 22 & 0x7F}.{version >> 12 & 0x3FF}.{version & 0xFFF}",
        uuid=report.uuid,
        driver=report.driver,
        wave_widths=widths,
        requirable_wave_widths=requirable,
        max_threads_per_block=report.max_invocations,
        max_workgroup_sizes=report.max_sizes,
        max_workgroup_counts=report.max_counts,
        shared_bytes_per_block=report.shared_bytes,
        max_binding_bytes=report.max_storage_range,
        memory_bytes=report.local_bytes,
        multiprocessors=units,
        simds_per_multiprocessor=simds,
        threads_per_multiprocessor=threads,
        registers_per_multiprocessor=registers,
        features=_offered(_FEATURES, report) + bfloat16,
        storage_features=_offered(_STORAGE_FEATURES, report),
        native_matrix_configs=tuple(dict.fromkeys(c for c in configs if c is not None)),
    )
    return sourced(facts, _SOURCES)


def _offered(names: dict[str, str], report: Report) -> tuple[str, ...]:
    return tuple(ours for ours, theirs in names.items() if theirs in report.features)


def _wave_widths(report: Report) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Widths that code can run at, and those of them that a pipeline can ask for."""
    least, greatest = report.min_subgroup_size, report.max_subgroup_size
    widths = tuple(1 << i for i in range(greatest.bit_length()) if least <= 1 << i <= greatest)
    asked = "subgroupSizeControl" in report.features and report.sized_stages & _COMPUTE_STAGE
    return (widths, widths) if asked and widths else ((report.subgroup_size,), ())


def _matrix_config(row: CooperativeRow) -> MatrixConfig | None:
    """None for a row that our multiply-accumulate is not: other types, or a saturating one."""
    names = [_TYPES.get(number) for number in (row.a, row.b, row.c, row.result)]
    scope = _SCOPES.get(row.scope)
    a, b, c, result = names
    if a is None or b is None or c is None or c != result or row.saturating or scope is None:
        return None
    return MatrixConfig(m=row.m, n=row.n, k=row.k, a=a, b=b, acc=c, scope=scope)


def _geometry(report: Report, wave: int) -> tuple[int | None, int | None, int | None, int | None]:
    """Multiprocessors, and SIMDs, threads and registers of one, where an extension tells.

    Where waves narrower than the reported wavefront exist, that many compute units make the one
    group processor on which a workgroup is resident, so they are counted together.
    """
    if report.sm_builtins is not None:
        count, warps = report.sm_builtins
        return count, None, warps * wave, None
    core = report.shader_core
    if core is None:
        return None, None, None, None
    together = max(1, core.wavefront_size // wave)
    simds = core.simds_per_unit * together
    return (
        core.compute_units // together,
        simds,
        simds * core.wavefronts_per_simd * wave,
        simds * core.vgprs_per_simd * core.wavefront_size,
    )
