"""What a session with the direct executor keeps: workspaces, and facts of the loaded functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dialects.errors import DeviceError
from dialects.manifest import Record, Refusal

from ..calls import Bind
from ..family import KernelRef
from ..filter import candidates
from .call import DirectCall, Workspaces
from .code import CudaCode
from .device import CudaDevice


class DirectSession:
    """The part of a session that only the direct executor has."""

    def __init__(self, device: Any) -> None:
        assert isinstance(device, CudaDevice)
        self._device = device
        self._workspaces = Workspaces(device)
        self._measured: dict[str, KernelRef] = {}
        self._codes: dict[tuple[str, str], CudaCode] = {}

    def call(self, ref: KernelRef, bind: Bind) -> DirectCall:
        """A kernel as a callable."""
        return DirectCall(ref, self._device, bind, self._workspaces)

    def measured(self, ref: KernelRef) -> KernelRef:
        """The kernel with what its loaded functions take merged over the manifest's footprints.

        Each candidate is loaded once; one that the driver refuses is refused by rule ``load``.
        """
        name = ref.entry.kernel
        if name not in self._measured:
            here = {id(r) for r in candidates(ref.entry, self._device.backend)}
            members = tuple(
                self._loaded(ref, r) if id(r) in here and r.files is not None else r
                for r in ref.entry.members
            )
            self._measured[name] = replace(ref, entry=replace(ref.entry, members=members))
        return self._measured[name]

    def code(self, kernel: str, record: Record) -> CudaCode | None:
        """A candidate that was loaded to be measured."""
        return self._codes.get((kernel, record.full_name))

    def _loaded(self, ref: KernelRef, record: Record) -> Record:
        kernel = ref.entry.kernel
        try:
            code = CudaCode(self._device, ref.pack, kernel, record)
            self._codes[kernel, record.full_name] = code
            return code.measured_record()
        except DeviceError as error:
            refusal = Refusal(rule="load", need=None, limit=None, message=f"{error.message} (load)")
            return replace(record, refused=record.refused or refusal)
