"""What the Vulkan loader and its drivers say, in Vulkan's own words, numbers and enumerations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dialects.errors import DeviceError

_VERSION_1_3 = 1 << 22 | 3 << 12  # what IREE requires of a device, and where our structures stand
_DEVICE_LOCAL = 1  # VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
_COOPERATIVE_MATRIX = "VK_KHR_cooperative_matrix"
_SM_BUILTINS = "VK_NV_shader_sm_builtins"
_SHADER_CORE = "VK_AMD_shader_core_properties"


@dataclass(frozen=True, kw_only=True)
class CooperativeRow:
    """One VkCooperativeMatrixPropertiesKHR; types and scope are Vulkan's numbers."""

    m: int
    n: int
    k: int
    a: int
    b: int
    c: int
    result: int
    saturating: bool
    scope: int


@dataclass(frozen=True, kw_only=True)
class ShaderCore:
    """VkPhysicalDeviceShaderCorePropertiesAMD; ``vgprs_per_simd`` counts registers of a lane."""

    compute_units: int
    simds_per_unit: int
    wavefronts_per_simd: int
    wavefront_size: int
    vgprs_per_simd: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """One physical device. ``features`` are the names of the feature bits that are set.

    ``sm_builtins`` are the multiprocessors and the warps of one, ``uuid`` is hex.
    """

    name: str
    api_version: int
    uuid: str
    driver: str
    extensions: frozenset[str]
    features: frozenset[str]
    subgroup_size: int
    min_subgroup_size: int
    max_subgroup_size: int
    sized_stages: int
    max_invocations: int
    max_sizes: tuple[int, ...]
    max_counts: tuple[int, ...]
    shared_bytes: int
    max_storage_range: int
    local_bytes: int
    cooperative_rows: tuple[CooperativeRow, ...] = ()
    sm_builtins: tuple[int, int] | None = None
    shader_core: ShaderCore | None = None


def read_reports() -> list[Report]:
    """Every physical device that has Vulkan 1.3, in the loader's order.

    Raises:
        DeviceError: no loader, no driver, or one that failed.
    """
    try:
        # Here and not above: the package opens the loader as it is imported, and a machine without
        # one must still be able to ask for its other devices.
        import vulkan
    except (ImportError, OSError) as error:
        raise DeviceError(f"vulkan: the loader cannot be opened: {error}") from None
    vk: Any = vulkan
    try:
        with _instance(vk) as instance:
            devices = vk.vkEnumeratePhysicalDevices(instance)
            return [_report(vk, instance, d) for d in devices if _is_new_enough(vk, d)]
    except vk.VkErrorIncompatibleDriver:
        raise DeviceError("vulkan: the loader finds no driver that it can use") from None
    except (vk.VkError, vk.VkException, vk.ProcedureNotFoundError) as error:
        raise DeviceError(f"vulkan: the driver failed: {type(error).__name__}") from None


@contextmanager
def _instance(vk: Any) -> Iterator[Any]:
    application = vk.VkApplicationInfo(pApplicationName="facts", apiVersion=_VERSION_1_3)
    create = vk.VkInstanceCreateInfo(
        pApplicationInfo=application,
        enabledExtensionCount=0,
        ppEnabledExtensionNames=[],
        enabledLayerCount=0,
        ppEnabledLayerNames=[],
    )
    instance = vk.vkCreateInstance(create, None)
    try:
        yield instance
    finally:
        vk.vkDestroyInstance(instance, None)


def _is_new_enough(vk: Any, device: Any) -> bool:
    return vk.vkGetPhysicalDeviceProperties(device).apiVersion >= _VERSION_1_3


def _report(vk: Any, instance: Any, device: Any) -> Report:
    listed = vk.vkEnumerateDeviceExtensionProperties(device, None)
    extensions = frozenset(str(e.extensionName) for e in listed)
    optional = {
        _SM_BUILTINS: vk.VkPhysicalDeviceShaderSMBuiltinsPropertiesNV,
        _SHADER_CORE: vk.VkPhysicalDeviceShaderCorePropertiesAMD,
    }
    head, (v11, v12, v13, *more) = _chain(
        vk.VkPhysicalDeviceProperties2,
        vk.VkPhysicalDeviceVulkan11Properties,
        vk.VkPhysicalDeviceVulkan12Properties,
        vk.VkPhysicalDeviceVulkan13Properties,
        *(make for name, make in optional.items() if name in extensions),
    )
    vk.lib.vkGetPhysicalDeviceProperties2(device, vk.ffi.addressof(head))
    extra = dict(zip((n for n in optional if n in extensions), more, strict=True))
    limits = head.properties.limits
    features = _features(vk, device, extensions)
    return Report(
        name=_string(vk, head.properties.deviceName),
        api_version=head.properties.apiVersion,
        uuid=bytes(v11.deviceUUID).hex(),
        driver=_driver(vk, v12, head.properties.driverVersion),
        extensions=extensions,
        features=features,
        subgroup_size=v11.subgroupSize,
        min_subgroup_size=v13.minSubgroupSize,
        max_subgroup_size=v13.maxSubgroupSize,
        sized_stages=v13.requiredSubgroupSizeStages,
        max_invocations=limits.maxComputeWorkGroupInvocations,
        max_sizes=tuple(limits.maxComputeWorkGroupSize),
        max_counts=tuple(limits.maxComputeWorkGroupCount),
        shared_bytes=limits.maxComputeSharedMemorySize,
        max_storage_range=limits.maxStorageBufferRange,
        local_bytes=_local_bytes(vk, device),
        cooperative_rows=_rows(vk, instance, device) if "cooperativeMatrix" in features else (),
        sm_builtins=_sm_builtins(extra.get(_SM_BUILTINS)),
        shader_core=_shader_core(extra.get(_SHADER_CORE)),
    )


def _chain(first: Any, *rest: Any) -> tuple[Any, list[Any]]:
    """A ``first`` structure whose pNext leads through one of each of the rest, and those.

    The caller holds all of them: the package keeps no structure alive that is only pointed to.
    """
    links: list[Any] = []
    for make in reversed(rest):
        links.insert(0, make(pNext=links[0]) if links else make())
    return first(pNext=links[0]), links


def _features(vk: Any, device: Any, extensions: frozenset[str]) -> frozenset[str]:
    makers = [
        vk.VkPhysicalDeviceVulkan11Features,
        vk.VkPhysicalDeviceVulkan12Features,
        vk.VkPhysicalDeviceVulkan13Features,
    ]
    if _COOPERATIVE_MATRIX in extensions:
        makers.append(vk.VkPhysicalDeviceCooperativeMatrixFeaturesKHR)
    head, links = _chain(vk.VkPhysicalDeviceFeatures2, *makers)
    vk.lib.vkGetPhysicalDeviceFeatures2(device, vk.ffi.addressof(head))
    found: set[str] = set()
    for structure in (head.features, *links):
        for name, _ in vk.ffi.typeof(structure).fields:
            if name not in ("sType", "pNext") and getattr(structure, name):
                found.add(name)
    return frozenset(found)


def _rows(vk: Any, instance: Any, device: Any) -> tuple[CooperativeRow, ...]:
    name = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    rows = vk.vkGetInstanceProcAddr(instance, name)(device)
    return tuple(
        CooperativeRow(
            m=row.MSize,
            n=row.NSize,
            k=row.KSize,
            a=row.AType,
            b=row.BType,
            c=row.CType,
            result=row.ResultType,
            saturating=bool(row.saturatingAccumulation),
            scope=row.scope,
        )
        for row in rows
    )


def _sm_builtins(found: Any) -> tuple[int, int] | None:
    return None if found is None else (found.shaderSMCount, found.shaderWarpsPerSM)


def _shader_core(found: Any) -> ShaderCore | None:
    if found is None:
        return None
    arrays = found.shaderEngineCount * found.shaderArraysPerEngineCount
    return ShaderCore(
        compute_units=arrays * found.computeUnitsPerShaderArray,
        simds_per_unit=found.simdPerComputeUnit,
        wavefronts_per_simd=found.wavefrontsPerSimd,
        wavefront_size=found.wavefrontSize,
        vgprs_per_simd=found.vgprsPerSimd,
    )


def _local_bytes(vk: Any, device: Any) -> int:
    memory = vk.vkGetPhysicalDeviceMemoryProperties(device)
    heaps = [memory.memoryHeaps[i] for i in range(memory.memoryHeapCount)]
    return sum(heap.size for heap in heaps if heap.flags & _DEVICE_LOCAL)


def _driver(vk: Any, properties: Any, version: int) -> str:
    texts = (_string(vk, properties.driverName), _string(vk, properties.driverInfo))
    return " ".join(filter(None, texts)) or f"version {version}"


def _string(vk: Any, characters: Any) -> str:
    if isinstance(characters, str):
        return characters  # the package decodes some of them itself
    return vk.ffi.string(characters).decode(errors="replace")
