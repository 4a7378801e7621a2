"""What the back end really made: facts read from its output, not from what it was asked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from math import prod

from dialects.manifest import Footprint

from ..target import Target
from .elf import elf_hash, read_amd_code, read_hsaco
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


def read_artifact(target: Target, code: bytes, predicted: Footprint, *, where: str) -> Reading:
    """Read one code object; what it does not say stays as predicted or unknown.

    Raises:
        FormatError: the code object is not what the target's back end emits.
    """
    if target.backend == "vulkan":
        module = read_spirv(code, where=where)
        return Reading(
            code_hash=hashlib.sha256(code).hexdigest(),
            footprint=replace(
                predicted,
                static_shared_bytes=module.workgroup_bytes,
                threads_per_group=prod(module.local_size) if module.local_size else None,
            ),
            matrix_instructions=module.matrix_instructions,
        )
    if target.backend == "cuda":
        text = read_ptx(code)
        threads = prod(text.max_threads) if text.max_threads else None
        return Reading(
            code_hash=ptx_hash(code),
            footprint=replace(predicted, threads_per_group=threads),
            matrix_instructions=text.matrix_instructions,
            isa=text.target,
        )
    if target.backend == "rocm":
        kernel = read_hsaco(code, where=where)
        counted = read_amd_code(code, where=where)
        share = counted.loop_share if counted else None
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
                matrix_permille=None if share is None else round(1000 * share),
            ),
            matrix_instructions=counted.matrix_instructions if counted else None,
            isa=kernel.isa,
        )
    return Reading(code_hash=elf_hash(code, where=where), footprint=predicted)
