"""One IREE device: opening it, memory on it, and copies to and from the host."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import iree.runtime as rt
import numpy as np

from dialects.errors import DeviceError
from dialects.manifest import UNKNOWN_MULTIPROCESSORS

from .facts import read_facts

_USAGE = rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING
# Pages that the host caches: it reads others at a small part of the speed (CUDA, write-combined).
_STAGING = rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE
_CACHED_STAGING = {"cuda": int(_STAGING) | int(rt.MemoryType.HOST_CACHED)}
_HOST_VISIBLE = rt.MemoryType.DEVICE_LOCAL | rt.MemoryType.HOST_VISIBLE
_LOCAL_DRIVERS = ("local-sync", "local-task")
BACKENDS = {
    "local-sync": "cpu",
    "local-task": "cpu",
    "vulkan": "vulkan",
    "cuda": "cuda",
    "hip": "rocm",
}
_POISON = np.array([0xFFFFFFFF], np.uint32)  # NaN as a float, -1 as an integer
_POISON_BYTE = 0xFF


def backend_of(uri: str) -> str:
    """The backend whose code a device of that URI runs.

    Raises:
        DeviceError: an unknown scheme, with those that work.
    """
    scheme = uri.partition(":")[0]
    if scheme not in BACKENDS:
        raise DeviceError(f"device '{uri}' is not one of {', '.join(BACKENDS)}")
    return BACKENDS[scheme]


class Device:
    """An open device. Calls are synchronous; any number of threads may use one."""

    def __init__(self, uri: str, *, poison: bool = False) -> None:
        """Open the device; ``poison`` fills every fresh allocation with 0xFF bytes.

        Raises:
            DeviceError: an unknown URI, or the driver's own reason.
        """
        self.uri = uri
        self.backend = backend_of(uri)
        try:
            self.hal = rt.get_device(uri)
            self.instance = rt.VmInstance()
            self.hal_module = rt.create_hal_module(self.instance, self.hal)
        except (ValueError, RuntimeError) as error:
            raise DeviceError(f"cannot open device '{uri}': {status_reason(error)}") from None
        self.allocator = self.hal.allocator
        self.on_host = uri.partition(":")[0] in _LOCAL_DRIVERS
        self.poisons = poison

    @cached_property
    def multiprocessors(self) -> int:
        """What a persistent grid fills; asked of the driver when a candidate first wants it."""
        return read_facts(self.uri).multiprocessors or UNKNOWN_MULTIPROCESSORS

    def allocate(self, nbytes: int) -> Any:
        """An uninitialised buffer of at least four bytes; poisoned where the device was asked to.

        Raises:
            DeviceError: the device has not that much memory.
        """
        try:
            buffer = self.allocator.allocate_buffer(
                rt.MemoryType.DEVICE_LOCAL, _USAGE, _rounded(nbytes)
            )
        except TypeError:  # more than the call can express
            raise DeviceError(f"cannot allocate {nbytes} B on '{self.uri}'") from None
        except (ValueError, RuntimeError, MemoryError) as error:
            raise DeviceError(f"cannot allocate {nbytes} B: {status_reason(error)}") from None
        if self.poisons:
            self.poison(buffer)
        return buffer

    def adopt(self, array: np.ndarray) -> Any:
        """A buffer over the memory of a contiguous host array, which must outlive it.

        Only on a device that shares the host's memory. A read-only array is adopted too: kernels
        write nothing but their result.
        """
        flat = array.reshape(-1).view(np.uint8) if array.size else np.zeros(4, np.uint8)
        if not flat.flags.writeable:
            view = (ctypes.c_uint8 * flat.nbytes).from_address(flat.ctypes.data)
            view.owner = flat  # type: ignore[attr-defined]  # an address keeps nothing alive
            flat = np.ctypeslib.as_array(view)
        return self.allocator.import_host_allocation(
            flat, memory_type=int(_HOST_VISIBLE), allowed_usage=int(_USAGE)
        )

    def upload(self, array: np.ndarray, nbytes: int | None = None, *, fill: int = 0) -> Any:
        """A new buffer with a copy of a contiguous array, padded to ``nbytes`` when larger.

        ``fill`` is the byte of the padding.

        Raises:
            DeviceError: the device has not that much memory.
        """
        size = _rounded(max(array.nbytes, nbytes or 0))
        try:
            content = np.empty(size, np.uint8)
            content[: array.nbytes] = array.reshape(-1).view(np.uint8)
            content[array.nbytes :] = _POISON_BYTE if self.poisons else fill
            view = self.allocator.allocate_buffer_copy(
                rt.MemoryType.DEVICE_LOCAL, _USAGE, self.hal, content, rt.HalElementType.UINT_8
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise DeviceError(f"cannot upload {size} B: {status_reason(error)}") from None
        return view.get_buffer()  # type: ignore[union-attr]

    def download(
        self,
        buffer: Any,
        shape: Sequence[int],
        dtype: np.dtype,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """A host copy of the first elements of a buffer; in ``out`` where it is given.

        Through a staging buffer: device memory is not mappable everywhere, and a direct import of
        the result array demands page alignment on Vulkan.
        """
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.zeros(shape, dtype)
        source = buffer
        if not self.on_host:
            source = self.allocator.allocate_buffer(
                _CACHED_STAGING.get(self.backend, _STAGING),
                rt.BufferUsage.TRANSFER | rt.BufferUsage.MAPPING,
                buffer.byte_length(),
            )
            self._submit(
                lambda wait, signal: self.hal.queue_copy(
                    buffer, source, wait_semaphores=wait, signal_semaphores=signal
                )
            )
        raw = source.map().asarray((source.byte_length(),), np.dtype(np.uint8))
        elements = raw[: count * dtype.itemsize].view(dtype).reshape(shape)
        if out is None:
            return elements.copy()
        out[...] = elements
        return out

    def poison(self, buffer: Any) -> None:
        """Fill a buffer with 0xFF bytes, so that reading what nothing wrote shows."""
        commands = rt.HalCommandBuffer(self.hal)
        commands.fill(buffer, _POISON)
        commands.end()
        self._submit(
            lambda wait, signal: self.hal.queue_execute(
                commands, wait_semaphores=wait, signal_semaphores=signal
            )
        )

    def _submit(self, enqueue: Any) -> None:
        semaphore = self.hal.create_semaphore(0)
        done = rt.HalFence.create_at(semaphore, 1)
        try:
            enqueue(rt.HalFence.create_at(semaphore, 0), done)
            done.wait()
        except (ValueError, RuntimeError) as error:
            raise DeviceError(f"device '{self.uri}' failed: {status_reason(error)}") from None


def _rounded(nbytes: int) -> int:
    return max(4, -(-nbytes // 4) * 4)


def status_reason(error: BaseException) -> str:
    """The first sentence of one of IREE's status messages, without its source positions."""
    text = " ".join(str(error).split())
    _, found, rest = text.partition(".c:")
    reason = (rest.partition(": ")[2] if found else text).partition("; while")[0]
    return reason.partition(" c/runtime/src/")[0][:240].strip(" ;")
