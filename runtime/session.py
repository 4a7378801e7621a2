"""What an application holds: packs on a device, kernels to call, choices that stay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from dialects.errors import OperandError, PackError
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
from .calls import Bind, KernelCall, PreparedOperand
from .choice import Candidate
from .dtypes import type_name
from .executors import ExecutorName, Launchable, load, open_device
from .facts import read_facts
from .family import Choice, KernelRef, check_code, open_kernels
from .in_place import InPlaceTrial
from .layout_key import layout_text, strides_by_name
from .measure import Measurer
from .planner import Planner, PlannerOptions
from .report import Explanation
from .shape_choice import Answer, Tuning, checked_tuning, question_of
from .store import Store
from .surroundings import surroundings_of
from .timer import CachePolicy, TimerTier, checked_cache


class UnknownKernel(PackError, AttributeError):
    """No pack of the session has a kernel of that name."""


class Session:
    """Kernels of one or more packs on one device. Any number of threads may call them.

    ``store`` is a directory, or None to remember in memory only. ``tuning``: ``off`` takes the
    untimed default, ``store`` reads the store and never times, ``first_use`` times the survivors
    in a process of its own when the store knows nothing. ``cache`` is the state of the caches that
    they are timed with: ``hot``, or ``cold`` by rotating buffers of at least twice the L2 cache.
    ``poison`` fills every fresh allocation with 0xFF bytes, to find reads of what nothing wrote.

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
        cache: CachePolicy = "hot",
        poison: bool = False,
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
        options = PlannerOptions(
            tuning=checked_tuning(tuning),
            budget_ms=budget_ms,
            cache=checked_cache(cache),
            observe=observe,
            on_choice=on_choice,
        )
        self._kernels = open_kernels(packs)
        self.device = open_device(device, executor, stream, poison=poison)
        self.facts = facts or read_facts(device)
        check_code(self._kernels.values(), self.device.backend)
        self._measurer = Measurer(device, executor=executor)
        directory = Path(store) if store is not None else None
        around = surroundings_of(self.facts, directory, self._own_processes)
        self._planner = Planner(self.facts, Store(directory), self._measurer, around, options)
        self._calls: dict[str, KernelCall] = {}
        self._executables: dict[tuple[str, str, bool], Launchable] = {}
        self._layouts: dict[Layout, Layout] = {}
        self._lock = threading.RLock()
        self._scratch = threading.local()
        self._direct = None
        if executor == "direct":
            from .cuda.session import DirectSession  # other devices never load it

            self._direct = DirectSession(self.device)

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
                call = self._calls.setdefault(
                    name, self._new_call(self.reference(name), self._bind)
                )
        return call

    def _new_call(self, ref: KernelRef, bind: Bind) -> KernelCall:
        if self._direct is not None:
            return self._direct.call(ref, bind)
        return KernelCall(ref, self.device, bind, self._workspace)

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
        """Choose ahead of the first call, as that call would; sizes in ``dims`` order.

        A choice that is not settled, such as one made beside other load, is made again.
        """
        choices = [self._choose(kernel, sizes, again=True) for sizes in shapes]
        self._forget()
        return choices

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the block nothing is recalled or timed: calls run the untimed default.

        A choice that was made before stays. Holds may nest; every thread's calls are held.
        """
        with self._planner.hold():
            yield

    def trial(self, kernel: str, *sizes: int, timer: TimerTier = "host") -> InPlaceTrial:
        """A trial that the application times in place, see :class:`.in_place.InPlaceTrial`.

        The candidates are proven first, in the measuring process. It has nothing to do where the
        choice is made, forced or held, or where ``tuning`` does not allow it. ``timer`` says which
        clock the samples will be of.

        Raises:
            LaunchRefused: no candidate can run.
            DeviceError: no candidate is right.
        """
        ref, at, layout = self._dense(kernel, sizes)
        trial = self._planner.open_trial(ref, at, layout, timer=timer)
        trial.on_finish(self._forget)
        return trial

    def candidate(self, kernel: str, name: str) -> KernelCall:
        """A kernel that always runs the candidate of that name, whatever the choice.

        Raises:
            PackError: no candidate of this device has that name.
        """
        ref = self.reference(kernel)
        record = self._planner.find(ref, name)

        def bind(
            ref: KernelRef, at: Problem, layouts: tuple[Layout, ...]
        ) -> tuple[Choice, Launchable]:
            choice = self._planner.forced(ref, record, at, strides_by_name(ref, layouts))
            return choice, self.executable(kernel, record, choice.splits)

        return self._new_call(ref, bind)

    def choose_among(self, name: str, key: str, candidates: Sequence[Candidate]) -> Answer:
        """Choose among ways to do the same thing that are no members of a family.

        The first is the default. Each is checked, then all are timed in this process by their own
        probes, under this session's tuning, budget and lock; ``name`` and ``key`` say under what
        the answer is kept, for the build that their code hashes state.

        Raises:
            UsageError: no candidate, or two of one name.
            DeviceError: every candidate failed.
        """
        question = question_of(self.facts, name, key, candidates)
        return self._planner.choose_among(question, candidates)

    def _own_processes(self) -> list[int]:
        worker = self._measurer.process_id
        return [worker] if worker else []

    def _forget(self) -> None:
        """Have every kernel ask for its choices anew."""
        for call in list(self._calls.values()):
            call.forget()

    def choose(self, kernel: str, *sizes: int) -> Choice:
        """The choice for dense operands of these sizes.

        Raises:
            ProblemError: the wrong number of sizes, or one out of range.
            LaunchRefused: no member can run it.
        """
        return self._choose(kernel, sizes)

    def _choose(self, kernel: str, sizes: Sequence[int], *, again: bool = False) -> Choice:
        ref, at, layout = self._dense(kernel, sizes)
        return self._planner.choose(ref, at, layout, again=again)

    def problem_of(self, kernel: str, *sizes: int) -> Problem:
        """The checked problem of these sizes.

        Raises:
            ProblemError: the wrong number of sizes, or one out of range.
        """
        return problem(kernel, self.dims(kernel), tuple(sizes))

    def _dense(self, kernel: str, sizes: Sequence[int]) -> tuple[KernelRef, Problem, str]:
        """A kernel, a problem, and the layout of contiguous operands."""
        ref = self.reference(kernel)
        at = problem(kernel, ref.entry.dims, tuple(sizes))
        return ref, at, layout_text(ref, dense_layouts(ref.entry, at))

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
        self._forget()

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

    def dims(self, kernel: str) -> tuple[str, ...]:
        """Names of a kernel's sizes in order; no candidate is loaded for them."""
        return self._opened(kernel).entry.dims

    def _opened(self, name: str) -> KernelRef:
        if name not in self._kernels:
            raise UnknownKernel(f"no kernel '{name}', there is: {', '.join(self._kernels)}")
        return self._kernels[name]

    def reference(self, name: str) -> KernelRef:
        """A kernel with the pack it came from; with the direct executor its candidates are loaded.

        Raises:
            UnknownKernel: no pack has it, with the names there are.
        """
        opened = self._opened(name)
        if self._direct is not None:
            with self._lock:
                self._kernels[name] = self._direct.measured(opened)
        return self._kernels[name]

    def _intern(self, layout: Layout) -> Layout:
        with self._lock:
            return self._layouts.setdefault(layout, layout)

    def _bind(
        self, ref: KernelRef, at: Problem, layouts: tuple[Layout, ...]
    ) -> tuple[Choice, Launchable]:
        strides = strides_by_name(ref, layouts)
        choice = self._planner.choose(ref, at, layout_text(ref, layouts), strides)
        return choice, self.executable(ref.entry.kernel, choice.record, choice.splits)

    def _workspace(self, nbytes: int) -> Any:
        """This thread's workspace, grown when needed."""
        held = getattr(self._scratch, "buffer", None)
        if held is None or held.byte_length() < nbytes:
            held = self._scratch.buffer = self.device.allocate(nbytes)
        return held
