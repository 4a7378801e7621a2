"""What the back end really made: facts read from its output, not from what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from dialects.errors import FormatError
from dialects.manifest import Footprint

from ..compile import Artifact
from ..target import Target
from .assembler import Assembled, assemble
from .cubin import read_cubin
from .elf import elf_hash, read_host_elf, read_hsaco
from .listing import count_matrix_instructions
from .ptx import ptx_hash, read_ptx
from .spirv import read_spirv, spirv_hash
from .vmfb import read_cuda_exports

WARP = 32  # lanes (PTX ISA, section 2.1)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What an artifact says; None where it says nothing.

    ``code_hash`` is of the device code alone. ``bound`` is the most threads that a block may have
    by the code itself, ``min_resident`` and ``max_registers`` are the directives of the same name,
    ``block`` is the one that the loadable module launches, and ``aligned`` counts the ``.aligned``
    instructions by their mnemonic.
    """

    code_hash: str
    footprint: Footprint
    matrix_instructions: int | None = None
    isa: str | None = None
    version: tuple[int, int] | None = None
    bound: int | None = None
    min_resident: int | None = None
    max_registers: int | None = None
    block: tuple[int, ...] | None = None
    aligned: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What reading may use: NVIDIA's assembler when there is one, and for how long."""

    assembler: Path | None = None
    deadline_s: float


def read_artifact(
    target: Target, artifact: Artifact, predicted: Footprint, reader: Reader, *, where: str
) -> Reading:
    """Read one artifact; what it does not say stays as predicted or unknown.

    Raises:
        FormatError: the code object is not what the target's back end emits.
        CompileError: the assembler refuses it.
    """
    assert artifact.code is not None
    return _READERS[target.backend](artifact, artifact.code, predicted, reader, where)


def _spirv(
    artifact: Artifact, code: bytes, predicted: Footprint, reader: Reader, where: str
) -> Reading:
    module = read_spirv(code, where=where)
    threads = prod(module.local_size) if module.local_size else None
    return Reading(
        code_hash=spirv_hash(code, where=where),
        footprint=replace(
            predicted,
            static_shared_bytes=module.workgroup_bytes,
            dynamic_shared_bytes=0,  # SPIR-V of Vulkan has none
            threads_per_group=threads,
        ),
        matrix_instructions=module.matrix_instructions,
        version=module.version,
        bound=threads,
    )


def _ptx(
    artifact: Artifact, code: bytes, predicted: Footprint, reader: Reader, where: str
) -> Reading:
    text = read_ptx(code)
    bound = prod(text.max_threads) if text.max_threads else None
    exports = read_cuda_exports(artifact.vmfb, where=where)
    if len(exports) != 1:
        raise FormatError(f"the module exports {len(exports)} kernels, required 1", where=where)
    (export,) = exports
    assembled = None
    if reader.assembler is not None and text.target is not None:
        assembled = assemble(code, text.target, reader.assembler, reader.deadline_s, where=where)
    footprint = replace(
        predicted,
        dynamic_shared_bytes=export.dynamic_shared_bytes,
        wave_width=WARP,
        threads_per_group=prod(export.block) if export.block else bound,
    )
    return Reading(
        code_hash=ptx_hash(code),
        footprint=_with_registers(footprint, assembled, where),
        matrix_instructions=text.matrix_instructions,
        isa=text.target,
        version=text.version,
        bound=bound,
        min_resident=text.min_resident,
        max_registers=text.max_registers,
        block=export.block,
        aligned=text.aligned,
    )


def _with_registers(footprint: Footprint, assembled: Assembled | None, where: str) -> Footprint:
    """The footprint with what the assembler said, when there was one."""
    if assembled is None:
        return footprint
    cubin = read_cubin(assembled.cubin, where=where)
    if cubin.registers not in (None, assembled.registers):
        raise FormatError(
            f"the assembler says {assembled.registers} registers, its cubin {cubin.registers}",
            where=where,
        )
    return replace(
        footprint,
        registers=assembled.registers,
        spill_bytes=assembled.spill_bytes,
        spill_store_bytes=assembled.spill_store_bytes,
        static_shared_bytes=assembled.static_shared_bytes,
    )


def _hsaco(
    artifact: Artifact, code: bytes, predicted: Footprint, reader: Reader, where: str
) -> Reading:
    kernel = read_hsaco(code, where=where)
    listing = artifact.listing
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
        matrix_instructions=None if listing is None else count_matrix_instructions(listing),
        isa=kernel.isa,
        bound=kernel.threads,
    )


def _host(
    artifact: Artifact, code: bytes, predicted: Footprint, reader: Reader, where: str
) -> Reading:
    if not read_host_elf(code, where=where).code_bytes:
        raise FormatError("the code object holds no code", where=where)
    return Reading(code_hash=elf_hash(code, where=where), footprint=predicted)


_READERS: dict[str, Callable[[Artifact, bytes, Footprint, Reader, str], Reading]] = {
    "vulkan": _spirv,
    "cuda": _ptx,
    "rocm": _hsaco,
    "cpu": _host,
}
