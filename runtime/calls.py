"""One kernel of a session as a callable: operands in, a planned launch, the result out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import iree.runtime as rt
import numpy as np

from dialects.errors import DeviceError, OperandError
from dialects.expressions import Expression
from dialects.manifest import Argument
from dialects.member import Problem, problem
from dialects.rules import float_operations

from .arrays import (
    DeviceArray,
    Layout,
    as_numpy,
    check_device,
    check_operand,
    contiguous,
    launch_constants,
    sizes_of,
    span_bytes,
    strided_layout,
    window,
)
from .device import status_reason
from .dtypes import type_name
from .execute import Executable
from .executors import Launchable, Memory
from .family import Choice, KernelRef
from .result import Result

Bind = Callable[[KernelRef, Problem, tuple[Layout, ...]], tuple[Choice, Launchable]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything about a launch but its buffers. ``empty`` when there is nothing to compute.

    One that is not ``lasting`` serves a single call.
    """

    empty: bool
    executable: Launchable | None
    constants: tuple[int, ...]
    workspace_bytes: int
    long: bool
    keep: tuple[Layout, ...]
    bound: Any = None  # a direct executor's launches with everything but the addresses
    lasting: bool = True


LONG_CALL = 1e8  # float operations from which on this thread sleeps while it waits
MAX_PLANS = 4096  # a program that meets more shapes than this plans anew, which costs 0.1 ms


class PreparedOperand:
    """An operand that stays: uploaded once, and packed once for each layout a member wants."""

    def __init__(self, kernel: str, argument: Argument, array: DeviceArray) -> None:
        self.kernel, self.argument, self.array = kernel, argument, array
        self.packed: dict[str, Any] = {}

    @property
    def layout(self) -> Layout:
        """The layout of the operand as it was given."""
        return self.array.layout

    def __repr__(self) -> str:
        return f"PreparedOperand({self.argument.name} of {self.kernel}, {self.array!r})"


class KernelCall:
    """``session.<kernel>``: call it with the kernel's arguments in order, ``out`` by name."""

    def __init__(
        self,
        ref: KernelRef,
        device: Memory,
        bind: Bind,
        scratch: Callable[[int], Any],
    ) -> None:
        self.ref, self._device, self._bind, self._scratch = ref, device, bind, scratch
        self._name = ref.entry.kernel
        # By identity for the warm call (a plan keeps its layouts alive), by value for the others.
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._by_layout: dict[tuple[Layout, ...], Plan] = {}
        self._positional = ref.entry.read_arguments

    def __call__(
        self,
        *operands: Any,
        out: Any = None,
        workspace: DeviceArray | None = None,
        stream: Any = None,
    ) -> Any:
        """Run the kernel.

        Device arrays give a device array and cost no copy; anything else is taken as a host array
        and gives a numpy array. ``out`` receives the result; ``workspace`` is used instead of the
        session's own. Only a session with the direct executor takes a ``stream``.

        Raises:
            OperandError: an operand of the wrong count, rank, type, byte order or shape.
            LaunchRefused: no member can run these sizes here.
            DeviceError: the device failed.
        """
        arrays = operands if out is None else (*operands, out)
        if out is not None and stream is None and len(operands) == len(self._positional):
            device = self._device
            for array in arrays:
                if not isinstance(array, DeviceArray) or array.device is not device:
                    break
            else:
                plan = self._plans.get(tuple(id(a.layout) for a in arrays))
                buffers = [a.buffer for a in arrays]
                alone = buffers.index(buffers[-1]) == len(operands)
                if plan is not None and plan.executable is not None and alone:
                    self._launch(plan, buffers, workspace)
                    return out
        if stream is not None:
            raise OperandError("a stream is for executor='direct', IREE has its own")
        try:
            return self._general(operands, out, workspace)
        except MemoryError as error:
            raise DeviceError(f"kernel '{self._name}': not enough memory: {error}") from None

    def _general(self, operands: Sequence[Any], out: Any, workspace: DeviceArray | None) -> Any:
        entry = self.ref.entry
        operands, out = self._counted(operands, out)
        inputs = [self._input(o, a) for o, a in zip(operands, entry.args[:-1], strict=True)]
        problem_ = self._sizes([i[0] for i in inputs])
        memory = [buffer if host is None else host for _, buffer, host in inputs]
        result = self._result(problem_, operands, out, memory)
        layouts = (*(i[0] for i in inputs), result.layout)
        plan = self._plan(layouts, problem_)
        if plan.empty:
            return result.finish()
        self._remember((*operands, out), plan)
        buffers = [i[1] for i in inputs]
        prepared = [o for o in operands if isinstance(o, PreparedOperand)]
        if prepared and plan.executable is not None:
            self._launch_prepared(plan, operands, buffers, result.buffer, workspace)
        else:
            self._launch(plan, [*buffers, result.buffer], workspace)
        return result.finish()

    def _counted(self, operands: Sequence[Any], out: Any) -> tuple[Sequence[Any], Any]:
        """The inputs and the result, which may stand last among the operands.

        Raises:
            OperandError: too few, too many, or a result that is added to and was not given.
        """
        entry = self.ref.entry
        if len(operands) == len(entry.args) and out is None:
            *operands, out = operands
        if len(operands) != len(entry.args) - 1:
            names = ", ".join(a.name for a in self._positional)
            raise OperandError(
                f"kernel '{self._name}' takes {len(self._positional)} operands ({names}), "
                f"found {len(operands)}"
            )
        if entry.result.mode == "readwrite" and out is None:
            raise OperandError(
                f"kernel '{self._name}' adds to '{entry.result.name}': pass it", where=self._name
            )
        return operands, out

    def _result(
        self,
        problem_: Problem,
        operands: Sequence[Any],
        out: Any,
        memory: Sequence[Any],
    ) -> Result:
        argument = self.ref.entry.result
        values = problem_.values()
        shape = tuple(values[d] for d in argument.dims)
        result = Result(self._device, self._name, argument, shape)
        if isinstance(out, DeviceArray):
            return result.on_device(out, memory)
        if out is None and any(isinstance(o, DeviceArray) for o in operands):
            return result.on_device(None, ())
        return result.on_host(out, memory)

    def _input(self, value: Any, argument: Argument) -> tuple[Layout, Any, np.ndarray | None]:
        """Layout, buffer and host memory of one operand."""
        where = f"kernel '{self._name}' operand '{argument.name}'"
        if isinstance(value, PreparedOperand):
            if value.argument != argument or value.kernel != self._name:
                raise OperandError(f"was prepared as {value!r}", where=where)
            value = value.array
        if isinstance(value, DeviceArray):
            check_device(value, self._device, where=where)
            check_operand(value.layout, argument, where=where)
            return value.layout, value.buffer, None
        array = as_numpy(value, where=where)
        dense = Layout(type=type_name(array.dtype, where=where), shape=array.shape, strides=())
        check_operand(dense, argument, where=where)
        layout = strided_layout(array, where=where) if self._device.on_host else None
        if layout is None:
            array = np.ascontiguousarray(array)
            layout = contiguous(dense.type, array.shape)
        flat = window(array, layout)
        if self._device.on_host:
            return layout, self._device.adopt(flat), flat
        return layout, self._device.upload(flat, span_bytes(layout)), None

    def _sizes(self, layouts: Sequence[Layout]) -> Problem:
        """The problem that the operands' shapes state.

        Raises:
            OperandError: two operands disagree about a size.
        """
        entry = self.ref.entry
        found: dict[str, tuple[int, str]] = {}
        for argument, layout in zip(entry.args, layouts, strict=False):
            for dim, size in zip(argument.dims, sizes_of(layout, argument), strict=True):
                known, who = found.setdefault(dim, (size, argument.name))
                if known != size:
                    whole = f" in whole {argument.source} blocks" if argument.source else ""
                    raise OperandError(
                        f"size {dim} is {size}{whole}, operand '{who}' has {known}",
                        where=f"kernel '{self._name}' operand '{argument.name}'",
                    )
        return problem(self._name, entry.dims, tuple(found[d][0] for d in entry.dims))

    def _plan(self, layouts: tuple[Layout, ...], problem_: Problem) -> Plan:
        plan = self._by_layout.get(layouts)
        if plan is not None:
            return plan
        if 0 in (problem_.values()[d] for d in self.ref.entry.result.dims):
            return Plan(
                empty=True,
                executable=None,
                constants=(),
                workspace_bytes=0,
                long=False,
                keep=layouts,
            )
        choice, executable = self._bind(self.ref, problem_, layouts)
        splits = choice.splits
        plan = Plan(
            empty=False,
            executable=executable,
            constants=launch_constants(problem_, layouts, splits),
            workspace_bytes=choice.record.workspace_bytes(problem_.values(), splits),
            long=float_operations(problem_) > LONG_CALL,
            keep=layouts,
            lasting=choice.lasting,
        )
        if not plan.lasting:
            return plan
        if len(self._by_layout) >= MAX_PLANS:
            self.forget()
        self._by_layout[layouts] = plan
        return plan

    def _remember(self, arrays: Sequence[Any], plan: Plan) -> None:
        """For later calls with device arrays of the very same layouts."""
        if not plan.lasting or any(a.__class__ is not DeviceArray for a in arrays):
            return
        if len(self._plans) >= MAX_PLANS:
            self._plans = {}
        layouts = tuple(a.layout for a in arrays)
        # kept, so that no other layout can get one of these identities
        self._plans[tuple(id(layout) for layout in layouts)] = replace(plan, keep=layouts)

    def forget(self) -> None:
        """Drop the plans, because a choice may have changed."""
        self._plans = {}
        self._by_layout = {}

    def _launch(self, plan: Plan, buffers: list[Any], workspace: DeviceArray | None) -> None:
        executable = plan.executable
        assert isinstance(executable, Executable)
        if plan.workspace_bytes:
            buffers.append(self._workspace(plan.workspace_bytes, workspace, buffers))
        if plan.long:
            executable.run_queued(buffers, plan.constants)
            return
        arguments = rt.VmVariantList(len(buffers) + len(plan.constants))
        for buffer in buffers:
            arguments.push_ref(buffer)
        for value in plan.constants:
            arguments.push_int(value)
        for value in executable.parameters:
            arguments.push_int(value)
        try:
            executable.invoke(executable.function, arguments, rt.VmVariantList(1))
        except (ValueError, RuntimeError) as error:
            raise DeviceError(
                f"member {executable.record.name} failed: {status_reason(error)}",
                where=self._device.uri,
            ) from None

    def _workspace(self, nbytes: int, given: DeviceArray | None, operands: Sequence[Any]) -> Any:
        if given is None:
            return self._scratch(nbytes)
        where = f"kernel '{self._name}' workspace"
        if not isinstance(given, DeviceArray):
            raise OperandError(
                f"expected a device array, found {type(given).__name__}", where=where
            )
        check_device(given, self._device, where=where)
        if given.buffer.byte_length() < nbytes:
            raise OperandError(
                f"has {given.buffer.byte_length()} B, required {nbytes} B", where=where
            )
        if given.buffer in operands:
            raise OperandError("is an operand or the result too", where=where)
        return given.buffer

    def _launch_prepared(
        self,
        plan: Plan,
        operands: Sequence[Any],
        buffers: list[Any],
        result: Any,
        workspace: DeviceArray | None,
    ) -> None:
        executable = plan.executable
        assert isinstance(executable, Executable)
        wanted = executable.record.prepared
        names = [a.name for a in self.ref.entry.args]
        place = names.index(wanted.operand) if wanted else -1
        if wanted is None or not isinstance(operands[place], PreparedOperand):
            self._launch(plan, [*buffers, result], workspace)
            return
        operand: PreparedOperand = operands[place]
        if executable.record.full_name not in operand.packed:
            values = dict(zip(self.ref.entry.dims, plan.constants, strict=False))
            packed = self._device.allocate(Expression(wanted.bytes).evaluate(values))
            executable.prepare(wanted.operand, [operand.array.buffer, packed], plan.constants)
            operand.packed[executable.record.full_name] = packed
        buffers[place] = operand.packed[executable.record.full_name]
        buffers.append(result)
        if plan.workspace_bytes:
            buffers.append(self._workspace(plan.workspace_bytes, workspace, buffers))
        executable.run_prepared(wanted.operand, buffers, plan.constants)
