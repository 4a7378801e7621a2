"""Where an operand lies in global memory: address in this batch, row stride; in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .interface import STORAGE, KernelValues, storage_type
from .ptx_text import PtxText


@dataclass(frozen=True, kw_only=True)
class GlobalOperand:
    """``address`` of the first element of this batch, ``stride`` from row to row; both i64.

    ``begin`` is the address of the first element of all.
    """

    address: str
    stride: str
    begin: str


def global_operand(
    ir: PtxText,
    contraction: Contraction,
    values: KernelValues,
    buffer: str,
    operand: Operand,
    batch: str,
) -> GlobalOperand:
    """``buffer`` is the operand's binding, ``batch`` the index of the batch."""
    nbytes = element_type(operand.stored_type).bytes
    kind = f"memref<?x{storage_type(operand.stored_type)}, {STORAGE}>"
    begin = address = ir.address_of(buffer, kind, "i64")

    def stride_bytes(axis: int) -> str:
        stride = ir.from_index(values[operand.strides[axis]])
        return ir.long("muli", ir.wide(stride), nbytes)

    if contraction.batch in operand.dims:
        position = ir.wide(ir.from_index(batch))
        address = ir.long("addi", address, ir.long("muli", position, stride_bytes(0)))
    return GlobalOperand(
        address=address, stride=stride_bytes(len(operand.strides) - 1), begin=begin
    )
