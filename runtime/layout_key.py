"""What of the operands' layouts a choice depends on."""

from __future__ import annotations

from collections.abc import Sequence

from .arrays import Layout
from .dtypes import dtype_of
from .family import KernelRef


def strides_by_name(ref: KernelRef, layouts: Sequence[Layout]) -> dict[str, int]:
    """The outer strides of operands by name, and where one starts that is off a 16-byte boundary.

    As :class:`dialects.site.Site` takes them.
    """
    names = [a.name for a in ref.entry.args]
    strides = {
        f"{name}.{axis}": stride
        for name, layout in zip(names, layouts, strict=True)
        for axis, stride in enumerate(layout.strides)
    }
    starts = {n: at.offset for n, at in zip(names, layouts, strict=True) if at.offset}
    return strides | starts


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
        item = dtype_of(argument.type).itemsize
        for nbytes in (layout.offset, *(stride * item for stride in layout.strides)):
            while align and nbytes % (1 << align):
                align -= 1
    return f"{letters}-a{align}-acc{int(contraction.accumulate)}"
