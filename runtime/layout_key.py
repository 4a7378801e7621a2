"""What of the operands' layouts a choice depends on."""

from __future__ import annotations

from collections.abc import Sequence

from .arrays import Layout
from .dtypes import dtype_of
from .family import KernelRef


def strides_by_name(ref: KernelRef, layouts: Sequence[Layout]) -> dict[str, int]:
    """The outer strides of operands by name."""
    names = [a.name for a in ref.entry.args]
    return {
        f"{name}.{axis}": stride
        for name, layout in zip(names, layouts, strict=True)
        for axis, stride in enumerate(layout.strides)
    }


def layout_text(ref: KernelRef, layouts: Sequence[Layout]) -> str:
    """What of the operands' layout a choice depends on: transposes, alignment, accumulation.

    ``nt-a4-acc0``: A as stored, B transposed, every row a multiple of 2^4 bytes, C overwritten.
    """
    contraction = ref.entry.contraction
    letters = ("t" if contraction.transposed_a else "n") + (
        "t" if contraction.transposed_b else "n"
    )
    align = 4  # finer differences than 16 bytes change no copy instruction
    for argument, layout in zip(ref.entry.args, layouts, strict=True):
        for stride in layout.strides:
            nbytes = stride * dtype_of(argument.type).itemsize
            while align and nbytes % (1 << align):
                align -= 1
    return f"{letters}-a{align}-acc{int(contraction.accumulate)}"
