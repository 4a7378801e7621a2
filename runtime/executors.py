"""The seam between a session and what runs its code: IREE, or our own launches through a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np

from dialects.errors import DeviceError, UsageError
from dialects.manifest import Record

from .pack import Pack

ExecutorName = Literal["iree", "direct"]
EXECUTORS: tuple[ExecutorName, ...] = ("iree", "direct")


class Memory(Protocol):
    """An open device: memory on it, and copies to and from the host."""

    uri: str
    backend: str
    on_host: bool

    def allocate(self, nbytes: int) -> Any:
        """An uninitialised buffer."""
        ...

    def adopt(self, array: np.ndarray) -> Any:
        """A buffer over a host array, on a device that shares the host's memory."""
        ...

    def upload(self, array: np.ndarray, nbytes: int | None = None, *, fill: int = 0) -> Any:
        """A new buffer with a copy of an array; ``fill`` is the byte of its padding."""
        ...

    def download(
        self,
        buffer: Any,
        shape: Sequence[int],
        dtype: np.dtype,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """A host copy of a buffer; in ``out``, of that shape and type, where it is given."""
        ...

    def poison(self, buffer: Any) -> None:
        """Fill a buffer with 0xFF bytes."""
        ...


class Launchable(Protocol):
    """A loaded candidate; buffers in argument order with the workspace last, sizes, strides."""

    record: Record

    def run(self, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        """One call, done when it returns."""
        ...

    def repeat(self, buffers: Sequence[Any], constants: Sequence[int], count: int) -> None:
        """So many calls back to back, done when it returns."""
        ...


def open_device(
    uri: str, executor: ExecutorName = "iree", stream: Any = None, *, poison: bool = False
) -> Memory:
    """Open a device for an executor. ``stream`` is for launches of the direct one.

    ``poison`` fills every fresh allocation with 0xFF bytes.

    Raises:
        UsageError: an unknown executor, or a stream where none can be used.
        DeviceError: the device cannot be opened, or has no direct executor.
    """
    if executor not in EXECUTORS:
        raise UsageError(f"executor '{executor}' is not one of {', '.join(EXECUTORS)}")
    if executor == "direct":
        # Here and not above, so that other devices never load it.
        from .cuda.device import CudaDevice

        if uri.partition(":")[0] != CudaDevice.backend:
            raise DeviceError(f"device '{uri}' has no direct executor, cuda has")
        return CudaDevice(uri, stream, poison=poison)
    if stream is not None:
        raise UsageError("a stream is for executor='direct', IREE has its own")
    from .device import Device

    return Device(uri, poison=poison)


def load(
    device: Memory, pack: Pack, kernel: str, record: Record, *, split: bool = False
) -> Launchable:
    """Load one candidate for the executor that a device was opened for.

    ``split`` takes its launches that cut K into slices.

    Raises:
        PackError: a file is missing or damaged.
        DeviceError: the device refuses the code.
    """
    from .device import Device

    if isinstance(device, Device):
        from .execute import Executable

        return Executable(device, pack, kernel, record, split=split)
    from .cuda.code import CudaCode
    from .cuda.device import CudaDevice

    assert isinstance(device, CudaDevice)
    return CudaCode(device, pack, kernel, record, split=split)
