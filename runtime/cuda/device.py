"""A CUDA device without IREE: its primary context, memory on it, and copies to and from the host.

The primary context is the one that IREE and torch use too, so that addresses and streams are shared
with both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from dialects.errors import DeviceError, OperandError
from dialects.manifest import UNKNOWN_MULTIPROCESSORS

from ..facts.cuda import listed_by_iree
from .driver import Driver, find_device, open_driver

_POISON_BYTE = 0xFF
LEGACY_STREAM = 0  # ordered with the default stream of torch and of the runtime API


class CudaBuffer:
    """Device memory: an address and a length. ``owner`` is kept alive as long as the buffer is.

    It is the foreign array where the memory is somebody else's.
    """

    __slots__ = ("nbytes", "owner", "pointer")

    def __init__(self, pointer: int, nbytes: int, owner: Any) -> None:
        self.pointer, self.nbytes, self.owner = pointer, nbytes, owner

    def byte_length(self) -> int:
        """Length in bytes."""
        return self.nbytes

    def overlaps(self, other: CudaBuffer) -> bool:
        """Whether the two share a byte."""
        return bool(self.nbytes and other.nbytes) and (
            self.pointer < other.pointer + other.nbytes
            and other.pointer < self.pointer + self.nbytes
        )


class Allocation:
    """Memory of ours, freed with the last buffer on it."""

    __slots__ = ("_device", "pointer")

    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        self._device = device
        with device.current():
            self.pointer = int(device.driver.call("cuMemAlloc", nbytes))

    def __del__(self) -> None:
        pointer = getattr(self, "pointer", 0)
        with contextlib.suppress(DeviceError):  # at exit the driver may be gone before us
            if pointer:
                with self._device.current():
                    self._device.driver.call("cuMemFree", pointer)


class CudaDevice:
    """An open device. ``stream`` is where launches go: a handle, or an object that has one."""

    backend = "cuda"
    on_host = False

    def __init__(
        self,
        uri: str,
        stream: Any = None,
        driver: Driver | None = None,
        *,
        poison: bool = False,
    ) -> None:
        """Open the device; ``poison`` fills every fresh allocation with 0xFF bytes.

        Raises:
            DeviceError: no such device, or the driver's own reason.
            OperandError: a stream that is none.
        """
        self.uri, self.poisons = uri, poison
        self.driver = driver or open_driver(uri)
        self.place = find_device(self.driver, uri.partition("://")[2], listed_by_iree())
        self.stream = stream_handle(stream, LEGACY_STREAM)
        self._number = self.driver.call("cuDeviceGet", self.place)
        self.context = int(self.driver.call("cuDevicePrimaryCtxRetain", self._number))
        self._current = self.driver.api.cuCtxGetCurrent

    def current(self) -> contextlib.AbstractContextManager[None]:
        """Make this device's context the calling thread's, for as long as the block runs."""
        return self.driver.current(self.context)

    def is_current(self) -> bool:
        """Whether this device's context is the calling thread's."""
        return int(self._current()[1]) == self.context

    def attribute(self, name: str) -> int | None:
        """A device attribute by the last part of its name."""
        return self.driver.attribute(name, self._number)

    @cached_property
    def multiprocessors(self) -> int:
        """What a persistent grid fills."""
        return self.attribute("MULTIPROCESSOR_COUNT") or UNKNOWN_MULTIPROCESSORS

    def allocate(self, nbytes: int) -> CudaBuffer:
        """An uninitialised buffer of at least four bytes; poisoned where the device was asked to.

        Nothing is filled while a graph is captured.

        Raises:
            DeviceError: the device has not that much memory.
        """
        size = max(4, -(-nbytes // 4) * 4)
        try:
            held = Allocation(self, size)
        except (DeviceError, OverflowError) as error:
            raise DeviceError(f"cannot allocate {nbytes} B on '{self.uri}': {error}") from None
        buffer = CudaBuffer(held.pointer, size, _Owned(held))
        if self.poisons and not self.is_capturing(self.stream):
            self.poison(buffer)
            self.synchronize(self.stream)  # a call may name another stream
        return buffer

    def adopt(self, array: np.ndarray) -> CudaBuffer:
        """Not here: this device has memory of its own.

        Raises:
            DeviceError: always.
        """
        raise DeviceError(f"device '{self.uri}' does not share the host's memory")

    def upload(self, array: np.ndarray, nbytes: int | None = None, *, fill: int = 0) -> CudaBuffer:
        """A new buffer with a copy of a contiguous array, padded to ``nbytes`` when larger.

        ``fill`` is the byte of the padding.

        Raises:
            DeviceError: the device has not that much memory.
        """
        buffer = self.allocate(max(array.nbytes, nbytes or 0))
        content = np.ascontiguousarray(array)
        padding = buffer.nbytes - content.nbytes
        with self.current():
            if padding and not self.poisons:  # a fresh buffer is poisoned already
                end = buffer.pointer + content.nbytes
                self.driver.call("cuMemsetD8Async", end, fill, padding, self.stream)
            if content.nbytes:
                self.driver.call(
                    "cuMemcpyHtoDAsync",
                    buffer.pointer,
                    content.ctypes.data,
                    content.nbytes,
                    self.stream,
                )
            self.driver.call("cuStreamSynchronize", self.stream)
        return buffer

    def download(
        self,
        buffer: CudaBuffer,
        shape: Sequence[int],
        dtype: np.dtype,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """A host copy of the first elements of a buffer, after everything that was launched.

        It is made in ``out``, a contiguous array, where that is given.

        Raises:
            DeviceError: the device failed, now or before.
        """
        array = np.zeros(shape, dtype) if out is None else out
        if array.size:
            with self.current():
                # A call may have named another stream than the session's.
                self.driver.call("cuCtxSynchronize")
                self.driver.call(
                    "cuMemcpyDtoHAsync",
                    array.ctypes.data,
                    buffer.pointer,
                    array.nbytes,
                    self.stream,
                )
                self.driver.call("cuStreamSynchronize", self.stream)
        return array

    def poison(self, buffer: CudaBuffer) -> None:
        """Fill a buffer with 0xFF bytes, so that reading what nothing wrote shows."""
        with self.current():
            self.driver.call(
                "cuMemsetD8Async", buffer.pointer, _POISON_BYTE, buffer.nbytes, self.stream
            )

    def synchronize(self, stream: int) -> None:
        """Wait for a stream.

        Raises:
            DeviceError: something on it failed.
        """
        with self.current():
            self.driver.call("cuStreamSynchronize", stream)

    def is_capturing(self, stream: int) -> bool:
        """Whether a graph is being captured from the stream."""
        none = self.driver.api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        with self.current():
            status, capturing = self.driver.api.cuStreamIsCapturing(stream)
        # The legacy stream does not answer while another stream of the context is captured.
        return status != self.driver.success or capturing != none

    def wait_for(self, other: int, stream: int) -> None:
        """Let a stream wait for what another has been given so far; the host does not wait.

        Raises:
            DeviceError: the other is no stream of this device.
        """
        if other == stream:
            return
        with self.current():
            flags = self.driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING
            event = self.driver.call("cuEventCreate", int(flags))
            try:
                self.driver.call("cuEventRecord", event, other)
                self.driver.call("cuStreamWaitEvent", stream, event, 0)
            finally:
                self.driver.call("cuEventDestroy", event)

    def new_stream(self) -> int:
        """A stream of its own, not ordered with the default one. It lives as long as the process.

        Raises:
            DeviceError: the driver refused.
        """
        flags = self.driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING
        with self.current():
            return int(self.driver.call("cuStreamCreate", int(flags)))


class _Owned:
    """Keeps an allocation; told apart from a foreign owner by its type."""

    __slots__ = ("held",)

    def __init__(self, held: Allocation) -> None:
        self.held = held


def foreign_owner(buffer: CudaBuffer) -> Any | None:
    """The foreign array that a buffer is a view of; None for memory of ours."""
    return None if isinstance(buffer.owner, _Owned) else buffer.owner


def stream_handle(stream: Any, default: int) -> int:
    """The handle of a stream: an integer, torch's stream, or an object with ``__cuda_stream__``.

    Raises:
        OperandError: none of these.
    """
    if stream is None:
        return default
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    handle = getattr(stream, "cuda_stream", None)  # torch
    protocol = getattr(stream, "__cuda_stream__", None)
    if handle is None and protocol is not None:
        _, handle = protocol()
    if not isinstance(handle, int):
        raise OperandError(f"expected a CUDA stream, found {type(stream).__name__}")
    return handle
