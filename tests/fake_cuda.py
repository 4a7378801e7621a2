"""A CUDA driver in Python, for what can be said of our calls to it without a card.

Its memory is the host's, its clock is made up, and it runs a kernel as the Python function that a
test gives for the entry. Parameters are decoded by the types that the PTX declares, so that what we
pass is held against what the code takes.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

UUID = bytes(range(16))
_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)", re.S)
_PARAMETER = re.compile(r"\.param\s+\.(u64|b64|u32|b32)")


class CUresult(IntEnum):
    """Statuses that the driver may answer with."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906


OK = CUresult.CUDA_SUCCESS


class _Names(type):
    """An enumeration whose members are their own names."""

    def __getattr__(cls, name: str) -> str:
        if not name.startswith("CU_"):
            raise AttributeError(name)
        return name


class Enumeration(metaclass=_Names):
    """What stands for any enumeration of the bindings."""


class Flags:
    """Event and stream flags."""

    CU_EVENT_DEFAULT = 0
    CU_EVENT_DISABLE_TIMING = 2
    CU_STREAM_NON_BLOCKING = 1


ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "MULTIPROCESSOR_COUNT": 132,
    "L2_CACHE_SIZE": 1 << 20,
    "WARP_SIZE": 32,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_BLOCK_DIM_X": 1024,
    "MAX_BLOCK_DIM_Y": 1024,
    "MAX_BLOCK_DIM_Z": 64,
    "MAX_GRID_DIM_X": 2147483647,
    "MAX_GRID_DIM_Y": 65535,
    "MAX_GRID_DIM_Z": 65535,
    "CLOCK_RATE": 1980000,
    "MEMORY_CLOCK_RATE": 3201000,
    "GLOBAL_MEMORY_BUS_WIDTH": 6144,
}
FUNCTION = {
    "NUM_REGS": 40,
    "LOCAL_SIZE_BYTES": 0,
    "SHARED_SIZE_BYTES": 16,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_DYNAMIC_SHARED_SIZE_BYTES": 49152 - 16,
}


class FakeCuda:
    """The module ``cuda.bindings.driver``. ``kernels`` are functions by entry.

    ``launches`` records each launch as (entry, grid, block, shared bytes, stream, parameters).
    """

    CUresult = CUresult
    CUdevice_attribute = CUfunction_attribute = CUjit_option = CUstreamCaptureStatus = Enumeration
    CUevent_flags = CUstream_flags = Flags
    CUlaunchAttributeID = Enumeration

    class CUlaunchAttribute:
        """One attribute of a launch."""

        def __init__(self) -> None:
            self.id, self.value = "", SimpleNamespace()

    CUlaunchConfig = SimpleNamespace

    def __init__(self) -> None:
        self.attributes = dict(ATTRIBUTES)
        self.function = dict(FUNCTION)
        self.kernels: dict[str, Callable[..., None]] = {}
        self.launches: list[tuple[Any, ...]] = []
        self.early: list[
            bool
        ] = []  # of each launch: whether it may start before the last has ended
        self.calls: list[str] = []
        self.memory: dict[int, Any] = {}
        self.context = [0]
        self.capturing: set[int] = set()
        self.dynamic: dict[str, int] = {}
        self.memory_left = 1 << 30
        # A made-up machine: what a call costs the host, what work costs the device.
        self.host_s, self.busy_until_s, self.clock_rate = 0.0, 0.0, 1.0
        self.call_s, self.kernel_s, self.bytes_per_s = 2e-6, 10e-6, 3e12
        self._handles = 100

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if not name.startswith("cu") or not callable(value):
            return value

        def called(*arguments: Any) -> Any:
            self.calls.append(name)
            self.host_s += self.call_s
            return value(*arguments)

        return called

    def clock(self) -> float:
        """The host's clock."""
        return self.host_s

    def _work(self, seconds: float) -> None:
        self.busy_until_s = max(self.busy_until_s, self.host_s) + seconds

    def _handle(self) -> int:
        self._handles += 1
        return self._handles

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuGetErrorString(self, status: Any) -> Any:
        return OK, b"as the driver words it"

    def cuDriverGetVersion(self) -> Any:
        return OK, 13000

    def cuDeviceGetCount(self) -> Any:
        return OK, 2

    def cuDeviceGet(self, place: int) -> Any:
        return OK, place

    def cuDeviceGetUuid(self, device: int) -> Any:
        return OK, SimpleNamespace(bytes=UUID[:-1] + bytes([UUID[-1] + device]))

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return OK, b"Some Device\0".ljust(length)

    def cuDeviceTotalMem(self, device: int) -> Any:
        return OK, 8 << 30

    def cuDeviceGetAttribute(self, name: str, device: int) -> Any:
        key = name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        if key not in self.attributes:
            return CUresult.CUDA_ERROR_INVALID_VALUE, None
        return OK, self.attributes[key]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return OK, 7000 + device

    def cuCtxGetCurrent(self) -> Any:
        return OK, self.context[-1]

    def cuCtxPushCurrent(self, context: int) -> Any:
        self.context.append(context)
        return (OK,)

    def cuCtxPopCurrent(self) -> Any:
        return OK, self.context.pop()

    def cuCtxSynchronize(self) -> Any:
        return self.cuStreamSynchronize(0)

    def cuMemAlloc(self, nbytes: int) -> Any:
        if nbytes > self.memory_left:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY, None
        held = ctypes.create_string_buffer(nbytes + 256)
        pointer = -(-ctypes.addressof(held) // 256) * 256
        self.memory[pointer] = held
        return OK, pointer

    def cuMemFree(self, pointer: int) -> Any:
        del self.memory[pointer]
        return (OK,)

    def cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: int) -> Any:
        ctypes.memmove(to, source, nbytes)
        return (OK,)

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = cuMemcpyHtoDAsync

    def cuMemsetD8Async(self, to: int, value: int, nbytes: int, stream: int) -> Any:
        ctypes.memset(to, value, nbytes)
        return (OK,)

    def cuMemsetD32Async(self, to: int, value: int, words: int, stream: int) -> Any:
        self._work(4 * words / self.bytes_per_s)
        return (OK,)

    def cuStreamCreate(self, flags: int) -> Any:
        return OK, self._handle()

    def cuStreamSynchronize(self, stream: int) -> Any:
        self.host_s = max(self.host_s, self.busy_until_s)
        return (OK,)

    def cuStreamIsCapturing(self, stream: int) -> Any:
        if stream == 0 and self.capturing:
            return CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, None
        status = "ACTIVE" if stream in self.capturing else "NONE"
        return OK, f"CU_STREAM_CAPTURE_STATUS_{status}"

    def cuStreamWaitEvent(self, stream: int, event: Any, flags: int) -> Any:
        return (OK,)

    def cuEventCreate(self, flags: int) -> Any:
        return OK, SimpleNamespace(at=None)

    def cuEventDestroy(self, event: Any) -> Any:
        return (OK,)

    def cuEventRecord(self, event: Any, stream: int) -> Any:
        event.at = max(self.busy_until_s, self.host_s)
        return (OK,)

    def cuEventQuery(self, event: Any) -> Any:
        return (OK if self.host_s >= event.at else CUresult.CUDA_ERROR_NOT_READY,)

    def cuEventSynchronize(self, event: Any) -> Any:
        self.host_s = max(self.host_s, event.at)
        return (OK,)

    def cuEventElapsedTime(self, start: Any, end: Any) -> Any:
        return OK, (end.at - start.at) * 1e3 * self.clock_rate

    def cuModuleLoadDataEx(self, image: bytes, count: int, options: Any, values: Any) -> Any:
        text = image.partition(b"\0")[0].decode(errors="replace")
        log, size = values
        assert len(options) == len(values) == count
        assert size == len(log)
        if ".entry" not in text:
            said = b"ptxas application ptx input, line 1; fatal : no entry\n"
            log[: len(said)] = said
            return CUresult.CUDA_ERROR_INVALID_PTX, None
        return OK, {m[1]: _PARAMETER.findall(m[2]) for m in _ENTRY.finditer(text)}

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        if name.decode() not in module:
            return CUresult.CUDA_ERROR_NOT_FOUND, None
        return OK, (name.decode(), tuple(module[name.decode()]))

    def cuFuncGetAttribute(self, name: str, function: Any) -> Any:
        key = name.removeprefix("CU_FUNC_ATTRIBUTE_")
        if key == "MAX_DYNAMIC_SHARED_SIZE_BYTES":
            return OK, self.dynamic.get(function[0], self.function[key])
        return OK, self.function[key]

    def cuFuncSetAttribute(self, function: Any, name: str, value: int) -> Any:
        if value > self.attributes["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        self.dynamic[function[0]] = value
        return (OK,)

    def cuLaunchKernelEx(self, config: Any, function: Any, table: int, extra: int) -> Any:
        sizes = [
            getattr(config, f"{kind}Dim{axis}") for kind in ("grid", "block") for axis in "XYZ"
        ]
        assert config.numAttrs == len(config.attrs) == 1
        assert config.attrs[0].id == "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        early = config.attrs[0].value.programmaticStreamSerializationAllowed == 1
        return self._launch(
            function, *sizes, config.sharedMemBytes, config.hStream, table, extra, early=early
        )

    def cuLaunchKernel(self, function: Any, *arguments: Any) -> Any:
        return self._launch(function, *arguments)

    def _launch(self, function: Any, *arguments: Any, early: bool = False) -> Any:
        gx, gy, gz, bx, by, bz, shared, stream, table, extra = arguments
        name, types = function
        limit = self.dynamic.get(name, self.function["MAX_DYNAMIC_SHARED_SIZE_BYTES"])
        if 0 in (gx, gy, gz) or shared > limit or extra != 0:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        addresses = (ctypes.c_void_p * len(types)).from_address(table)
        values = [
            (ctypes.c_uint64 if t.endswith("64") else ctypes.c_int32).from_address(a or 0).value
            for t, a in zip(types, addresses, strict=True)
        ]
        self.early.append(early)
        self.launches.append((name, (gx, gy, gz), (bx, by, bz), shared, stream, values))
        self._work(self.kernel_s)
        if name in self.kernels:
            self.kernels[name](*values)
        return (OK,)
