"""What an application holds: packs on a device, kernels to call, choices that stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dialects.errors import OperandError, PackError, UsageError
from dialects.facts import DeviceFacts
from dialects.manifest import Argument, Record
from dialects.member import Problem, problem

from .arrays import (
    DeviceArray,
    Layout,
    as_numpy,
    check_device,
    check_operand,
    checked_shape,
    contiguous,
    dense_layouts,
    span_bytes,
)
from .calls import KernelCall, PreparedOperand
from .dtypes import dtype_of, type_name
from .executors import ExecutorName, Launchable, load, open_device
from .facts import read_facts
from .filter import candidates
from .load import cpu_foreign_percent, foreign_load
from .measure import Measurer
from .pack import open_pack
from .planner import TUNINGS, Choice, KernelRef, Planner, PlannerOptions, Tuning
from .report import Explanation
from .store import Store


class UnknownKernel(PackError, AttributeError):
    """No pack of the session has a kernel of that name."""


class Session:
    """Kernels of one or more packs on one device. Any number of threads may call them.

    ``store`` is a directory, or None to remember in memory only. ``tuning``: ``off`` takes the
    untimed default, ``store`` reads the store and never times, ``first_use`` times the survivors
    in a process of its own when the store knows nothing.

    ``executor`` is ``iree``, or ``direct`` on CUDA: the packs' own kernels are launched on
    ``stream`` (a handle, torch's stream, or the default stream), take torch tensors in place, and
    a call returns before its result is there.
    """

    def __init__(
        self,
        packs: str | Path | Iterable[str | Path],
        device: str = "local-task",
        *,
        executor: ExecutorName = "iree",
        stream: Any = None,
        store: str | Path | None = None,
        tuning: Tuning = "store",
        budget_ms: float = 1000.0,
        on_choice: Callable[[Choice], None] = lambda choice: None,
        observe: Callable[[str, str], None] = lambda step, name: None,
        facts: DeviceFacts | None = None,
    ) -> None:
        """Open packs and device.

        The driver is asked once, here; sessions of one process share its answer when the second is
        given the ``facts`` of the first.

        Raises:
            PackError: a pack that is damaged, or has no code for the device.
            DeviceError: the device cannot be opened.
        """
        if tuning not in TUNINGS:
            raise UsageError(f"tuning '{tuning}' is not one of {', '.join(TUNINGS)}")
        self._kernels = self._open(packs)
        self.device = open_device(device, executor, stream)
        self.facts = facts or read_facts(device)
        self._check_code()
        self._measurer = Measurer(device, executor=executor)
        self._planner = Planner(
            self.facts,
            Store(Path(store) if store is not None else None),
            self._measurer,
            self._foreign_percent,
            PlannerOptions(
                tuning=tuning, budget_ms=budget_ms, observe=observe, on_choice=on_choice
            ),
        )
        self._calls: dict[str, KernelCall] = {}
        self._executables: dict[tuple[str, str, bool], Launchable] = {}
        self._layouts: dict[Layout, Layout] = {}
        self._lock = threading.RLock()
        self._scratch = threading.local()
        self._direct = None
        if executor == "direct":
            from .cuda.session import DirectSession  # other devices never load it

            self._direct = DirectSession(self.device)
        self._load = foreign_load(self.facts, self._worker_ids)

    @staticmethod
    def _open(packs: str | Path | Iterable[str | Path]) -> dict[str, KernelRef]:
        kernels: dict[str, KernelRef] = {}
        for path in [packs] if isinstance(packs, str | Path) else packs:
            pack = open_pack(path)
            pack.verify()
            for entry in pack.manifest.kernels:
                if entry.kernel in kernels:
                    raise PackError(
                        f"kernel '{entry.kernel}' is in {kernels[entry.kernel].pack.path} too",
                        where=str(path),
                    )
                kernels[entry.kernel] = KernelRef(pack=pack, entry=entry)
        if not kernels:
            raise PackError("a session needs at least one pack with a kernel")
        return kernels

    def _check_code(self) -> None:
        for ref in self._kernels.values():
            if not candidates(ref.entry, self.device.backend):
                built = sorted({r.identity.target for r in ref.entry.members})
                raise PackError(
                    f"kernel '{ref.entry.kernel}' has no code for {self.device.backend}, "
                    f"only for {', '.join(built)}",
                    where=str(ref.pack.path),
                )

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the measuring process. Arrays stay valid."""
        self._measurer.close()

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(self._kernels)

    @property
    def settled(self) -> bool:
        """Whether every problem met so far has a choice that later calls will keep."""
        return self._planner.settled

    def __getattr__(self, name: str) -> KernelCall:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> KernelCall:
        """A kernel by its name, whatever that is; an attribute cannot be named as a method is."""
        call = self._calls.get(name)
        if call is None:
            with self._lock:
                call = self._calls.setdefault(name, self._new_call(self.reference(name)))
        return call

    def _new_call(self, ref: KernelRef) -> KernelCall:
        if self._direct is not None:
            return self._direct.call(ref, self._bind)
        return KernelCall(ref, self.device, self._bind, self._workspace)

    def array(self, value: Any) -> DeviceArray:
        """Copy a host array to the device.

        Raises:
            OperandError: no array, or of a type without kernels.
        """
        return self._upload(as_numpy(value, where="array"), where="array")

    def _upload(self, array: np.ndarray, *, where: str) -> DeviceArray:
        layout = self._intern(contiguous(type_name(array.dtype, where=where), array.shape))
        content = np.ascontiguousarray(array)
        return DeviceArray(self.device, self.device.upload(content, span_bytes(layout)), layout)

    def empty(self, shape: Sequence[int], type_: str) -> DeviceArray:
        """An uninitialised array on the device; ``type_`` is an element type such as ``f32``.

        Raises:
            OperandError: a size that is no whole number or out of range.
            UnsupportedError: an unknown element type.
            DeviceError: the device has not that much memory.
        """
        layout = self._intern(contiguous(type_, checked_shape(shape, where="array")))
        return DeviceArray(self.device, self.device.allocate(span_bytes(layout)), layout)

    def prepare(self, kernel: str, **operands: Any) -> Any:
        """Keep operands on the device and pack each once; pass what this returns instead of them.

        One operand gives one :class:`PreparedOperand`, several give a tuple in the given order.

        Raises:
            OperandError: none given, no such operand, or the wrong type, rank or session.
        """
        ref = self.reference(kernel)
        names = ", ".join(a.name for a in ref.entry.inputs)
        if not operands:
            raise OperandError(f"kernel '{kernel}': nothing to prepare, has operands: {names}")
        result = []
        for name, value in operands.items():
            argument = next((a for a in ref.entry.inputs if a.name == name), None)
            if argument is None:
                raise OperandError(f"kernel '{kernel}' has no operand '{name}', has: {names}")
            array = self._kept(value, argument, where=f"kernel '{kernel}' operand '{name}'")
            result.append(PreparedOperand(kernel, argument, array))
        return result[0] if len(result) == 1 else tuple(result)

    def _kept(self, value: Any, argument: Argument, *, where: str) -> DeviceArray:
        """One operand to prepare as a device array, checked before it is copied."""
        if isinstance(value, DeviceArray):
            check_device(value, self.device, where=where)
            check_operand(value.layout, argument, where=where)
            return value
        array = as_numpy(value, where=where)
        dense = contiguous(type_name(array.dtype, where=where), array.shape)
        check_operand(dense, argument, where=where)
        return self._upload(array, where=where)

    def prewarm(self, kernel: str, shapes: Iterable[Sequence[int]]) -> list[Choice]:
        """Choose ahead of the first call, as that call would; sizes in ``dims`` order."""
        return [self.choose(kernel, *sizes) for sizes in shapes]

    def choose(self, kernel: str, *sizes: int) -> Choice:
        """The choice for dense operands of these sizes.

        Raises:
            ProblemError: the wrong number of sizes, or one out of range.
            LaunchRefused: no member can run it.
        """
        ref = self.reference(kernel)
        at = problem(kernel, ref.entry.dims, tuple(sizes))
        return self._planner.choose(ref, at, layout_text(ref, dense_layouts(ref.entry, at)))

    def explain(self, kernel: str, *sizes: int) -> Explanation:
        """Every candidate with its verdict at a problem, and the choice if one was made."""
        ref = self.reference(kernel)
        at = problem(kernel, ref.entry.dims, tuple(sizes))
        return Explanation(
            kernel=kernel,
            problem=at,
            device=self.device.uri,
            verdicts=tuple(self._planner.verdicts(ref, at)),
            choice=self._planner.known(ref, at, layout_text(ref, dense_layouts(ref.entry, at))),
        )

    def override(self, kernel: str, candidate: str | None) -> None:
        """Force a candidate (``member`` or ``member/body``) for a kernel; None lifts it."""
        self._planner.override(self.reference(kernel), candidate)
        for call in self._calls.values():
            call.forget()

    def workspace_bytes(self, kernel: str, *sizes: int) -> int:
        """Workspace that is enough for any member that can run a problem here, in bytes."""
        ref = self.reference(kernel)
        at = problem(kernel, ref.entry.dims, tuple(sizes))
        verdicts = [v for v in self._planner.verdicts(ref, at) if v.ok]
        needs = (v.record.workspace_bytes(at.values(), v.splits) for v in verdicts)
        return max(needs, default=0)

    def executable(self, kernel: str, record: Record, splits: int = 1) -> Launchable:
        """The loaded code of one candidate, as it is launched with that many slices of K."""
        ref = self.reference(kernel)
        key = (kernel, record.full_name, splits > 1)
        with self._lock:
            if key not in self._executables:
                known = self._direct is not None and splits == 1
                code = self._direct.code(kernel, record) if known and self._direct else None
                self._executables[key] = code or load(
                    self.device, ref.pack, kernel, record, split=splits > 1
                )
            return self._executables[key]

    def reference(self, name: str) -> KernelRef:
        """A kernel with the pack it came from.

        Raises:
            UnknownKernel: no pack has it, with the names there are.
        """
        if name not in self._kernels:
            raise UnknownKernel(f"no kernel '{name}', there is: {', '.join(self._kernels)}")
        if self._direct is not None:
            with self._lock:
                self._kernels[name] = self._direct.measured(self._kernels[name])
        return self._kernels[name]

    def _intern(self, layout: Layout) -> Layout:
        with self._lock:
            return self._layouts.setdefault(layout, layout)

    def _bind(
        self, ref: KernelRef, at: Problem, layouts: tuple[Layout, ...]
    ) -> tuple[Choice, Launchable]:
        names = [a.name for a in ref.entry.args]
        offsets = {n: at.offset for n, at in zip(names, layouts, strict=True) if at.offset}
        strides = {
            f"{name}.{axis}": stride
            for name, layout in zip(names, layouts, strict=True)
            for axis, stride in enumerate(layout.strides)
        }
        strides |= offsets
        choice = self._planner.choose(ref, at, layout_text(ref, layouts), strides)
        return choice, self.executable(ref.entry.kernel, choice.record, choice.splits)

    def _workspace(self, nbytes: int) -> Any:
        """This thread's workspace, grown when needed."""
        held = getattr(self._scratch, "buffer", None)
        if held is None or held.byte_length() < nbytes:
            held = self._scratch.buffer = self.device.allocate(nbytes)
        return held

    def _worker_ids(self) -> list[int]:
        worker = self._measurer.process_id
        return [worker] if worker else []

    def _foreign_percent(self) -> int | None:
        if self.device.backend == "cpu":
            return cpu_foreign_percent(self._worker_ids())
        return self._load()


def layout_text(ref: KernelRef, layouts: Sequence[Layout]) -> str:
    """What of the operands' layout a choice depends on: transposes, alignment, accumulation.

    ``nt-a4-acc0``: A as stored, B transposed, every row a multiple of 2^4 bytes, C overwritten.
    """
    contraction = ref.entry.contraction
    letters = ("t" if contraction.transposed_a else "n") + (
        "t" if contraction.transposed_b else "n"
    )
    align = 4  # finer differences than 16 bytes change no copy instruction
    for argument, layout in zip(ref.entry.args, layouts, strict=True):
        item = dtype_of(argument.type).itemsize
        for nbytes in (layout.offset, *(stride * item for stride in layout.strides)):
            while align and nbytes % (1 << align):
                align -= 1
    return f"{letters}-a{align}-acc{int(contraction.accumulate)}"
