"""Operands: device arrays of ours, numpy arrays, and anything that speaks dlpack on the host."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from dialects.block_formats import block_format
from dialects.errors import OperandError
from dialects.manifest import Argument, KernelEntry
from dialects.member import MAX_SIZE, Problem
from dialects.operands import contiguous_strides, operand_span
from dialects.types import element_type

from .dtypes import dtype_of, type_name
from .executors import Memory

RAW_TYPES = ("u8", "i8")  # what raw bytes of a block format may come as


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape and outer strides of an operand, in elements; what a launch plan depends on.

    ``offset`` is how many bytes past a 16-byte boundary the first element lies.
    """

    type: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


class DeviceArray:
    """An array in device memory. ``numpy()`` copies it out; on the CPU it also speaks dlpack."""

    __slots__ = ("_keep", "buffer", "device", "layout")

    def __init__(self, device: Memory, buffer: Any, layout: Layout, keep: Any = None) -> None:
        self.device, self.buffer, self.layout, self._keep = device, buffer, layout, keep

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, outermost first."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype:
        """The numpy element type."""
        return dtype_of(self.layout.type)

    def numpy(self) -> np.ndarray:
        """A copy on the host."""
        return self.device.download(self.buffer, self.shape, self.dtype)

    def view(self) -> np.ndarray:
        """The memory itself as an array, on a device that shares the host's.

        Raises:
            OperandError: the device has memory of its own.
        """
        if not self.device.on_host:
            raise OperandError(f"device '{self.device.uri}' does not share the host's memory")
        if not self.shape or 0 in self.shape:
            return np.zeros(self.shape, self.dtype)
        nbytes = prod(self.shape) * self.dtype.itemsize
        return host_memory(self.buffer)[:nbytes].view(self.dtype).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a device array cannot become a numpy array without a copy")
        return np.asarray(self.numpy(), dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.view().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.view().__dlpack_device__()

    def __repr__(self) -> str:
        shape = "x".join(str(s) for s in self.shape)
        return f"DeviceArray({shape} {self.layout.type} on {self.device.uri})"


def contiguous(type_: str, shape: Sequence[int]) -> Layout:
    """The layout of a dense row-major array."""
    return Layout(type=type_, shape=tuple(shape), strides=contiguous_strides(shape))


def dense_layouts(kernel: KernelEntry, at: Problem) -> tuple[Layout, ...]:
    """Layouts of contiguous operands at a problem, one an argument."""
    values = at.values()
    return tuple(contiguous(a.type, a.stored_shape(values)) for a in kernel.args)


def checked_shape(sizes: Iterable[Any], *, where: str) -> tuple[int, ...]:
    """Sizes as integers.

    Raises:
        OperandError: one that is no whole number, negative, or more than a kernel could take.
    """
    try:
        shape = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise OperandError(f"expected whole sizes, found {sizes!r:.80}", where=where) from None
    for size in shape:
        if not 0 <= size <= MAX_SIZE:
            raise OperandError(f"size {size} is not within 0 and {MAX_SIZE}", where=where)
    return shape


def host_memory(buffer: Any) -> np.ndarray:
    """The bytes of a buffer on a device that shares the host's memory."""
    return buffer.map().asarray((buffer.byte_length(),), np.dtype(np.uint8))


def check_device(array: DeviceArray, device: Memory, *, where: str) -> None:
    """Refuse arrays of another session: its device is another one, even of the same URI.

    Raises:
        OperandError: naming both devices.
    """
    if array.device is not device:
        raise OperandError(
            f"is on device '{array.device.uri}' of another session, required on "
            f"'{device.uri}' of this one",
            where=where,
        )


def as_numpy(value: object, *, where: str) -> np.ndarray:
    """A numpy array, or a view of what another library exports through dlpack on the host.

    Raises:
        OperandError: neither, a masked array, or memory that the host cannot reach.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise OperandError("expected a plain array, found a masked one", where=where)
    if isinstance(value, np.ndarray):
        return value.view(np.ndarray)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)  # type: ignore[arg-type]
        except Exception as error:  # the exporter is anybody's code
            raise OperandError(f"dlpack import failed: {error}", where=where) from None
    raise OperandError(f"expected an array, found {type(value).__name__}", where=where)


def check_operand(layout: Layout, argument: Argument, *, where: str) -> None:
    """Type and rank of an operand, and whole blocks of one that is raw bytes.

    Raises:
        OperandError: with what was found and what the kernel takes.
    """
    if argument.source is not None:
        _check_raw(layout, argument, argument.source, where=where)
    elif layout.type != argument.type:
        raise OperandError(f"type {layout.type}, the kernel takes {argument.type}", where=where)
    if len(layout.shape) != len(argument.dims):
        wanted = "x".join(argument.dims)
        raise OperandError(
            f"rank {len(layout.shape)}, the kernel takes {len(argument.dims)} ({wanted})",
            where=where,
        )


def _check_raw(layout: Layout, argument: Argument, source: str, *, where: str) -> None:
    """Raw bytes, signed or not, in rows of whole blocks."""
    blocks = block_format(source)
    if layout.type not in RAW_TYPES:
        raise OperandError(
            f"type {layout.type}, the kernel takes raw bytes ({' or '.join(RAW_TYPES)}) of "
            f"{source} blocks",
            where=where,
        )
    if len(layout.shape) == len(argument.dims) and layout.shape[-1] % blocks.bytes:
        raise OperandError(
            f"rows of {layout.shape[-1]} B are no whole {source} blocks of {blocks.bytes} B "
            f"({blocks.elements} elements of {argument.dims[-1]} each)",
            where=where,
        )


def sizes_of(layout: Layout, argument: Argument) -> tuple[int, ...]:
    """The sizes that an operand's shape states, in the order of the argument's dims."""
    if argument.source is None:
        return layout.shape
    blocks = block_format(argument.source)
    return (*layout.shape[:-1], layout.shape[-1] // blocks.bytes * blocks.elements)


def strided_layout(array: np.ndarray, *, where: str) -> Layout | None:
    """The layout of an array that a kernel can read in place, or None when it must be copied.

    In place means: aligned elements, a contiguous innermost axis, and no negative stride.
    """
    item = array.dtype.itemsize
    name = type_name(array.dtype, where=where)
    if array.ndim == 0 or not array.flags.aligned:
        return None
    if array.size == 0 or array.flags.c_contiguous:
        return contiguous(name, array.shape)
    if array.shape[-1] > 1 and array.strides[-1] != item:
        return None
    outer = array.strides[:-1]
    if any(s < 0 or s % item or s // item > MAX_SIZE for s in outer):
        return None
    return Layout(type=name, shape=array.shape, strides=tuple(s // item for s in outer))


def window(array: np.ndarray, layout: Layout) -> np.ndarray:
    """The one-dimensional memory from an array's first element to its last."""
    if array.size == 0:
        return np.zeros(operand_span(layout.shape, layout.strides), array.dtype)
    if array.flags.c_contiguous:
        return array.reshape(-1)
    count = operand_span(layout.shape, layout.strides)
    return np.lib.stride_tricks.as_strided(array, (count,), (array.dtype.itemsize,))


def overlaps_itself(array: np.ndarray) -> bool:
    """Whether two elements share an address, which those of a result must not.

    Axes that interleave without nesting count as an overlap.
    """
    extent = array.itemsize
    axes = zip(array.strides, array.shape, strict=True)
    for stride, size in sorted((abs(stride), size) for stride, size in axes if size > 1):
        if stride < extent:
            return True
        extent += (size - 1) * stride
    return False


def launch_constants(at: Problem, layouts: Iterable[Layout], splits: int = 1) -> tuple[int, ...]:
    """The i32 constants of a launch: sizes, the strides of each operand, the slices of a split."""
    strides = (stride for layout in layouts for stride in layout.strides)
    return (*at.sizes, *strides, *((splits,) if splits > 1 else ()))


def span_bytes(layout: Layout) -> int:
    """Bytes that a buffer of that layout must have."""
    return operand_span(layout.shape, layout.strides) * element_type(layout.type).bytes
