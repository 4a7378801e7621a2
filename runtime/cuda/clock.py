"""Times candidates by CUDA events around launches of their own code objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from dialects.errors import DeviceError
from dialects.expressions import ceildiv
from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem
from dialects.types import element_type

from ..arrays import span_bytes
from ..facts.cuda import facts_of
from ..pack import Pack
from ..proof import Case, prove
from ..timer import BRACKET_LAUNCHES
from .code import CudaCode
from .device import CudaBuffer, CudaDevice
from .driver import nvml
from .timer import Ceiling, CudaTimer, Enqueue, bandwidth_ceiling

COLD_L2 = 2  # operands rotate through at least so many times the second-level cache


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A candidate ready to be timed on one problem."""

    enqueue: Enqueue
    ceiling: Ceiling


class CudaClock:
    """A device, its timer, and the candidates loaded on it; kept warm between trials."""

    def __init__(self, uri: str, *, cold: bool = False, device: CudaDevice | None = None) -> None:
        """Open the device.

        Raises:
            DeviceError: it is not there, or failed.
        """
        self.device = device or CudaDevice(uri)
        self.timer = CudaTimer(self.device)
        self.cold = cold
        self.facts: DeviceFacts = facts_of(self.device.driver, self.device.place, nvml())
        self._codes: dict[str, CudaCode] = {}
        self._arms: dict[str, Arm] = {}
        self._case: tuple[Case, Case] | None = None
        self._keep: list[Any] = []  # what the arms' addresses point to

    def microseconds(self, pack: Pack, record: Record, case: Case) -> float:
        """One bracket of a candidate, microseconds a launch.

        Raises:
            DeviceError: it fails or is wrong, or the reading is faster than the memory allows.
        """
        arm = self.arm(pack, record, case)
        return self.read(arm)

    def read(self, arm: Arm) -> float:
        """One bracket of an arm.

        Raises:
            DeviceError: it failed, or the reading is faster than the memory allows.
        """
        found = self.timer.bracket(arm.enqueue, cold=self.cold).microseconds
        if found < arm.ceiling.microseconds:
            raise DeviceError(
                f"a reading of {found:.2f} us is faster than the memory allows, "
                f"{arm.ceiling.microseconds:.2f} us"
            )
        return found

    def arm(self, pack: Pack, record: Record, case: Case) -> Arm:
        """A candidate on a case's operands, proven on small integers of that size before.

        Raises:
            DeviceError: it cannot be loaded, fails, or is wrong.
        """
        mine = self._mirrored(case)
        key = record.full_name
        if key not in self._arms:
            code = self._code(pack, case.kernel, record, case.splits)
            if case.integers:
                reason = prove(self.device, code, mine, whole=False)
                if reason is not None:
                    raise DeviceError(f"launched directly: {reason}")
            sets = self._operand_sets(record, mine)
            bound, stream = code.bind(case.constants), self.timer.stream
            self.device.synchronize(self.device.stream)  # the uploads, which went another way

            def enqueue(i: int) -> None:
                bound.launch(sets[i % len(sets)], stream)

            ceiling = bandwidth_ceiling(
                self.facts, moved_bytes(case.kernel, case.problem), cold=self.cold
            )
            self._arms[key] = Arm(enqueue=enqueue, ceiling=ceiling)
        return self._arms[key]

    def _mirrored(self, case: Case) -> Case:
        """The case with its operands in this device's memory; those of one are kept at a time."""
        if self._case is None or self._case[0].host is not case.host:
            self._arms, self._keep, self._case = {}, [], None
            *inputs, result = case.layouts
            names = [a.name for a in case.kernel.inputs]
            buffers = tuple(
                self.device.upload(case.host[name], span_bytes(layout))
                for name, layout in zip(names, inputs, strict=True)
            )
            output = self.device.allocate(span_bytes(result))
            if case.start is not None:  # timed adding to it again and again
                output = self.device.upload(case.start, span_bytes(result))
            self._case = (case, replace(case, inputs=buffers, result=output))
        return replace(self._case[1], splits=case.splits)

    def _code(self, pack: Pack, kernel: KernelEntry, record: Record, splits: int) -> CudaCode:
        files = record.files
        digest = files.sha256.get(files.code_object or "") if files else None
        key = f"{kernel.kernel} {record.full_name} {digest} {splits > 1}"
        if key not in self._codes:
            self._codes[key] = CudaCode(self.device, pack, kernel.kernel, record, split=splits > 1)
        return self._codes[key]

    def _operand_sets(self, record: Record, case: Case) -> list[list[int]]:
        """Addresses of the operands, and of copies of them when the cache must stay cold."""
        buffers = [*case.inputs, case.result]
        nbytes = record.workspace_bytes(case.problem.values(), case.splits)
        if nbytes:
            buffers.append(self.device.allocate(nbytes))
        self._keep.append(buffers)
        sets = [[b.pointer for b in buffers]]
        if self.cold and self.facts.l2_bytes:
            total = sum(b.nbytes for b in buffers)
            wanted = min(ceildiv(COLD_L2 * self.facts.l2_bytes, total) + 1, BRACKET_LAUNCHES + 1)
            for _ in range(wanted - 1):
                copies = [self._copy(b) for b in buffers]
                self._keep.append(copies)
                sets.append([b.pointer for b in copies])
        return sets

    def _copy(self, buffer: CudaBuffer) -> CudaBuffer:
        made = self.device.allocate(buffer.nbytes)
        with self.device.current():
            self.device.driver.call(
                "cuMemcpyDtoDAsync", made.pointer, buffer.pointer, buffer.nbytes, self.device.stream
            )
        return made


def moved_bytes(kernel: KernelEntry, problem: Problem) -> int:
    """Bytes that a launch must move at least: what it reads once, what it writes once."""
    values = problem.values()
    total = 0
    for argument in kernel.args:
        times = 2 if argument.mode == "readwrite" else 1
        total += times * prod(values[d] for d in argument.dims) * element_type(argument.type).bytes
    return total
