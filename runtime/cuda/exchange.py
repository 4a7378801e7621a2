"""Arrays of other libraries in the memory of a CUDA device, taken without a copy.

Torch tensors are read by their own attributes, others by ``__cuda_array_interface__`` (version 3)
or DLPack; none of these libraries is imported.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dialects.errors import OperandError
from dialects.member import MAX_SIZE
from dialects.operands import contiguous_strides
from dialects.types import element_type

from ..arrays import DeviceArray, Layout, span_bytes
from ..dtypes import type_name
from .device import CudaBuffer, CudaDevice

ALIGNMENT = 16  # bytes of the widest copy instruction; finer differences matter to no body
_TORCH_TYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
    "int32": "i32",
    "uint32": "u32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
}
TORCH_NAMES = {ours: theirs for theirs, ours in _TORCH_TYPES.items()}
# DLDataTypeCode and bits (DLPack 1.1).
_DLPACK_TYPES = {
    (0, 8): "i8",
    (0, 16): "i16",
    (0, 32): "i32",
    (1, 8): "u8",
    (1, 32): "u32",
    (2, 16): "f16",
    (2, 32): "f32",
    (2, 64): "f64",
    (4, 16): "bf16",
    (10, 8): "f8e4m3",
    (12, 8): "f8e5m2",
}
_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def is_torch(value: object) -> bool:
    """Whether a value is a torch tensor, on whatever device."""
    return hasattr(type(value), "data_ptr") and type(value).__module__.partition(".")[0] == "torch"


def adopt(value: Any, device: CudaDevice, stream: int, *, where: str) -> DeviceArray | None:
    """A foreign array of CUDA memory as one of ours; None for what is no CUDA array.

    ``stream`` is made to wait for what the owner still has to do, where the owner says so.

    Raises:
        OperandError: another CUDA device, an unknown type, or a layout no kernel can read in place.
    """
    if is_torch(value):
        return _from_torch(value, device, where) if value.is_cuda else None
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value, device, stream, where)
    if hasattr(value, "__dlpack_device__"):
        kind, place = value.__dlpack_device__()
        if int(kind) in _DLPACK_CUDA:
            _check_place(int(place), device, where)
            return _from_dlpack(value, device, stream, where)
    return None


def _check_place(place: int | None, device: CudaDevice, where: str) -> None:
    if place is not None and place != device.place:
        raise OperandError(
            f"is on CUDA device {place}, the session is on {device.place}", where=where
        )


def _from_torch(value: Any, device: CudaDevice, where: str) -> DeviceArray:
    _check_place(value.device.index, device, where)
    if value.requires_grad:
        raise OperandError("requires a gradient, which no kernel records: detach it", where=where)
    name = str(value.dtype).removeprefix("torch.")
    if name not in _TORCH_TYPES:
        raise OperandError(f"type {name} has no kernel element type", where=where)
    return _array(
        device,
        value.data_ptr(),
        _TORCH_TYPES[name],
        tuple(value.shape),
        tuple(value.stride()),
        value,
        where,
    )


def _from_interface(value: Any, device: CudaDevice, stream: int, where: str) -> DeviceArray:
    said = value.__cuda_array_interface__
    dtype = np.dtype(said["typestr"])
    shape, strides = tuple(said["shape"]), said.get("strides")
    if strides is not None:
        if any(s % dtype.itemsize for s in strides):
            raise OperandError(f"strides {strides} B are no whole elements", where=where)
        strides = tuple(s // dtype.itemsize for s in strides)
    producer = said.get("stream")
    if producer is not None:
        # 1 is the legacy stream there, which the driver calls 0 as well.
        device.wait_for(0 if producer == 1 else producer, stream)
    name = type_name(dtype, where=where)
    return _array(device, said["data"][0], name, shape, strides, value, where)


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _from_dlpack(value: Any, device: CudaDevice, stream: int, where: str) -> DeviceArray:
    """The capsule is only looked into and kept: unconsumed, it releases the array itself."""
    try:
        capsule = value.__dlpack__(stream=stream or 1)  # 1 names the legacy stream
    except Exception as error:  # the exporter is anybody's code
        raise OperandError(f"dlpack import failed: {error}", where=where) from None
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    tensor = _DLTensor.from_address(address_of(capsule, b"dltensor"))
    name = _DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if name is None:
        raise OperandError(
            f"dlpack type {tensor.code} of {tensor.bits} bits has no kernel element type",
            where=where,
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None
    pointer = (tensor.data or 0) + tensor.byte_offset
    return _array(device, pointer, name, shape, strides, (value, capsule), where)


def _array(
    device: CudaDevice,
    pointer: int,
    type_: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    owner: Any,
    where: str,
) -> DeviceArray:
    layout = Layout(
        type=type_,
        shape=shape,
        strides=outer_strides(shape, strides, where=where),
        offset=pointer % ALIGNMENT,
    )
    if pointer % element_type(type_).bytes:
        raise OperandError(f"address {pointer:#x} is not aligned to an element", where=where)
    return DeviceArray(device, CudaBuffer(pointer, held_bytes(layout), owner), layout)


def held_bytes(layout: Layout) -> int:
    """Bytes from the first element to the last; none where there is no element."""
    return 0 if 0 in layout.shape else span_bytes(layout)


def outer_strides(
    shape: Sequence[int], strides: Sequence[int] | None, *, where: str
) -> tuple[int, ...]:
    """The strides of all axes but the last, in elements; those of single-element axes are made up.

    Raises:
        OperandError: the innermost axis is not contiguous, or a stride is negative or too large.
    """
    if strides is None or 0 in shape:
        return contiguous_strides(shape)
    if shape and shape[-1] > 1 and strides[-1] != 1:
        raise OperandError(f"innermost stride {strides[-1]}, required 1: copy it", where=where)
    result: list[int] = []
    extent = shape[-1] if shape else 1
    for size, stride in zip(reversed(shape[:-1]), reversed(strides[:-1]), strict=True):
        kept = stride if size > 1 else extent
        if not 0 <= kept <= MAX_SIZE:
            raise OperandError(f"stride {kept} is not within 0 and {MAX_SIZE}", where=where)
        result.insert(0, kept)
        extent = max(extent, kept * size)
    return tuple(result)


def is_self_overlapping(layout: Layout) -> bool:
    """Whether two elements share an address, which those of a result must not."""
    extent = layout.shape[-1] if layout.shape else 1
    axes = zip(layout.strides, layout.shape, strict=False)
    for stride, size in sorted((stride, size) for stride, size in axes if size > 1):
        if stride < extent:
            return True
        extent += (size - 1) * stride
    return False
