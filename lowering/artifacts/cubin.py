"""Reads cubins, the ELF files that NVIDIA's assembler makes: registers, stack, shared memory.

Their attributes stand in ``.nv.info`` sections as records of a format byte, an attribute byte and a
16-bit word, which is the value itself or the length of what follows (as cuobjdump and nvdisasm of
the CUDA binary utilities print them).
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from dialects.errors import FormatError

from .elf import opened_elf, reading

_SIZED = 4  # the format whose word is a length
_MAX_THREADS, _FRAME_SIZE, _MAXREG, _REGCOUNT = 0x05, 0x11, 0x1B, 0x2F
_RESERVED_SHARED = 1024  # what the driver keeps of each block, in the section since ABI 8
_ABI_WITH_WIDE_FLAGS = 8  # until then the ISA stood in the lowest byte of the flags


@dataclass(frozen=True, kw_only=True)
class CubinReading:
    """One kernel of a cubin; None where no attribute says it."""

    isa: str
    registers: int | None
    frame_bytes: int | None
    static_shared_bytes: int
    max_threads: tuple[int, ...] | None


def read_cubin(code: bytes, *, where: str, entry: str | None = None) -> CubinReading:
    """Read the kernel ``entry`` of a cubin, or the first one.

    Raises:
        FormatError: no ELF, none of NVIDIA's, cut off, or without a kernel.
    """
    with reading(where):
        elf = opened_elf(code, where)
        if elf["e_machine"] != "EM_CUDA":
            raise FormatError(f"no cubin: an ELF of {elf['e_machine']}", where=where)
        kernel = _kernel(elf, entry, where)
        common = list(_attributes(_section(elf, ".nv.info")))
        number = _symbol_number(elf, kernel)
        own = dict(_attributes(_section(elf, f".nv.info.{kernel}")))
        return CubinReading(
            isa=_isa(elf),
            registers=_about(common, _REGCOUNT, number),
            frame_bytes=_about(common, _FRAME_SIZE, number),
            static_shared_bytes=_shared(elf, kernel),
            max_threads=_words(own[_MAX_THREADS]) if _MAX_THREADS in own else None,
        )


def _kernel(elf: ELFFile, entry: str | None, where: str) -> str:
    texts = [s.name for s in elf.iter_sections() if s.name.startswith(".text.")]
    names = [text.removeprefix(".text.") for text in texts]
    if not names:
        raise FormatError("the cubin holds no kernel", where=where)
    return entry if entry in names else names[0]


def _symbol_number(elf: ELFFile, kernel: str) -> int | None:
    table = elf.get_section_by_name(".symtab")
    symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
    return next((i for i, symbol in enumerate(symbols) if symbol.name == kernel), None)


def _section(elf: ELFFile, name: str) -> bytes:
    section = elf.get_section_by_name(name)
    return section.data() if section is not None else b""


def _isa(elf: ELFFile) -> str:
    wide = elf["e_ident"]["EI_ABIVERSION"] >= _ABI_WITH_WIDE_FLAGS
    return f"sm_{elf['e_flags'] >> (8 if wide else 0) & 0xFF}"


def _shared(elf: ELFFile, kernel: str) -> int:
    section = elf.get_section_by_name(f".nv.shared.{kernel}")
    size = section["sh_size"] if section is not None else 0
    reserves = elf.get_section_by_name(".nv.shared.reserved.0") is not None
    return max(size - _RESERVED_SHARED, 0) if reserves else size


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    stream = io.BytesIO(data)
    while len(head := stream.read(4)) == 4:
        form, attribute, word = struct.unpack("<BBH", head)
        yield attribute, stream.read(word) if form == _SIZED else struct.pack("<I", word)


def _words(value: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])


def _about(records: list[tuple[int, bytes]], attribute: int, number: int | None) -> int | None:
    """The value of a record that starts with the number of the symbol that it is about."""
    for found, value in records:
        if found == attribute and _words(value)[:1] == (number,):
            return _words(value)[1]
    return None
