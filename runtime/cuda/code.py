"""One record's own code objects on a device: loaded once, launched by the manifest's contract.

A kernel takes one 64-bit address a binding, in order, then each i32 constant as a parameter of its
own; that is what IREE passes too.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

from dialects.errors import DeviceError, ExpressionError, PackError
from dialects.expressions import evaluate
from dialects.manifest import (
    MULTIPROCESSORS,
    SPLITS,
    Footprint,
    KernelEntry,
    Record,
    Refusal,
    Step,
)

from ..pack import Pack
from .device import CudaBuffer, CudaDevice

WORKSPACE = "workspace"
_SOURCE = "cuFuncGetAttribute"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One launch of a call: the loaded function and how the manifest says to launch it."""

    launch: Step
    function: Any


class BoundLaunch:
    """Every launch of one call, with all but the addresses filled in.

    Any number of threads may launch; the parameters are copied by the driver during the call.
    """

    def __init__(
        self, device: CudaDevice, stages: Sequence[Stage], order: Sequence[str], values: _Values
    ) -> None:
        self._device, self._lock = device, threading.Lock()
        self._success = device.driver.success
        self._stages = [
            bound for stage in stages if (bound := _bind(device, stage, order, values)) is not None
        ]

    def launch(self, pointers: Sequence[int], stream: int) -> None:
        """Enqueue on a stream: addresses of the arguments in order, the workspace last.

        Raises:
            DeviceError: the driver refused a launch.
        """
        if self._device.is_current():
            self._submit(pointers, stream)
        else:
            with self._device.current():
                self._submit(pointers, stream)

    def _submit(self, pointers: Sequence[int], stream: int) -> None:
        with self._lock:
            for write, places, start, parameters, _ in self._stages:
                write(*[pointers[p] for p in places])
                (status,) = start(stream, parameters, 0)
                if status is not self._success and status != self._success:
                    reason = self._device.driver.reason(status)
                    raise DeviceError(f"cuLaunchKernel: {reason}", where=self._device.uri)


_Values = Mapping[str, int]


class _Bound(NamedTuple):
    """A stage ready to go: ``write`` takes the addresses, ``places`` says which of the call's."""

    write: Callable[..., None]
    places: tuple[int, ...]
    start: Callable[..., Any]
    parameters: int
    keep: Any  # the memory that ``parameters`` points to


def _bind(device: CudaDevice, stage: Stage, order: Sequence[str], values: _Values) -> _Bound | None:
    """None when the grid is empty: the driver refuses a launch without workgroups."""
    launch = stage.launch
    if launch.grid is None or launch.block is None:
        raise PackError(f"entry '{launch.entry}' has no grid or no block to launch it by")
    grid = [value_of(text, values) for text in launch.grid]
    if 0 in grid:
        return None
    constants = [value_of(text, values) for text in launch.constants]
    addresses = struct.Struct(f"={len(launch.bindings)}Q")
    content = ctypes.create_string_buffer(addresses.size + 4 * len(constants) + 8)
    struct.pack_into(f"={len(constants)}i", content, addresses.size, *constants)
    base = ctypes.addressof(content)
    offsets = [8 * i for i in range(len(launch.bindings))]
    offsets += [addresses.size + 4 * i for i in range(len(constants))]
    table = (ctypes.c_void_p * max(1, len(offsets)))(*(base + o for o in offsets))
    return _Bound(
        write=partial(addresses.pack_into, content, 0),
        places=tuple(order.index(name) for name in launch.bindings),
        start=_starter(device, stage, grid, launch.block),
        parameters=ctypes.addressof(table),
        keep=table,
    )


def _starter(
    device: CudaDevice, stage: Stage, grid: Sequence[int], block: Sequence[int]
) -> Callable[..., Any]:
    """What launches on (stream, parameters, 0); kernels that overlap may start early."""
    api, nbytes = device.driver.api, stage.launch.dynamic_shared_bytes
    sizes = (*_three(grid), *_three(block))
    if not stage.launch.overlaps:
        return partial(api.cuLaunchKernel, stage.function, *sizes, nbytes)
    early = api.CUlaunchAttribute()
    early.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    config = api.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = sizes[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = sizes[3:]
    config.sharedMemBytes, config.attrs, config.numAttrs = nbytes, [early], 1

    def start(stream: int, parameters: int, extra: int) -> Any:
        config.hStream = stream
        return api.cuLaunchKernelEx(config, stage.function, parameters, extra)

    return start


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def value_of(text: str, values: Mapping[str, int]) -> int:
    """A size or stride by name, or an expression over the sizes."""
    value = values.get(text)
    return evaluate(text, values) if value is None else value


def launch_names(kernel: KernelEntry) -> tuple[str, ...]:
    """Names of what a call passes besides buffers: sizes, then the strides of each argument."""
    strides = (f"{a.name}.{axis}" for a in kernel.args for axis in range(len(a.dims) - 1))
    return (*kernel.dims, *strides)


class CudaCode:
    """A loaded candidate. It is used as :class:`~runtime.execute.Executable` is."""

    def __init__(
        self,
        device: CudaDevice,
        pack: Pack,
        kernel: str,
        record: Record,
        *,
        split: bool = False,
    ) -> None:
        """Load the code object and the functions that the launches name.

        ``split`` takes those that cut K into slices.

        Raises:
            PackError: a file is missing or damaged, or the record has no code object.
            DeviceError: the driver refuses the code, with its compiler's log.
        """
        self.device, self.record, self.kernel = device, record, kernel
        entry = pack.kernel(kernel)
        self._names = (*launch_names(entry), *((SPLITS,) if split else ()))
        launch = record.split.launch if split and record.split else record.launch
        self._order = (*(a.name for a in entry.args), WORKSPACE)
        self._modules: dict[str, Any] = {}
        with device.current():
            self.stages = tuple(
                self._stage(pack, step) for step in (launch.steps if launch else ())
            )

    def _stage(self, pack: Pack, launch: Step) -> Stage:
        driver, record = self.device.driver, self.record
        where = f"member {record.name}"
        path = launch.code_object or (record.files.code_object if record.files else None)
        if record.files is None or path is None:
            raise PackError(f"{where} has no code object to launch", where=str(pack.path))
        try:
            if path not in self._modules:
                image = pack.read(path, record.files.sha256.get(path, ""))
                self._modules[path] = driver.load_module(image)
            function = driver.call(
                "cuModuleGetFunction", self._modules[path], launch.entry.encode()
            )
            self._allow_shared(function, launch.dynamic_shared_bytes)
        except DeviceError as error:
            raise DeviceError(f"{where}: {error.message}", where=self.device.uri) from None
        return Stage(launch=launch, function=function)

    def _allow_shared(self, function: Any, nbytes: int) -> None:
        """Ask for more dynamic shared memory than a block has without asking (48 KiB)."""
        driver = self.device.driver
        if nbytes > driver.function_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", function):
            kind = driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuFuncSetAttribute", function, kind, nbytes)

    def bind(self, constants: Sequence[int]) -> BoundLaunch:
        """The launches for sizes and strides in the order of a call.

        Raises:
            PackError: a launch names what the kernel does not have.
        """
        values = dict(zip(self._names, constants, strict=True))
        values[MULTIPROCESSORS] = self.device.multiprocessors
        try:
            return BoundLaunch(self.device, self.stages, self._order, values)
        except (ValueError, ExpressionError, struct.error) as error:
            raise PackError(f"member {self.record.name}: {error}") from None

    def run(self, buffers: Sequence[CudaBuffer], constants: Sequence[int]) -> None:
        """One call: buffers in argument order with the workspace last; returns when it is done.

        Raises:
            DeviceError: the device failed.
        """
        self.repeat(buffers, constants, 1)

    def repeat(self, buffers: Sequence[CudaBuffer], constants: Sequence[int], count: int) -> None:
        """``count`` calls back to back.

        Raises:
            DeviceError: the device failed.
        """
        bound, pointers = self.bind(constants), [b.pointer for b in buffers]
        stream = self.device.stream
        try:
            for _ in range(count):
                bound.launch(pointers, stream)
            self.device.synchronize(stream)
        except DeviceError as error:
            text = f"member {self.record.name} failed: {error.message}"
            raise DeviceError(text, where=self.device.uri) from None

    def measured(self) -> Footprint:
        """The record's footprint with what the loaded functions take, the most of any."""

        def most(name: str) -> int:
            with self.device.current():
                read = self.device.driver.function_attribute
                return max(read(name, stage.function) for stage in self.stages)

        found = {
            "registers": most("NUM_REGS"),
            "spill_bytes": most("LOCAL_SIZE_BYTES"),
            "static_shared_bytes": most("SHARED_SIZE_BYTES"),
        }
        return replace(self.record.footprint, **found, sources=dict.fromkeys(found, _SOURCE))

    def measured_record(self) -> Record:
        """The record with its measured footprint; refused when its block is too large for it."""
        record = replace(self.record, footprint=self.measured())
        for stage in self.stages:
            threads = prod(stage.launch.block or (1,))
            with self.device.current():
                read = self.device.driver.function_attribute
                limit = read("MAX_THREADS_PER_BLOCK", stage.function)
            if threads > limit:
                text = f"{threads} threads > {limit} that '{stage.launch.entry}' can have (R2)"
                refusal = Refusal(rule="R2", need=threads, limit=limit, message=text)
                return replace(record, refused=record.refused or refusal)
        return record
