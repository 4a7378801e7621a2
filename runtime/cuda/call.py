"""One kernel of a direct session as a callable: CUDA arrays in, launches on a stream.

A warm call looks its plan up by the operands' types and layouts and launches; it allocates nothing
of ours, copies nothing and never waits, so it can be captured into a CUDA graph.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from dialects.errors import DeviceError, OperandError
from dialects.member import Problem

from ..arrays import DeviceArray, Layout
from ..calls import MAX_PLANS, Bind, KernelCall, Plan, PreparedOperand
from ..family import KernelRef
from ..result import Result
from .code import BoundLaunch, CudaCode
from .device import CudaBuffer, CudaDevice, foreign_owner, stream_handle
from .exchange import ALIGNMENT, TORCH_NAMES, adopt, held_bytes, is_self_overlapping, is_torch


class _Warm(NamedTuple):
    """What a repeated call needs: the launches, each argument's bytes, the workspace's."""

    bound: BoundLaunch
    spans: tuple[int, ...]
    workspace_bytes: int
    result_shape: tuple[int, ...]
    keep: tuple[Any, ...]  # what the key names by identity


class Workspaces:
    """Scratch memory of a session, one piece a stream.

    A captured graph may hold an address, so an outgrown piece stays until the session ends.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._held: dict[int, CudaBuffer] = {}
        self._outgrown: list[CudaBuffer] = []
        # Something to point at where an operand has no elements and no address.
        self.nothing = device.allocate(256)

    def on(self, stream: int, nbytes: int) -> CudaBuffer:
        """The piece of a stream, grown when needed.

        Raises:
            DeviceError: no memory, or the piece must grow while the stream is captured.
        """
        held = self._held.get(stream)
        if held is not None and held.nbytes >= nbytes:
            return held
        _check_not_capturing(self._device, stream, f"a workspace of {nbytes} B")
        if held is not None:
            self._outgrown.append(held)
        held = self._held[stream] = self._device.allocate(nbytes)
        return held


class DirectCall(KernelCall):
    """``session.<kernel>`` of a direct session."""

    def __init__(
        self, ref: KernelRef, device: CudaDevice, bind: Bind, workspaces: Workspaces
    ) -> None:
        super().__init__(ref, device, bind, lambda nbytes: workspaces.on(device.stream, nbytes))
        self._cuda, self._workspaces = device, workspaces
        self._nothing = workspaces.nothing.pointer
        self._warm: dict[Any, _Warm] = {}

    def __call__(
        self, *operands: Any, out: Any = None, workspace: Any = None, stream: Any = None
    ) -> Any:
        """Enqueue the kernel on ``stream``, or on the session's.

        Torch tensors and other CUDA arrays are used in place; a host array is copied, and makes
        the call wait. ``out`` receives the result; without it a torch tensor is made where an
        operand is one, else an array of the session.

        Raises:
            OperandError: an operand of the wrong count, rank, type, layout, shape or device.
            LaunchRefused: no member can run these sizes here.
            DeviceError: the device failed, or a first call came while its stream is captured.
        """
        handle = self._cuda.stream if stream is None else stream_handle(stream, 0)
        given = list(operands) if out is None else [*operands, out]
        key, pointers = _look(given, self._cuda)
        warm = self._warm.get(key) if workspace is None else None
        if warm is None:
            return self._cold(given, out is not None, workspace, handle, key)
        result = given[-1]
        if len(pointers) < len(warm.spans):
            result = self._tensor(warm.result_shape, given)
            pointers.append(result.data_ptr())
        if _overlap(pointers, warm.spans):
            return self._cold(given, out is not None, workspace, handle, key)
        if 0 in pointers:
            pointers = [p or self._nothing for p in pointers]
        if warm.workspace_bytes:
            pointers.append(self._workspaces.on(handle, warm.workspace_bytes).pointer)
        warm.bound.launch(pointers, handle)
        return result

    def forget(self) -> None:
        """Drop the plans, because a choice may have changed."""
        super().forget()
        self._warm = {}

    def _cold(
        self, given: Sequence[Any], has_out: bool, workspace: Any, stream: int, key: Any
    ) -> Any:
        """With every check, and a plan where there is none yet."""
        _check_not_capturing(self._cuda, stream, f"the first call of kernel '{self._name}'")
        given = [o.array if isinstance(o, PreparedOperand) else o for o in given]
        arrays = self._adopted(given, stream)
        inputs, out = (arrays[:-1], arrays[-1]) if has_out else (arrays, None)
        inputs, out = self._counted(inputs, out)
        taken = [self._input(o, a) for o, a in zip(inputs, self.ref.entry.inputs, strict=True)]
        problem_ = self._sizes([layout for layout, _, _ in taken])
        result = self._result(problem_, inputs, out, [buffer for _, buffer, _ in taken])
        plan = self._plan((*(layout for layout, _, _ in taken), result.layout), problem_)
        if not plan.empty:
            buffers = [*(buffer for _, buffer, _ in taken), result.buffer]
            self._enqueue(plan, buffers, workspace, stream)
            here = all(isinstance(a, DeviceArray) for a in arrays)
            lasting = plan.lasting and key is not None
            if here and lasting and (out is not None or _torch_of(inputs)):
                self._keep_warm(key, plan, [a.layout for a in given if isinstance(a, DeviceArray)])
        finished = result.finish()
        if not isinstance(finished, DeviceArray):
            return finished
        if out is not None:
            return given[-1]
        owner = foreign_owner(finished.buffer)
        return finished if owner is None else owner

    def _adopted(self, given: Sequence[Any], stream: int) -> list[Any]:
        """The arrays, those in CUDA memory of another library as ours."""
        names = [*(a.name for a in self.ref.entry.args), "?"]
        result = []
        for place, value in enumerate(given):
            name = names[min(place, len(names) - 1)]
            where = f"kernel '{self._name}' operand '{name}'"
            if not isinstance(value, DeviceArray):
                ours = adopt(value, self._cuda, stream, where=where)
                value = value if ours is None else ours
            result.append(value)
        return result

    def _result(
        self, problem_: Problem, operands: Sequence[Any], out: Any, memory: Sequence[Any]
    ) -> Result:
        argument = self.ref.entry.result
        where = f"kernel '{self._name}' result '{argument.name}'"
        if out is None and (like := _torch_of(operands)):
            values = problem_.values()
            made = self._tensor([values[d] for d in argument.dims], like)
            out = adopt(made, self._cuda, self._cuda.stream, where=where)
        if isinstance(out, DeviceArray):
            if is_self_overlapping(out.layout):
                raise OperandError(f"elements overlap, strides {out.layout.strides}", where=where)
            if any(out.buffer.overlaps(buffer) for buffer in memory):
                raise OperandError("shares its memory with an operand", where=where)
        return super()._result(problem_, operands, out, memory)

    def _tensor(self, shape: Sequence[int], like: Sequence[Any]) -> Any:
        """A new torch tensor for the result, beside the first torch operand."""
        torch = sys.modules["torch"]
        dtype = getattr(torch, TORCH_NAMES[self.ref.entry.result.type])
        beside = next(t for t in like if is_torch(t) and t.is_cuda)
        return torch.empty(tuple(shape), dtype=dtype, device=beside.device)

    def _plan(self, layouts: tuple[Layout, ...], problem_: Problem) -> Plan:
        plan = super()._plan(layouts, problem_)
        if plan.bound is None and isinstance(plan.executable, CudaCode):
            plan = replace(plan, bound=plan.executable.bind(plan.constants))
            if plan.lasting:
                self._by_layout[layouts] = plan
        return plan

    def _enqueue(self, plan: Plan, buffers: list[Any], workspace: Any, stream: int) -> None:
        pointers = [b.pointer or self._nothing for b in buffers]
        if plan.workspace_bytes:
            pointers.append(self._space(plan.workspace_bytes, workspace, buffers, stream).pointer)
        assert plan.bound is not None
        plan.bound.launch(pointers, stream)

    def _space(self, nbytes: int, given: Any, buffers: list[Any], stream: int) -> CudaBuffer:
        if given is None:
            return self._workspaces.on(stream, nbytes)
        where = f"kernel '{self._name}' workspace"
        if not isinstance(given, DeviceArray):
            given = adopt(given, self._cuda, stream, where=where)
        held = self._workspace(nbytes, given, buffers)
        if any(held.overlaps(buffer) for buffer in buffers):
            raise OperandError("is an operand or the result too", where=where)
        return held

    def _keep_warm(self, key: Any, plan: Plan, layouts: Sequence[Layout]) -> None:
        if len(self._warm) >= MAX_PLANS:
            self._warm = {}
        assert plan.bound is not None
        self._warm[key] = _Warm(
            bound=plan.bound,
            spans=tuple(held_bytes(layout) for layout in plan.keep),
            workspace_bytes=plan.workspace_bytes,
            result_shape=plan.keep[-1].shape,
            keep=tuple(layouts),
        )


def _torch_of(arrays: Sequence[Any]) -> list[Any]:
    """The torch tensors among arrays that were adopted."""
    owners = [foreign_owner(a.buffer) for a in arrays if isinstance(a, DeviceArray)]
    return [o for o in owners if is_torch(o)]


def _look(arrays: Sequence[Any], device: CudaDevice) -> tuple[Any, list[int]]:
    """What a plan depends on, and each array's address; no key where that takes longer.

    A layout of ours goes by its identity, which a plan keeps alive.
    """
    key: list[Any] = []
    pointers: list[int] = []
    for array in arrays:
        kind = array.__class__
        if kind is PreparedOperand:
            array = array.array
            kind = array.__class__
        if kind is DeviceArray:
            if array.device is not device:
                return None, []
            pointers.append(array.buffer.pointer)
            key.append(id(array.layout))
        elif hasattr(kind, "data_ptr"):
            if array.requires_grad:
                return None, []
            pointer = array.data_ptr()
            pointers.append(pointer)
            key += (array.dtype, array.shape, array.stride(), array.device, pointer % ALIGNMENT)
        else:
            return None, []
    return tuple(key), pointers


def _overlap(pointers: Sequence[int], spans: Sequence[int]) -> bool:
    """Whether the last array shares memory with another one."""
    start = pointers[-1]
    end = start + spans[-1]
    for place in range(len(pointers) - 1):
        pointer = pointers[place]
        if pointer < end and spans[place] and start < pointer + spans[place]:
            return True
    return False


def _check_not_capturing(device: CudaDevice, stream: int, what: str) -> None:
    if device.is_capturing(stream):
        raise DeviceError(f"{what} cannot be captured: make the same call once before")
