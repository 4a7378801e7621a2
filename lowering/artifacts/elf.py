"""Reads ELF code objects: AMD GPU metadata notes, and a hash of the machine code alone."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from dialects.errors import FormatError

NT_AMDGPU_METADATA = 32


@dataclass(frozen=True, kw_only=True)
class HsacoReading:
    """The metadata of one AMD GPU kernel (AMDGPU backend guide, code object V5)."""

    isa: str
    registers: int
    sgprs: int
    spill_bytes: int
    static_shared_bytes: int
    wave_width: int
    threads: int | None


def read_hsaco(code: bytes, *, where: str) -> HsacoReading:
    """Read the first kernel of a code object.

    Raises:
        FormatError: no ELF, or no AMD GPU metadata in it.
    """
    data = _metadata(_elf(code, where), where)
    kernel = data["amdhsa.kernels"][0]
    required = kernel.get(".reqd_workgroup_size")
    threads = kernel.get(".max_flat_workgroup_size")
    if required:
        threads = required[0] * required[1] * required[2]
    spilled = kernel[".vgpr_spill_count"] + kernel[".sgpr_spill_count"]
    return HsacoReading(
        isa=data["amdhsa.target"].rpartition("-")[2],
        registers=kernel[".vgpr_count"],
        sgprs=kernel[".sgpr_count"],
        # what was spilled lives in scratch; 4 bytes a register is the least it can take
        spill_bytes=max(4 * spilled, kernel[".private_segment_fixed_size"] if spilled else 0),
        static_shared_bytes=kernel[".group_segment_fixed_size"],
        wave_width=kernel[".wavefront_size"],
        threads=threads,
    )


def _elf(code: bytes, where: str) -> ELFFile:
    try:
        return ELFFile(io.BytesIO(code))
    except (ELFError, ValueError, OSError) as error:
        raise FormatError(f"no ELF code object: {error}", where=where) from None


def _metadata(elf: ELFFile, where: str) -> dict[str, Any]:
    for section in elf.iter_sections():
        if not isinstance(section, NoteSection):
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (
                NT_AMDGPU_METADATA,
                "NT_AMDGPU_METADATA",
            ):
                described = note["n_desc"]
                raw = described if isinstance(described, bytes) else note["n_descdata"]
                return msgpack.unpackb(raw)
    raise FormatError("the code object has no AMD GPU metadata note", where=where)


def elf_hash(code: bytes, *, where: str) -> str:
    """sha256 of every function's machine code, in order of size and content, without names."""
    elf = _elf(code, where)
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    bodies: list[bytes] = []
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]:
            bodies.append(_bytes_at(elf, symbol["st_value"], symbol["st_size"]))
    if not bodies:
        text = elf.get_section_by_name(".text")
        bodies = [text.data()] if text is not None else []
    digest = hashlib.sha256()
    for body in sorted(bodies):
        digest.update(len(body).to_bytes(8, "little") + body)
    return digest.hexdigest()


def _bytes_at(elf: ELFFile, address: int, size: int) -> bytes:
    for segment in elf.iter_segments():
        start = segment["p_vaddr"]
        if segment["p_type"] == "PT_LOAD" and start <= address < start + segment["p_filesz"]:
            return segment.data()[address - start : address - start + size]
    return b""
