"""What the back end really made: facts read from its output, not from what it was asked."""

from __future__ import annotations

import hashlib
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
from .ptx import only_entry, ptx_entries, ptx_hash, read_ptx
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
    target: Target,
    artifact: Artifact,
    predicted: Footprint,
    reader: Reader,
    *,
    where: str,
    entry: str | None = None,
    alone: bool = False,
) -> Reading:
    """Read one artifact; what it does not say stays as predicted or unknown.

    The footprint is that of the kernel ``entry``, or of the first one, and so are the counts of an
    AMD GPU's machine code. Bytes spilled, and instructions counted in text, are of all kernels
    together, unless the entry is read ``alone``.

    Raises:
        FormatError: the code object is not what the target's back end emits.
        CompileError: the assembler refuses it.
    """
    assert artifact.code is not None
    asked = _Asked(
        artifact=artifact,
        predicted=predicted,
        reader=reader,
        entry=entry,
        alone=alone and entry is not None,
        where=where,
    )
    return _READERS[target.backend](asked, artifact.code)


def code_entries(target: Target, code: bytes, *, where: str) -> tuple[str, ...]:
    """The names of the kernels in a code object; a processor's has none that are launched.

    Raises:
        FormatError: the code object is not what the target's back end emits.
    """
    if target.backend == "vulkan":
        return read_spirv(code, where=where).entries
    if target.backend == "cuda":
        return ptx_entries(code)
    return read_hsaco(code, where=where).entries if target.backend == "rocm" else ()


@dataclass(frozen=True, kw_only=True)
class _Asked:
    artifact: Artifact
    predicted: Footprint
    reader: Reader
    entry: str | None
    alone: bool
    where: str


def _spirv(asked: _Asked, code: bytes) -> Reading:
    where, codes = asked.where, asked.artifact.codes
    module, *others = (read_spirv(c, where=where) for c in codes)
    threads = prod(module.local_size) if module.local_size else None
    return Reading(
        code_hash=_together([spirv_hash(c, where=where) for c in codes]),
        footprint=replace(
            asked.predicted,
            static_shared_bytes=module.workgroup_bytes,
            dynamic_shared_bytes=0,  # SPIR-V of Vulkan has none
            threads_per_group=threads,
        ),
        matrix_instructions=sum(m.matrix_instructions for m in (module, *others)),
        version=module.version,
        bound=threads,
    )


def _ptx(asked: _Asked, code: bytes) -> Reading:
    reader, entry, where = asked.reader, asked.entry, asked.where
    if asked.alone:
        assert entry is not None
        code = only_entry(code, entry)
    text = read_ptx(code, entry)
    bound = prod(text.max_threads) if text.max_threads else None
    exports = {e.kernel: e for e in read_cuda_exports(asked.artifact.vmfb, where=where)}
    export = exports.get(entry or "", next(iter(exports.values()), None))
    if export is None:
        raise FormatError("the module exports no kernel", where=where)
    assembled = None
    if reader.assembler is not None and text.target is not None:
        assembled = assemble(
            code, text.target, reader.assembler, reader.deadline_s, entry=entry, where=where
        )
    footprint = replace(
        asked.predicted,
        dynamic_shared_bytes=export.dynamic_shared_bytes,
        wave_width=WARP,
        threads_per_group=prod(export.block) if export.block else bound,
    )
    return Reading(
        code_hash=ptx_hash(code),
        footprint=_with_registers(footprint, assembled, entry, where),
        matrix_instructions=text.matrix_instructions,
        isa=text.target,
        version=text.version,
        bound=bound,
        min_resident=text.min_resident,
        max_registers=text.max_registers,
        block=export.block,
        aligned=text.aligned,
    )


def _with_registers(
    footprint: Footprint, assembled: Assembled | None, entry: str | None, where: str
) -> Footprint:
    """The footprint with what the assembler said, when there was one."""
    if assembled is None:
        return footprint
    cubin = read_cubin(assembled.cubin, where=where, entry=entry)
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


def _hsaco(asked: _Asked, code: bytes) -> Reading:
    where, listing = asked.where, asked.artifact.listing
    kernel = read_hsaco(code, where=where, entry=asked.entry)
    share = kernel.census.loop_share if kernel.census else None
    matrix = kernel.census.matrix_instructions if kernel.census else None
    if (
        matrix is None and listing is not None and not asked.alone
    ):  # an encoding that is not read here
        matrix = count_matrix_instructions(listing)
    return Reading(
        code_hash=kernel.code_hash,
        footprint=replace(
            asked.predicted,
            registers=kernel.registers,
            sgprs=kernel.sgprs,
            spill_bytes=kernel.spill_bytes if asked.alone else kernel.most_spilled,
            static_shared_bytes=kernel.static_shared_bytes,
            wave_width=kernel.wave_width,
            threads_per_group=kernel.threads,
            matrix_permille=None if share is None else round(1000 * share),
        ),
        matrix_instructions=matrix,
        isa=kernel.isa,
        bound=kernel.threads,
    )


def _host(asked: _Asked, code: bytes) -> Reading:
    if not read_host_elf(code, where=asked.where).code_bytes:
        raise FormatError("the code object holds no code", where=asked.where)
    return Reading(code_hash=elf_hash(code, where=asked.where), footprint=asked.predicted)


def _together(hashes: list[str]) -> str:
    """One hash of a candidate's kernels; a single kernel's own."""
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()


_READERS: dict[str, Callable[[_Asked, bytes], Reading]] = {
    "vulkan": _spirv,
    "cuda": _ptx,
    "rocm": _hsaco,
    "cpu": _host,
}
