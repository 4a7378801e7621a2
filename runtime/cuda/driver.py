"""The CUDA driver API through cuda-bindings, with every status checked (extra ``cuda``).

Handles and addresses are plain integers. Nothing is imported before a CUDA device is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dialects.errors import DeviceError

from ..selection import select

INSTALL = "pip install 'tilewright[cuda]'"
LOG_BYTES = 16384


class Driver:
    """The driver's functions by name, as :meth:`call`; ``api`` is ``cuda.bindings.driver``."""

    def __init__(self, api: Any) -> None:
        self.api = api
        self.success = api.CUresult.CUDA_SUCCESS

    def call(self, name: str, *arguments: Any) -> Any:
        """Call one function; its result, a tuple of results, or None.

        Raises:
            DeviceError: with the function's name and the driver's own words.
        """
        status, *values = getattr(self.api, name)(*arguments)
        if status != self.success:
            raise DeviceError(f"{name}: {self.reason(status)}")
        return values[0] if len(values) == 1 else tuple(values) or None

    def reason(self, status: Any) -> str:
        """The name of a status and what it means."""
        _, text = self.api.cuGetErrorString(status)
        name = getattr(status, "name", str(status))
        return f"{name} ({text.decode()})" if text else name

    def attribute(self, name: str, device: int) -> int | None:
        """A device attribute by the last part of its name; None where this driver lacks it."""
        kind = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
        if kind is None:
            return None
        status, value = self.api.cuDeviceGetAttribute(kind, device)
        return int(value) if status == self.success else None

    def function_attribute(self, name: str, function: Any) -> int:
        """An attribute of a loaded function by the last part of its name.

        Raises:
            DeviceError: the driver does not tell.
        """
        kind = getattr(self.api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(self.call("cuFuncGetAttribute", kind, function))

    def uuids(self) -> list[str]:
        """The UUID of each device in the driver's order, as 32 hex digits.

        Raises:
            DeviceError: the driver failed.
        """
        # Bindings 12 name the function that knows of partitioned devices apart.
        name = (
            "cuDeviceGetUuid_v2" if hasattr(self.api, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        )
        count = int(self.call("cuDeviceGetCount"))
        return [
            bytes(self.call(name, self.call("cuDeviceGet", place)).bytes).hex()
            for place in range(count)
        ]

    def load_module(self, image: bytes) -> Any:
        """Load PTX text or a cubin into the current context.

        Raises:
            DeviceError: with the log of the driver's compiler.
        """
        option, log = self.api.CUjit_option, bytearray(LOG_BYTES)
        status, module = self.api.cuModuleLoadDataEx(
            image + b"\0",  # PTX is a text that ends with a zero byte
            2,
            [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
            [log, LOG_BYTES],
        )
        if status != self.success:
            text = " ".join(bytes(log).partition(b"\0")[0].decode(errors="replace").split())
            raise DeviceError(f"cannot load the code: {self.reason(status)}: {text or 'no log'}")
        return module

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Make a context the calling thread's, and put back the one before it."""
        self.call("cuCtxPushCurrent", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent")


def open_driver(uri: str) -> Driver:
    """The driver of this machine, initialised; ``uri`` is the device that it is wanted for.

    Raises:
        DeviceError: the package or the driver is missing, or there is no device.
    """
    try:
        api = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        text = f"device '{uri}' needs the package 'cuda-bindings': {INSTALL}"
        raise DeviceError(text) from None
    driver = Driver(api)
    try:
        driver.call("cuInit", 0)
    except (RuntimeError, OSError) as error:  # the bindings load the library now
        reason = " ".join(str(error).split())[:240]
        raise DeviceError(f"device '{uri}': the driver is not installed: {reason}") from None
    except DeviceError as error:
        raise DeviceError(f"device '{uri}': {error.message}") from None
    return driver


def find_device(driver: Driver, selector: str, listed: list[str] | None = None) -> int:
    """The driver's number of the device that a URI's path names: nothing, a place, or a UUID.

    ``listed`` are UUIDs in the order in which places count; left out, it is the driver's.

    Raises:
        DeviceError: there is no such device, with those that there are.
    """
    uuids = driver.uuids()
    order = [u for u in listed if u in uuids] if listed else uuids
    return uuids.index(select("cuda", selector, order))


def nvml() -> Any | None:
    """NVIDIA's management library, initialised; None where it or its package is missing."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except (library.NVMLError, OSError):
        return None
    return library


def nvml_handle(library: Any, uuid: str) -> Any | None:
    """The management library's handle of a device; None where it does not know it."""
    groups = (uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:])
    try:
        return library.nvmlDeviceGetHandleByUUID(f"GPU-{'-'.join(groups)}")
    except library.NVMLError:
        return None
