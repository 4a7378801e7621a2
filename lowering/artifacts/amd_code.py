"""Decodes AMD machine code as far as evidence needs it: where instructions start, which multiply
matrices, where branches go.

The bytes of ``.text`` are what a device runs, so they are what is read; an assembly listing is only
what the compiler printed on the way to them. Encodings, their lengths and opcodes are those of the
ISA guides of CDNA 2/3/4 and RDNA 3/3.5/4, chapters on microcode formats.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dialects.errors import FormatError

_LITERAL = 255
_EXTENSIONS = {"gfx9": (249, 250), "gfx11": (233, 234, 250), "gfx12": (233, 234, 250)}  # SDWA, DPP
# Opcodes with a literal that no source field announces: VOP2 fmamk/fmaak (madmk/madak on CDNA),
# SOPK s_setreg_imm32_b32, SOP2 s_fmaak/s_fmamk (from RDNA 3.5).
_VOP2_LITERAL = {
    "gfx9": (23, 24, 36, 37),
    "gfx11": (44, 45, 55, 56),
    "gfx12": (44, 45, 55, 56),
}
_SOPK_LITERAL = {"gfx9": 20, "gfx11": 19, "gfx12": 19}
_SOP2_LITERAL = {"gfx9": (), "gfx11": (69, 70), "gfx12": (69, 70)}
# VOP3P opcodes: v_wmma and v_swmmac; v_mfma and v_smfmac, without v_accvgpr_read/write.
_WMMA = frozenset((*range(0x40, 0x4B), *range(0x50, 0x5B)))
_MFMA = frozenset((0x2D, 0x2E, *range(0x34, 0x58), *range(0x5A, 0x80)))
# 64- and 96-bit formats by the top six bits, where they do not depend on more
_LONG = {
    "gfx9": dict.fromkeys(
        (0b110000, 0b110001, 0b110100, 0b110110, 0b110111, 0b111000, 0b111010, 0b111100), 2
    ),
    "gfx11": dict.fromkeys((0b111101, 0b110110, 0b110111, 0b111000, 0b111010, 0b111110), 2),
    "gfx12": {
        **dict.fromkeys((0b111101, 0b110110, 0b111110), 2),
        **dict.fromkeys((0b111011, 0b110001, 0b110100, 0b111001), 3),
    },
}
_BRANCHES = {"gfx9": (2, 10), "gfx11": (32, 39), "gfx12": (32, 39)}  # s_branch and s_cbranch_*


@dataclass(frozen=True, kw_only=True)
class AmdInstruction:
    """One instruction: its place and length in bytes, what evidence asks of it.

    ``target`` is where it may branch to, relative to the code's start.
    """

    place: int
    length: int
    matrix: bool
    target: int | None


@dataclass(frozen=True, kw_only=True)
class AmdCensus:
    """Counts of one kernel. The loop is the innermost one with matrix instructions, 0 when none."""

    instructions: int
    matrix_instructions: int
    loop_instructions: int
    loop_matrix_instructions: int

    @property
    def loop_share(self) -> float | None:
        """Of the instructions that a wave issues in the main loop, those that multiply matrices."""
        if not self.loop_instructions:
            return None
        return self.loop_matrix_instructions / self.loop_instructions


def census(code: bytes, isa: str, *, where: str) -> AmdCensus:
    """Count what one function's machine code holds.

    Raises:
        FormatError: an ISA or an encoding that is not known here, or code that is cut off.
    """
    found = list(decode(code, isa, where=where))
    loops = [
        [i for i in found if branch.target <= i.place <= branch.place]
        for branch in found
        if branch.target is not None and branch.target <= branch.place
    ]
    main = min((loop for loop in loops if any(i.matrix for i in loop)), key=len, default=[])
    return AmdCensus(
        instructions=len(found),
        matrix_instructions=sum(i.matrix for i in found),
        loop_instructions=len(main),
        loop_matrix_instructions=sum(i.matrix for i in main),
    )


def is_known(isa: str) -> bool:
    """Whether this module knows how instructions of an ISA are encoded."""
    return _family(isa) is not None


def _family(isa: str) -> str | None:
    return next((f for f in _LONG if isa.startswith(f)), None)


def decode(code: bytes, isa: str, *, where: str) -> Iterator[AmdInstruction]:
    """The instructions of a function in order.

    Raises:
        FormatError: see :func:`census`.
    """
    family = _family(isa)
    if family is None:
        raise FormatError(f"machine code of {isa} is not understood", where=where)
    if len(code) % 4:
        raise FormatError(f"machine code of {len(code)} bytes is cut off", where=where)
    words = struct.unpack(f"<{len(code) // 4}I", code)
    length_of = _length_on(family)
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else 0
        length = length_of(word, following)
        if length is None or at + length > len(words):
            raise FormatError(
                f"machine code of {isa}: no instruction {word:#010x} at byte {4 * at}", where=where
            )
        yield AmdInstruction(
            place=4 * at,
            length=4 * length,
            matrix=_is_matrix(family, word),
            target=_branch_target(family, word, 4 * at),
        )
        at += length


def _is_matrix(family: str, word: int) -> bool:
    if family == "gfx9":
        return word >> 23 == 0b110100111 and (word >> 16 & 0x7F) in _MFMA
    return word >> 24 == 0xCC and (word >> 16 & 0x7F) in _WMMA


def _branch_target(family: str, word: int, place: int) -> int | None:
    first, end = _BRANCHES[family]
    if word >> 23 != 0b101111111 or not first <= (word >> 16 & 0x7F) < end:
        return None
    distance = word & 0xFFFF
    return place + 4 + 4 * (distance - (0x10000 if distance & 0x8000 else 0))


def _length_on(family: str) -> Callable[[int, int], int | None]:
    """A function of an instruction's first two words to its length in words, None if unknown."""

    def length(word: int, following: int) -> int | None:
        if word >> 31 == 0:
            return _vector(family, word)
        if word >> 30 == 0b10:
            return _scalar(family, word)
        known = _LONG[family].get(word >> 26)
        if known is not None:
            return known
        return None if family == "gfx9" else _rdna(family, word, following)

    return length


def _vector(family: str, word: int) -> int:
    """VOP1, VOP2 and VOPC: a literal, or a word that says how lanes are permuted."""
    source, op = word & 0x1FF, word >> 25
    more = source == _LITERAL or source in _EXTENSIONS[family] or op in _VOP2_LITERAL[family]
    return 1 + more


def _scalar(family: str, word: int) -> int:
    if word >> 23 == 0b101111111:  # SOPP
        return 1
    if word >> 23 == 0b101111101:  # SOP1
        return 1 + (word & 0xFF == _LITERAL)
    if word >> 28 == 0b1011 and word >> 23 != 0b101111110:  # SOPK
        return 1 + (word >> 23 & 0x1F == _SOPK_LITERAL[family])
    fixed = word >> 23 != 0b101111110 and (word >> 23 & 0x7F) in _SOP2_LITERAL[family]
    return 1 + (fixed or _LITERAL in (word & 0xFF, word >> 8 & 0xFF))  # SOP2, SOPC


def _rdna(family: str, word: int, following: int) -> int | None:
    head = word >> 24
    if head == 0xCE:  # LDS direct
        return 1
    if head == 0xCD:  # interpolation
        return 2
    if head == 0xCC or word >> 26 == 0b110101:  # VOP3P, VOP3
        sources = (following & 0x1FF, following >> 9 & 0x1FF, following >> 18 & 0x1FF)
        return 2 + (_LITERAL in sources or sources[0] in _EXTENSIONS[family])
    if word >> 26 == 0b110010:  # two instructions in one; fmaak and fmamk share a literal
        fixed = (word >> 22 & 0xF) in (1, 2) or (word >> 17 & 0x1F) in (1, 2)
        return 2 + (fixed or _LITERAL in (word & 0x1FF, following & 0x1FF))
    if word >> 26 == 0b111100 and family == "gfx11":  # images: addresses in more registers
        return 2 + (word & 1)
    return None
