"""What the fake CUDA driver needs beside it: kernels in numpy, and arrays of other libraries."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from runtime import Session


def at(pointer: int, type_: Any, shape: tuple[int, ...], stride: int) -> np.ndarray:
    """A row-major matrix at an address, or a vector for one size."""
    dtype = np.dtype(type_)
    count = (shape[0] - 1) * stride + shape[-1] if len(shape) == 2 else shape[0]
    raw = (ctypes.c_uint8 * (max(count, 0) * dtype.itemsize)).from_address(pointer)
    flat = np.ctypeslib.as_array(raw).view(dtype)
    strides = (stride * dtype.itemsize, dtype.itemsize)
    return np.lib.stride_tricks.as_strided(flat, shape, strides[-len(shape) :])


def gemm(a: int, b: int, c: int, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """C = A B of f16 operands in f32, as the kernel of the sample takes its parameters."""
    left = at(a, np.float16, (m, k), lda).astype(np.float32)
    right = at(b, np.float16, (k, n), ldb).astype(np.float32)
    at(c, np.float32, (m, n), ldc)[...] = left @ right


class Interface:
    """An array that speaks ``__cuda_array_interface__``; its memory is numpy's."""

    def __init__(self, array: np.ndarray, stream: int | None = None) -> None:
        self.array = array
        said = array.__array_interface__
        self.__cuda_array_interface__ = {
            "shape": said["shape"],
            "typestr": said["typestr"],
            "data": said["data"],
            "strides": said["strides"],
            "version": 3,
            "stream": stream,
        }


class Exporter:
    """An array that says through DLPack that it is on a CUDA device."""

    def __init__(self, array: np.ndarray, place: int = 0) -> None:
        self.array, self.place = array, place
        self.asked: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.place

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self.asked.append(stream)
        return self.array.__dlpack__()


class Place:
    """A device of torch's."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and other.index == self.index

    def __hash__(self) -> int:
        return hash(self.index)


class Tensor:
    """As much of a torch tensor as a direct call looks at."""

    __module__ = "torch"
    is_cuda = True
    requires_grad = False

    def __init__(self, array: np.ndarray, place: int = 0) -> None:
        self.array, self.device = array, Place(place)
        self.dtype = f"torch.{array.dtype.name}"
        self.shape = array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data if self.array.size else 0

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.array.itemsize for s in self.array.strides)


def fake_torch() -> ModuleType:
    """The module ``torch``, with what makes a result."""
    torch = ModuleType("torch")
    for name in ("float16", "float32"):
        setattr(torch, name, name)

    def empty(shape: tuple[int, ...], dtype: str, device: Place) -> Tensor:
        return Tensor(np.full(shape, np.nan, dtype), device.index)

    torch.empty = empty  # type: ignore[attr-defined]
    return torch


def direct(pack: Path) -> Session:
    """A direct session on the default stream."""
    return Session(pack, device="cuda", executor="direct", tuning="off")


def matrices(m: int = 37, n: int = 130, k: int = 15) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Small integers, and what they must give."""
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    return a, b, a.astype(np.float32) @ b.astype(np.float32)
