"""Block-quantised storage: how many elements a block holds and how many bytes it takes.

A format is a source of an operand (design section 3): the tensor a caller passes is raw bytes, and
the kernel decodes blocks of them where a dense kernel would load elements. Layouts are those of
the GGUF files that llama.cpp reads (ggml's ``block_q8_0``), blocks along the innermost axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .errors import UnsupportedError

RAW_TYPE = "u8"  # the element type of raw bytes
DECODED_TYPES = ("f32", "f16", "bf16")  # what blocks may be decoded to


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """``elements`` consecutive elements are stored in ``bytes`` bytes.

    A block starts at a multiple of ``alignment`` bytes: that of its scale, the widest part.
    """

    name: str
    elements: int
    bytes: int
    alignment: int


# An f16 scale d, then 32 int8 quants q; element i is d * q[i].
Q8_0 = BlockFormat(name="q8_0", elements=32, bytes=34, alignment=2)
BLOCK_FORMATS = (Q8_0,)
_BY_NAME = {f.name: f for f in BLOCK_FORMATS}


def block_format(name: str, *, where: str | None = None) -> BlockFormat:
    """The format of that name.

    Raises:
        UnsupportedError: an unknown name, with the names that work.
    """
    if name not in _BY_NAME:
        names = ", ".join(_BY_NAME)
        raise UnsupportedError(f"block format '{name}' is not one of {names}", where=where)
    return _BY_NAME[name]


def stored_sizes(sizes: Sequence[int], source: str | None) -> tuple[int, ...]:
    """The shape of the tensor that holds elements of these sizes: bytes a row for a block format.

    A last size that is no whole number of blocks is rounded up; the rule ``alignment`` refuses it.
    """
    if source is None:
        return tuple(sizes)
    format_ = block_format(source)
    blocks = -(-sizes[-1] // format_.elements)
    return (*sizes[:-1], blocks * format_.bytes)
