"""How every single-kernel GPU body stores one accumulated element."""

from __future__ import annotations

from collections.abc import Mapping

from dialects.operands import Contraction, Operand

from .epilogue import add, apply_epilogue, convert
from .interface import STORAGE, KernelValues, storage_type
from .kernel_text import Index, KernelText


def store_element(
    ir: KernelText,
    contraction: Contraction,
    value: str,
    values: KernelValues,
    buffers: Mapping[str, str],
    where: Mapping[str, Index],
    *,
    current: str,
) -> None:
    """Add C where the kernel accumulates, apply the epilogue, and store.

    ``where`` is the index along each size of C by name, ``current`` the type of the accumulator.
    """
    c = contraction.c

    def place(operand: Operand) -> str:
        at = ir.index(values.offset(ir, operand, [where[d] for d in operand.dims]))
        return f"{buffers[operand.name]}[{at}] : memref<?x{storage_type(operand.type)}, {STORAGE}>"

    def load(operand: Operand, wanted: str) -> str:
        raw = ir.value(f"memref.load {place(operand)}")
        return convert(ir, raw, operand.type, wanted)

    if contraction.accumulate:
        value = add(ir, load(c, current), value, current)
    value = apply_epilogue(ir, contraction, value, lanes=0, load=load, current=current)
    ir.emit(f"memref.store {value}, {place(c)}")
