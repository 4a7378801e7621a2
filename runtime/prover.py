"""Loads candidates on one device and says what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dialects.errors import Error
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem

from .executors import Launchable, Memory, load
from .pack import Pack
from .proof import (
    REPEATS,
    REPEATS_AT_SIZE,
    Case,
    awkward_problem,
    make_case,
    operands_changed,
    padded_layouts,
    prove,
    repeatable,
)


class Prover:
    """Keeps candidates loaded and proven between requests. ``prefix`` goes before each reason."""

    def __init__(self, device: Memory, prefix: str = "") -> None:
        self.device = device
        self._prefix = prefix
        self._loaded: dict[tuple[str, str, str, bool], Launchable] = {}
        self._proven: set[tuple[str, int]] = set()

    def forget(self, path: str) -> None:
        """Load anew what came from the pack there."""
        self._loaded = {k: e for k, e in self._loaded.items() if k[0] != path}

    def executable(
        self, pack: Pack, kernel: KernelEntry, record: Record, splits: int
    ) -> Launchable:
        """The candidate's code, as it is launched with that many slices of K.

        Raises:
            PackError: a file is missing or damaged.
            DeviceError: the device refuses the code.
        """
        key = (str(pack.path), kernel.kernel, record.full_name, splits > 1)
        if key not in self._loaded:
            self._loaded[key] = load(self.device, pack, kernel.kernel, record, split=splits > 1)
        return self._loaded[key]

    def workspace(
        self, records: Iterable[Record], problem: Problem, splits: Mapping[str, int]
    ) -> Any | None:
        """One that is enough for each of the records; None where none needs any."""
        values = problem.values()
        sizes = [r.workspace_bytes(values, splits.get(r.full_name, 1)) for r in records]
        return self.device.allocate(max(sizes)) if any(sizes) else None

    def wrong(
        self,
        pack: Pack,
        kernel: KernelEntry,
        record: Record,
        case: Case,
        workspace: Any | None = None,
    ) -> str | None:
        """Why a candidate is wrong: in full on a small problem, once a build, then at the size.

        What is proven at the size is the program that is timed, with the ``workspace`` where one is
        given.
        """
        try:
            reason = self._wrong(pack, kernel, record, case, workspace)
        except Error as error:
            reason = error.message
        return None if reason is None else self._prefix + reason

    def _wrong(
        self,
        pack: Pack,
        kernel: KernelEntry,
        record: Record,
        case: Case,
        workspace: Any | None,
    ) -> str | None:
        splits = case.splits
        executable = self.executable(pack, kernel, record, splits)
        # Of the module: what the host does around the device's code is proven too.
        code = record.files.sha256[record.files.vmfb] if record.files else ""
        if (code, splits) not in self._proven:
            at = awkward_problem(kernel, record, splits)
            layouts = padded_layouts(kernel, record, at)
            small = replace(make_case(self.device, kernel, at, layouts=layouts), splits=splits)
            for launches in (0, REPEATS) if repeatable(case) else (0,):
                reason = prove(self.device, executable, small, whole=True, launches=launches)
                if reason is not None:
                    return f"{reason} at {small.problem.text}"
            self._proven.add((code, splits))
        launches = REPEATS_AT_SIZE if repeatable(case) else 0
        reason = prove(
            self.device, executable, case, whole=False, launches=launches, workspace=workspace
        )
        return None if reason is None else f"{reason} at {case.problem.text}"

    def changes(
        self, pack: Pack, kernel: KernelEntry, record: Record, problem: Problem, splits: int
    ) -> str | None:
        """What a candidate changes of fresh operands at this size, or what else is wrong there."""
        case = replace(make_case(self.device, kernel, problem), splits=splits)
        executable = self.executable(pack, kernel, record, splits)
        reason = prove(self.device, executable, case, whole=False)
        reason = reason or operands_changed(self.device, case)
        return None if reason is None else f"{self._prefix}{reason} at {problem.text}"
