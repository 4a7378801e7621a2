"""What a kernel is passed: buffers, sizes and strides, in one order for every body and launcher.

Sizes come first in the kernel's ``dims`` order, then the strides of each operand of rank two or
more, outermost first; the innermost stride is always 1. All are i32 dispatch constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dialects.block_formats import block_format
from dialects.manifest import SPLITS
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .kernel_text import Index, KernelText

STORAGE = "#hal.descriptor_type<storage_buffer>"
SHARED = "#gpu.address_space<workgroup>"


def constant_names(contraction: Contraction, *, split: bool = False) -> tuple[str, ...]:
    """Names of the i32 constants in launch order; a ``split`` launch has the number of slices."""
    strides = (s for o in contraction.operands for s in o.strides)
    return (*contraction.dims, *strides, *((SPLITS,) if split else ()))


def storage_type(type_name: str) -> str:
    """The MLIR type of one stored element."""
    return element_type(type_name).mlir


def layout_text(constants: int, reads: int, writes: int = 1) -> str:
    """A pipeline layout of read-only bindings followed by written ones."""
    bindings = ["#hal.pipeline.binding<storage_buffer, ReadOnly>"] * reads
    bindings += ["#hal.pipeline.binding<storage_buffer>"] * writes
    return f"#hal.pipeline.layout<constants = {constants}, bindings = [{', '.join(bindings)}]>"


@dataclass(frozen=True, kw_only=True)
class KernelValues:
    """The constants of one kernel as index values, by name."""

    values: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def offset(self, ir: KernelText, operand: Operand, indices: Sequence[Index]) -> Index:
        """The offset of ``operand[indices]`` in stored elements; the last index counts those."""
        position: Index = indices[-1]
        for stride, index in zip(operand.strides, indices, strict=False):
            position = ir.add(ir.mul(index, self.values[stride]), position)
        return position

    def extent(self, ir: KernelText, operand: Operand) -> Index:
        """Stored elements of one row: as many as its size says, or the bytes of whole blocks."""
        size = self.values[operand.dims[-1]]
        if operand.source is None:
            return size
        blocks = block_format(operand.source)
        return ir.mul(ir.ceildiv(size, blocks.elements), blocks.bytes)

    def span(self, ir: KernelText, operand: Operand) -> Index:
        """Stored elements from the first to the last one of the operand, at least 1.

        A size of zero gives 1: an empty binding is refused by some drivers, and nothing of it is
        read.
        """
        last = self.extent(ir, operand)
        for stride, dim in zip(operand.strides, operand.dims, strict=False):
            before = ir.sub(ir.greatest(self.values[dim], 1), 1)
            last = ir.add(ir.mul(before, self.values[stride]), last)
        return ir.greatest(last, 1)


def load_constants(ir: KernelText, names: Sequence[str], layout: str) -> KernelValues:
    """Read the dispatch constants of a kernel."""
    values = {}
    for ordinal, name in enumerate(names):
        raw = ir.value(f"hal.interface.constant.load layout({layout}) ordinal({ordinal}) : i32")
        values[name] = ir.value(f"arith.index_castui {raw} : i32 to index", name.replace(".", "_"))
    return KernelValues(values=values)


def bind_buffer(
    ir: KernelText,
    *,
    layout: str,
    binding: int,
    type_name: str,
    count: Index,
    read_only: bool,
    unit: tuple[str, int] | None = None,
) -> str:
    """A flat view of one binding, by elements or by ``unit``: an MLIR type and its bytes.

    Callers own the buffers and may pass a window of one, so only the element's alignment holds.
    """
    flags = "flags(ReadOnly) " if read_only else ""
    element = element_type(type_name)
    mlir, nbytes = unit or (element.mlir, element.bytes)
    return ir.value(
        f"hal.interface.binding.subspan layout({layout}) binding({binding}) "
        f"alignment({nbytes}) offset({ir.index(0)}) {flags}"
        f": memref<?x{mlir}, {STORAGE}>{{{ir.index(count)}}}",
        "buf",
    )


def bind_operands(
    ir: KernelText, contraction: Contraction, values: KernelValues, layout: str, *, first: int = 0
) -> dict[str, str]:
    """Flat views of the operands by name, from binding ``first`` on; only C is written."""
    return {
        operand.name: bind_buffer(
            ir,
            layout=layout,
            binding=binding,
            type_name=operand.stored_type,
            count=values.span(ir, operand),
            read_only=operand is not contraction.c,
        )
        for binding, operand in enumerate(contraction.operands)
        if binding >= first
    }
