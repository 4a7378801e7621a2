"""Where a call's result goes: the caller's array in place, or by a copy where that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dialects.errors import OperandError
from dialects.manifest import Argument

from .arrays import (
    DeviceArray,
    as_numpy,
    check_device,
    contiguous,
    host_memory,
    overlaps_itself,
    span_bytes,
    strided_layout,
    window,
)
from .dtypes import dtype_of, type_name
from .executors import Memory


class Result:
    """The result of one call; ``layout`` and ``buffer`` are what the kernel writes."""

    def __init__(
        self, device: Memory, kernel: str, argument: Argument, shape: tuple[int, ...]
    ) -> None:
        self._device, self._argument, self._shape = device, argument, shape
        self._where = f"kernel '{kernel}' result '{argument.name}'"
        self._copy_to: np.ndarray | None = None
        self._given: Any = None
        self.layout = contiguous(argument.type, shape)
        self.buffer: Any = None

    def on_device(self, given: DeviceArray | None, inputs: Sequence[Any]) -> Result:
        """Into a device array: the caller's, or a new one. ``inputs`` are the operands' memory.

        Raises:
            OperandError: the wrong type, shape or device, or memory of an operand.
        """
        if given is None:
            buffer = self._device.allocate(span_bytes(self.layout))
            given = DeviceArray(self._device, buffer, self.layout)
        self._check(given.layout.type, given.shape)
        check_device(given, self._device, where=self._where)
        if self._is_among(given.buffer, inputs):
            raise OperandError("shares its memory with an operand", where=self._where)
        self._given, self.layout, self.buffer = given, given.layout, given.buffer
        return self

    def _is_among(self, buffer: Any, inputs: Sequence[Any]) -> bool:
        if not self._device.on_host:
            return buffer in inputs
        return _overlap(host_memory(buffer), inputs)

    def on_host(self, given: Any, inputs: Sequence[Any]) -> Result:
        """Into a host array: the caller's, or a new one. ``inputs`` are the operands' memory.

        Raises:
            OperandError: the wrong type or shape, read-only, or elements that share an address.
        """
        if given is None:
            given, inputs = np.empty(self._shape, dtype_of(self._argument.type)), ()
        array = as_numpy(given, where=self._where)
        self._given = given
        self._check(type_name(array.dtype, where=self._where), array.shape)
        if not array.flags.writeable:
            raise OperandError("is read-only", where=self._where)
        if array.size and overlaps_itself(array):
            raise OperandError(f"elements overlap, strides {array.strides} B", where=self._where)
        layout = strided_layout(array, where=self._where) if self._device.on_host else None
        if layout is None or _overlap(array, inputs):
            self._through_copy(array)
        else:
            self.layout, self.buffer = layout, self._device.adopt(window(array, layout))
        return self

    def _through_copy(self, array: np.ndarray) -> None:
        """A buffer of its own: the device has other memory, or an input overlaps the result."""
        self._copy_to = array
        nbytes = span_bytes(self.layout)
        if self._argument.mode == "readwrite":
            self.buffer = self._device.upload(np.ascontiguousarray(array), nbytes)
        else:
            self.buffer = self._device.allocate(nbytes)

    def _check(self, type_: str, shape: tuple[int, ...]) -> None:
        if type_ != self._argument.type:
            raise OperandError(
                f"type {type_}, the kernel gives {self._argument.type}", where=self._where
            )
        if shape != self._shape:
            found, wanted = ("x".join(str(s) for s in x) or "scalar" for x in (shape, self._shape))
            raise OperandError(f"shape {found}, required {wanted}", where=self._where)

    def finish(self) -> Any:
        """The array to return, filled."""
        if self._copy_to is not None and self._copy_to.size:
            shape = self._copy_to.shape
            self._copy_to[...] = self._device.download(self.buffer, shape, self._copy_to.dtype)
        return self._given


def _overlap(array: np.ndarray, inputs: Sequence[Any]) -> bool:
    """Whether an array may share memory with an operand: a host array, or a buffer it can map."""
    return any(
        np.may_share_memory(i if isinstance(i, np.ndarray) else host_memory(i), array)
        for i in inputs
    )
