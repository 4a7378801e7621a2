"""One operand of the software tile in workgroup memory, written and read without bank conflicts."""

from __future__ import annotations

from dialects.types import element_type

from .epilogue import shaped
from .interface import SHARED
from .kernel_text import Index, KernelText
from .operand_source import OperandSource, Staging

BUFFERS = 2
GROUP_BYTES = 16  # one load from workgroup memory
BANKS = 32  # of 4 bytes, on every GPU so far; any number would be right
GRANULE = 4  # elements that a swizzle keeps together, so that groups stay whole


def array_elements(depth: int, width: int, nbytes: int) -> int:
    """Elements of an operand's array, whole groups, so that the next array starts aligned too."""
    group = max(1, GROUP_BYTES // nbytes)
    return -(-BUFFERS * depth * width // group) * group


class StagedOperand:
    """One operand in workgroup memory: [buffer][k][width], columns swizzled by k.

    An operand that is contiguous along K is written down a column by each lane. The columns of a
    row are exchanged in granules, by an exclusive or with a number that differs for the runs of K
    that one wave writes at a time, so that these hit different banks.
    """

    def __init__(
        self, ir: KernelText, staging: Staging, source: OperandSource, k: str, *, vectors: bool
    ) -> None:
        """``vectors`` False is for SPIR-V, which has no pointer to neighbours in an array."""
        self.ir, self.staging, self.source, self.vectors = ir, staging, source, vectors
        self.k_inner = staging.operand.dims[-1] == k
        self.width = staging.outer if self.k_inner else staging.extent
        self.depth = staging.extent if self.k_inner else staging.outer

    def allocate(self, type_name: str) -> None:
        """The array itself; ``type_name`` is the compute type."""
        element = element_type(type_name)
        self.mlir, self.bytes = element.mlir, element.bytes
        count = array_elements(self.depth, self.width, self.bytes)
        self.kind = f"memref<{count}x{self.mlir}, {SHARED}>"
        self.name = self.ir.value(f"memref.alloc() : {self.kind}", "shared")

    def group(self, thread: int) -> int:
        """Elements of a lane's tile that lie side by side."""
        most = GROUP_BYTES // self.bytes
        return next(g for g in (4, 2, 1) if g <= most and thread % g == 0)

    def column(self, k: Index, column: Index) -> Index:
        """Where a column of row ``k`` is: granules of a power-of-two part of the row exchanged."""
        ir, run = self.ir, self.source.run
        if not self.k_inner or self.width % BANKS:
            return column
        step = max(GRANULE, BANKS * run // self.depth)
        step = 1 << (step.bit_length() - 1)
        turn = ir.rem(ir.div(k, run), max(1, BANKS // step))
        return ir.xor(column, ir.mul(turn, step))

    def place(self, k: Index, column: Index, buffer: Index) -> str:
        """The index of an element."""
        ir = self.ir
        row = ir.mul(ir.add(ir.mul(buffer, self.depth), k), self.width)
        return ir.index(ir.add(row, column))

    def load(self, k: Index, column: Index, buffer: Index, count: int) -> list[str]:
        """``count`` neighbours, which the swizzle keeps together."""
        ir = self.ir
        first = self.column(k, column)
        if count == 1 or not self.vectors:
            places = [self.place(k, ir.add(first, i), buffer) for i in range(count)]
            return [ir.value(f"memref.load {self.name}[{at}] : {self.kind}") for at in places]
        at = self.place(k, first, buffer)
        type_ = shaped(self.mlir, count)
        # as a property, which the short form of the op cannot say: a load of fewer bytes otherwise
        value = ir.value(
            f'"vector.load"({self.name}, {at}) <{{alignment = {count * self.bytes} : i64}}>'
            f" : ({self.kind}, index) -> {type_}"
        )
        return [
            ir.value(f"vector.extract {value}[{i}] : {self.mlir} from {type_}")
            for i in range(count)
        ]

    def store(self, k: Index, column: Index, buffer: Index, values: list[str]) -> None:
        """One run, from (k, column) on along the operand's contiguous axis."""
        ir = self.ir
        if self.k_inner:
            place = self.column(k, column)
            for i, value in enumerate(values):
                at = self.place(ir.add(k, i), place, buffer)
                ir.emit(f"memref.store {value}, {self.name}[{at}] : {self.kind}")
            return
        group = self.group(len(values)) if self.vectors else 1
        type_ = shaped(self.mlir, group)
        for first in range(0, len(values), group):
            at = self.place(k, ir.add(column, first), buffer)
            if group == 1:
                ir.emit(f"memref.store {values[first]}, {self.name}[{at}] : {self.kind}")
                continue
            parts = ", ".join(values[first : first + group])
            value = ir.value(f"vector.from_elements {parts} : {type_}")
            ir.emit(
                f'"vector.store"({value}, {self.name}, {at})'
                f" <{{alignment = {group * self.bytes} : i64}}>"
                f" : ({type_}, {self.kind}, index) -> ()"
            )
