"""Reads ELF code objects: AMD GPU metadata notes, host code, a hash of the machine code alone."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection

from dialects.errors import FormatError

from .amd_code import AmdCensus, census, is_known

NT_AMDGPU_METADATA = 32


@dataclass(frozen=True, kw_only=True)
class HsacoReading:
    """One AMD GPU kernel of a code object (AMDGPU backend guide, code object V5).

    ``census`` counts its instructions, None for an encoding that is not known here. ``entries``,
    ``most_spilled`` and ``code_hash`` (:func:`elf_hash`) are of the whole object.
    """

    isa: str
    registers: int
    sgprs: int
    spill_bytes: int
    static_shared_bytes: int
    wave_width: int
    threads: int | None
    census: AmdCensus | None
    entries: tuple[str, ...]
    most_spilled: int
    code_hash: str


def read_hsaco(code: bytes, *, where: str, entry: str | None = None) -> HsacoReading:
    """Read one kernel of a code object by its name, or the first.

    Raises:
        FormatError: no ELF, no AMD GPU metadata in it, or code that cannot be decoded.
    """
    with reading(where):
        return _hsaco(opened_elf(code, where), entry, where)


@dataclass(frozen=True, kw_only=True)
class HostReading:
    """A library for a processor: its machine, and the bytes of machine code in it."""

    machine: str
    code_bytes: int


def read_host_elf(code: bytes, *, where: str) -> HostReading:
    """Read a code object of the CPU back end, which reports no registers and no launch.

    Raises:
        FormatError: no ELF, or cut off.
    """
    with reading(where):
        elf = opened_elf(code, where)
        machine = elf["e_machine"]
        sizes = (
            s["sh_size"] for s in elf.iter_sections() if s["sh_flags"] & SH_FLAGS.SHF_EXECINSTR
        )
        return HostReading(machine=str(machine).removeprefix("EM_").lower(), code_bytes=sum(sizes))


@contextmanager
def reading(where: str) -> Iterator[None]:
    """The ELF and MessagePack readers raise whatever a damaged field leads them into."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(
            f"damaged code object: {type(error).__name__}: {error}", where=where
        ) from None


def _hsaco(elf: ELFFile, entry: str | None, where: str) -> HsacoReading:
    data = _metadata(elf, where)
    isa = data["amdhsa.target"].partition(":")[0].rpartition("-")[2]
    kernels = data["amdhsa.kernels"]
    kernel = next((k for k in kernels if k[".name"] == entry), kernels[0])
    required = kernel.get(".reqd_workgroup_size")
    threads = kernel.get(".max_flat_workgroup_size")
    if required:
        threads = required[0] * required[1] * required[2]
    return HsacoReading(
        isa=isa,
        registers=kernel[".vgpr_count"],
        sgprs=kernel[".sgpr_count"],
        spill_bytes=_spilled(kernel),
        static_shared_bytes=kernel[".group_segment_fixed_size"],
        wave_width=kernel[".wavefront_size"],
        threads=threads,
        census=_census(elf, kernel[".symbol"].removesuffix(".kd"), isa, where),
        entries=tuple(k[".name"] for k in kernels),
        most_spilled=max(_spilled(k) for k in kernels),
        code_hash=_hash(elf, where),
    )


def _census(elf: ELFFile, function: str, isa: str, where: str) -> AmdCensus | None:
    return census(_function(elf, function, where), isa, where=where) if is_known(isa) else None


def _spilled(kernel: dict[str, Any]) -> int:
    """Scalar registers spill into lanes of vector ones first, which takes no scratch memory."""
    spilled = kernel[".vgpr_spill_count"] + kernel[".sgpr_spill_count"]
    return kernel[".private_segment_fixed_size"] if spilled else 0


def opened_elf(code: bytes, where: str) -> ELFFile:
    """The ELF, whose section table is there to its end."""
    try:
        elf = ELFFile(io.BytesIO(code))
    except (ELFError, ValueError, OSError) as error:
        raise FormatError(f"no ELF code object: {error}", where=where) from None
    for table in ("sh", "ph"):  # one of them is last in the file
        if len(code) < elf[f"e_{table}off"] + elf[f"e_{table}num"] * elf[f"e_{table}entsize"]:
            raise FormatError("the code object is cut off within its tables", where=where)
    return elf


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


def _function(elf: ELFFile, name: str, where: str) -> bytes:
    """The machine code of a function, as long as its symbol says."""
    for symbol in _symbols(elf):
        section = symbol["st_shndx"]
        if symbol.name == name and symbol["st_size"] and isinstance(section, int):
            content = elf.get_section(section)
            start = symbol["st_value"] - content["sh_addr"]
            code = content.data()[max(start, 0) : start + symbol["st_size"]]
            if len(code) == symbol["st_size"]:
                return code
    raise FormatError(f"the code object has no code of '{name}'", where=where)


def _symbols(elf: ELFFile) -> Iterator[Any]:
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    return table.iter_symbols() if isinstance(table, SymbolTableSection) else iter(())


def elf_hash(code: bytes, *, where: str) -> str:
    """sha256 of the machine code and the constants that it reads, without symbols and notes.

    Local functions have no symbols of their own, so whole sections count. A kernel descriptor holds
    the distance to its code, which the length of names changes: that one field is left out.

    Raises:
        FormatError: no ELF, or one without code.
    """
    with reading(where):
        return _hash(opened_elf(code, where), where)


def _hash(elf: ELFFile, where: str) -> str:
    digest = hashlib.sha256()
    executable = 0
    for section in elf.iter_sections():
        runs = bool(section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
        if runs or section.name.startswith(".rodata"):
            content = _without_entries(section.data(), section["sh_addr"], elf)
            digest.update(len(content).to_bytes(8, "little") + content)
            executable += runs * len(content)
    if not executable:
        raise FormatError("the code object holds no code", where=where)
    return digest.hexdigest()


def _without_entries(content: bytes, address: int, elf: ELFFile) -> bytes:
    """Zero the entry offset (bytes 16 to 24) of every AMD GPU kernel descriptor in a section."""
    result = bytearray(content)
    for symbol in _symbols(elf):
        start = symbol["st_value"] - address + 16
        if symbol.name.endswith(".kd") and start >= 0 and start + 8 <= len(result):
            result[start : start + 8] = bytes(8)
    return bytes(result)
