"""What the back end really made: facts read from its output, not from what it was asked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from dialects.manifest import Footprint

from ..target import Target
from .elf import elf_hash, read_hsaco
from .ptx import ptx_hash, read_ptx
from .spirv import read_spirv

__all__ = ["Reading", "read_artifact"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """``code_hash`` is of the device code alone; ``isa`` is None where the artifact names none."""

    code_hash: str
    footprint: Footprint
    matrix_instructions: int | None = None
    isa: str | None = None


def read_artifact(
    target: Target,
    code: bytes,
    predicted: Footprint,
    *,
    where: str,
    entry: str | None = None,
    more: Sequence[bytes] = (),
) -> Reading:
    """Read a candidate's device code; what it does not say stays as predicted or unknown.

    The footprint is that of the kernel ``entry`` of ``code``, or of its first one; bytes spilled
    and matrix instructions are of all kernels together. ``more`` are the objects of other kernels,
    where each has one of its own.

    Raises:
        FormatError: the code object is not what the target's back end emits.
    """
    if target.backend == "vulkan":
        module = read_spirv(code, where=where)
        others = [read_spirv(other, where=where) for other in more]
        return Reading(
            code_hash=hashlib.sha256(b"".join((code, *more))).hexdigest(),
            footprint=replace(
                predicted,
                static_shared_bytes=module.workgroup_bytes,
                threads_per_group=prod(module.local_size) if module.local_size else None,
            ),
            matrix_instructions=sum(m.matrix_instructions for m in (module, *others)),
        )
    if target.backend == "cuda":
        text = read_ptx(code, entry)
        threads = prod(text.max_threads) if text.max_threads else None
        return Reading(
            code_hash=ptx_hash(code),
            footprint=replace(predicted, threads_per_group=threads),
            matrix_instructions=text.matrix_instructions,
            isa=text.target,
        )
    if target.backend == "rocm":
        kernel = read_hsaco(code, where=where, entry=entry)
        return Reading(
            code_hash=elf_hash(code, where=where),
            footprint=replace(
                predicted,
                registers=kernel.registers,
                sgprs=kernel.sgprs,
                spill_bytes=kernel.spill_bytes,
                static_shared_bytes=kernel.static_shared_bytes,
                wave_width=kernel.wave_width,
                threads_per_group=kernel.threads,
            ),
            isa=kernel.isa,
        )
    return Reading(code_hash=elf_hash(code, where=where), footprint=predicted)
