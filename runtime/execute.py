"""Loads one record's module on a device and calls its functions with buffers the caller owns."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import iree.runtime as rt

from dialects.errors import DeviceError, PackError
from dialects.manifest import MULTIPROCESSORS, Record

from .device import Device, status_reason
from .pack import Pack

GRACE_NS = 10_000_000_000
SPIN_NS = 50_000  # short calls end within this; longer ones are polled
NAP_S = 5e-5


class Executable:
    """A loaded candidate. Every call returns when its result is there.

    ``parameters`` are what a launch is told of the device, after the constants of the call.
    """

    def __init__(
        self, device: Device, pack: Pack, kernel: str, record: Record, *, split: bool = False
    ) -> None:
        """Load the module; ``split`` calls the function that cuts K into slices.

        Raises:
            PackError: the file is missing or damaged.
            DeviceError: the device refuses the code.
        """
        self.device, self.record, self.kernel = device, record, kernel
        self._module, self._context = _load(device, pack.module(record), f"member {record.name}")
        self.invoke = self._context.invoke
        wanted = record.launch.constants if record.launch else ()
        self.parameters = (device.multiprocessors,) if MULTIPROCESSORS in wanted else ()
        name = f"{kernel}.split" if split else kernel
        self.function = self._lookup(name)
        self._queued = self._lookup(f"{name}.async")
        self._repeat = self._lookup(f"{name}.repeat")

    def run(self, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        """One call: buffers in argument order with the workspace last, then the constants.

        Raises:
            DeviceError: the device failed, or a buffer is too small.
        """
        self._call(self.function, buffers, (*constants, *self.parameters))

    def repeat(self, buffers: Sequence[Any], constants: Sequence[int], count: int) -> None:
        """``count`` calls back to back on the device, for timing.

        Raises:
            DeviceError: the device failed.
        """
        self._queue(self._repeat, buffers, constants, count)

    def run_queued(self, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        """As :meth:`run`, for long calls: this thread sleeps while the device works.

        Raises:
            DeviceError: the device failed, or a buffer is too small.
        """
        self._queue(self._queued, buffers, constants)

    def _queue(
        self, function: Any, buffers: Sequence[Any], constants: Sequence[int], *more: int
    ) -> None:
        semaphore = self.device.hal.create_semaphore(0)
        fences = (rt.HalFence.create_at(semaphore, 0), rt.HalFence.create_at(semaphore, 1))
        self._call(function, buffers, (*constants, *self.parameters, *more), fences)
        self._settle(semaphore, fences[1])

    def _settle(self, semaphore: Any, fence: Any) -> None:
        """Wait without keeping a core busy: IREE's own wait spins beside the workers."""
        try:
            if fence.wait(timeout=SPIN_NS):
                return
            while semaphore.query() < 1:
                time.sleep(NAP_S)
        except (ValueError, RuntimeError) as error:
            raise DeviceError(
                f"member {self.record.name} failed: {status_reason(error)}", where=self.device.uri
            ) from None
        except KeyboardInterrupt:
            # The device still works on memory that the caller is about to have back.
            fence.wait(timeout=GRACE_NS)
            raise

    def prepare(self, operand: str, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        """Pack one operand; the last buffer receives it."""
        self._call(self._lookup(f"{self.kernel}.prepare.{operand}"), buffers, constants)

    def run_prepared(self, operand: str, buffers: Sequence[Any], constants: Sequence[int]) -> None:
        """As :meth:`run`, with that operand's buffer already packed."""
        self._call(self._lookup(f"{self.kernel}.prepared.{operand}"), buffers, constants)

    def _lookup(self, name: str) -> Any:
        return _function(self._module, name, self.record.name)

    def _call(
        self,
        function: Any,
        buffers: Sequence[Any],
        constants: Sequence[int],
        fences: Sequence[Any] = (),
    ) -> None:
        arguments = rt.VmVariantList(len(buffers) + len(constants) + len(fences))
        for buffer in buffers:
            arguments.push_ref(buffer)
        for value in constants:
            arguments.push_int(value)
        for fence in fences:
            arguments.push_ref(fence)
        try:
            self.invoke(function, arguments, rt.VmVariantList(1))
        except (ValueError, RuntimeError) as error:
            raise DeviceError(
                f"member {self.record.name} failed: {status_reason(error)}", where=self.device.uri
            ) from None


class PeerModule:
    """The back end's own compile of a kernel: whole tensors in, a new tensor out."""

    def __init__(self, device: Device, content: bytes, kernel: str) -> None:
        """Load it.

        Raises:
            DeviceError: the device refuses the code.
        """
        self._module, self._context = _load(device, content, "peer")
        self._function = _function(self._module, kernel, "peer")

    def run(self, views: Sequence[Any]) -> Any:
        """Call it with buffer views; the result's view."""
        arguments = rt.VmVariantList(len(views))
        for view in views:
            arguments.push_ref(view)
        results = rt.VmVariantList(1)
        try:
            self._context.invoke(self._function, arguments, results)
        except (ValueError, RuntimeError) as error:
            raise DeviceError(f"peer failed: {status_reason(error)}") from None
        return results.get_as_object(0, rt.HalBufferView)


def _load(device: Device, content: bytes, what: str) -> tuple[Any, Any]:
    """A module and a context to call it in."""
    try:
        module = rt.VmModule.copy_buffer(device.instance, content)
        return module, rt.VmContext(device.instance, [device.hal_module, module])
    except (ValueError, RuntimeError) as error:
        reason = status_reason(error)
        raise DeviceError(f"cannot load {what}: {reason}", where=device.uri) from None


def _function(module: Any, name: str, member: str) -> Any:
    function = module.lookup_function(name)
    if function is None:
        raise PackError(f"the module of {member} exports no '{name}'")
    return function
