"""What the driver of a device reports about it: one reader a backend, chosen by the URI."""

from __future__ import annotations

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts

from .cpu import read_cpu_facts
from .cuda import read_cuda_facts
from .hip import read_hip_facts
from .vulkan import read_vulkan_facts

__all__ = ["SCHEMES", "read_facts"]

SCHEMES = ("local-sync", "local-task", "vulkan", "cuda", "hip")
"""The schemes of the device URIs that :func:`read_facts` takes."""


def read_facts(uri: str) -> DeviceFacts:
    """Ask the driver of one device for its limits: ``local-task``, ``vulkan``, ``cuda://UUID``.

    Nothing is remembered, so that a caller decides how often a driver is asked. The URI is IREE's,
    except that the path also takes the device's place in IREE's list and a bare UUID.

    Raises:
        DeviceError: a URI of another scheme, or a device that is not there or that failed.
    """
    scheme, _, selector = uri.partition("://")
    match scheme:
        case "local-sync" | "local-task":
            if selector:
                raise DeviceError(f"device '{uri}': '{scheme}' takes no path, it is one device")
            return read_cpu_facts(parallel=scheme == "local-task")
        case "vulkan":
            return read_vulkan_facts(selector)
        case "cuda":
            return read_cuda_facts(selector)
        case "hip":
            return read_hip_facts(selector)
    works = ", ".join(SCHEMES)
    raise DeviceError(f"device '{uri}' is not understood, a URI starts with one of: {works}")
