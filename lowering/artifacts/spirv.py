"""Reads SPIR-V modules: workgroup size, workgroup memory, capabilities, instruction counts.

The binary form is the specification's (SPIR-V 1.6, sections 2.3 and 3): a header of five words,
then instructions of (word count << 16 | opcode).
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dialects.errors import FormatError

MAGIC = 0x07230203
# opcodes of the specification, section 3.49
_EXECUTION_MODE, _CAPABILITY = 16, 17
_TYPE_INT, _TYPE_FLOAT, _TYPE_VECTOR, _TYPE_ARRAY, _TYPE_STRUCT, _TYPE_POINTER = (
    21,
    22,
    23,
    28,
    30,
    32,
)
_CONSTANT, _FUNCTION_END, _VARIABLE, _DECORATE = 43, 56, 59, 71
_LOCAL_SIZE_MODE = 17
_WORKGROUP_CLASS = 4
_ARRAY_STRIDE = 6
# OpSourceContinued, OpSource, OpSourceExtension, OpName, OpMemberName, OpString, OpLine, OpNoLine,
# OpModuleProcessed: names and places that no driver acts on
_REMARKS = frozenset((2, 3, 4, 5, 6, 7, 8, 317, 330))
_ENTRY_POINT = 15
COOPERATIVE_MULTIPLY_ADD = 4459  # OpCooperativeMatrixMulAddKHR


@dataclass(frozen=True, kw_only=True)
class SpirvReading:
    """What one module says of itself."""

    version: tuple[int, int]
    local_size: tuple[int, ...] | None
    workgroup_bytes: int
    capabilities: tuple[int, ...]
    matrix_instructions: int
    entries: tuple[str, ...]


def read_spirv(code: bytes, *, where: str) -> SpirvReading:
    """Read a module.

    Raises:
        FormatError: no SPIR-V, cut off, or with an id that nothing defines.
    """
    try:
        return _read(spirv_words(code, where=where), where)
    except (IndexError, KeyError, RecursionError) as error:
        raise FormatError(f"damaged SPIR-V: {type(error).__name__}", where=where) from None


def _read(words: tuple[int, ...], where: str) -> SpirvReading:
    types: dict[int, tuple[int, ...]] = {}
    constants: dict[int, int] = {}
    strides: dict[int, int] = {}
    variables: list[int] = []
    capabilities: list[int] = []
    entries: list[str] = []
    local_size: tuple[int, ...] | None = None
    opcodes: Counter[int] = Counter()
    opcode = 0
    for opcode, operands in spirv_instructions(words, where=where):
        opcodes[opcode] += 1
        if opcode == _CAPABILITY:
            capabilities.append(operands[0])
        elif opcode == _ENTRY_POINT:
            entries.append(_string(operands[2:]))
        elif opcode == _EXECUTION_MODE and operands[1] == _LOCAL_SIZE_MODE:
            local_size = tuple(operands[2:5])
        elif opcode == _DECORATE and operands[1] == _ARRAY_STRIDE:
            strides[operands[0]] = operands[2]
        elif opcode == _CONSTANT:
            constants[operands[1]] = operands[2]
        elif opcode == _VARIABLE and operands[2] == _WORKGROUP_CLASS:
            variables.append(operands[0])
        elif _TYPE_INT <= opcode <= _TYPE_POINTER:
            types[operands[0]] = (opcode, *operands[1:])
    if opcode != _FUNCTION_END:
        raise FormatError("SPIR-V is cut off: it does not end with a function", where=where)
    sizes = _Sizes(types, constants, strides)
    version = words[1]
    return SpirvReading(
        version=(version >> 16 & 255, version >> 8 & 255),
        local_size=local_size,
        workgroup_bytes=sum(sizes.pointee(v) for v in variables),
        capabilities=tuple(sorted(capabilities)),
        matrix_instructions=opcodes[COOPERATIVE_MULTIPLY_ADD],
        entries=tuple(entries),
    )


def spirv_hash(code: bytes, *, where: str) -> str:
    """sha256 of the instructions without remarks, and without what the entry points are called.

    Raises:
        FormatError: no SPIR-V, or cut off.
    """
    words = spirv_words(code, where=where)
    digest = hashlib.sha256(struct.pack("<I", words[1]))  # of the header, only the version
    for opcode, operands in spirv_instructions(words, where=where):
        if opcode in _REMARKS:
            continue
        if opcode == _ENTRY_POINT:
            operands = operands[:2] + operands[2 + _string_words(operands[2:]) :]
        digest.update(struct.pack(f"<{len(operands) + 1}I", opcode, *operands))
    return digest.hexdigest()


def _string(words: tuple[int, ...]) -> str:
    """The literal string that starts with the first of the words."""
    raw = struct.pack(f"<{len(words)}I", *words)
    return raw.partition(b"\0")[0].decode(errors="replace")


def _string_words(words: tuple[int, ...]) -> int:
    """Words of a literal string: it ends with the first word that has a zero byte."""
    for count, word in enumerate(words, 1):
        if any(not word >> shift & 255 for shift in (0, 8, 16, 24)):
            return count
    return len(words)


def spirv_words(code: bytes, *, where: str) -> tuple[int, ...]:
    """The words of a module, after a check of its size and magic number."""
    if len(code) < 20 or len(code) % 4:
        raise FormatError(f"SPIR-V of {len(code)} bytes is cut off", where=where)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    if words[0] != MAGIC:
        raise FormatError(f"no SPIR-V: starts with {words[0]:#x}", where=where)
    return words


def spirv_instructions(
    words: tuple[int, ...], *, where: str
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(opcode, operands) of each instruction in order."""
    position = 5
    while position < len(words):
        count = words[position] >> 16
        if count == 0 or position + count > len(words):
            raise FormatError(f"SPIR-V is cut off at word {position}", where=where)
        yield words[position] & 0xFFFF, words[position + 1 : position + count]
        position += count


class _Sizes:
    """Byte sizes of types, through arrays and structs."""

    def __init__(
        self,
        types: dict[int, tuple[int, ...]],
        constants: dict[int, int],
        strides: dict[int, int],
    ) -> None:
        self.types, self.constants, self.strides = types, constants, strides

    def pointee(self, pointer: int) -> int:
        return self.size(self.types[pointer][2])

    def size(self, type_: int) -> int:
        opcode, *operands = self.types[type_]
        if opcode in (_TYPE_INT, _TYPE_FLOAT):
            return operands[0] // 8
        if opcode == _TYPE_VECTOR:
            return self.size(operands[0]) * operands[1]
        if opcode == _TYPE_ARRAY:
            stride = self.strides.get(type_) or self.size(operands[0])
            return stride * self.constants[operands[1]]
        if opcode == _TYPE_STRUCT:
            return sum(self.size(o) for o in operands)
        return 0
