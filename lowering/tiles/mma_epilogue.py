"""From a wave's sums to C: old values, the epilogue, and stores of two neighbours at a time.

Nothing branches on a lane's own position: values outside are computed at clamped addresses, and
dropped by the predicates of the stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import add, apply_epilogue, convert
from .interface import STORAGE, KernelValues, storage_type
from .mma_shape import MmaShape
from .ptx_text import PtxText, Word

STORED_BYTES = (1, 2, 4)  # sizes of an element that the stores have


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A lane's first row and column in C, and how its sums lie from there.

    ``paired_rows`` and ``paired_columns`` say that the operand's fragments were numbered by even
    and odd (see :mod:`.mma_fragments`).
    """

    row: Word
    column: Word
    paired_rows: bool
    paired_columns: bool


def lane_placement(
    ir: PtxText, lane: Word, row: Word, column: Word, *, paired_rows: bool, paired_columns: bool
) -> Placement:
    """The placement of a lane of the wave whose part of C starts at (row, column).

    A 16 x 8 block of sums gives lane 4p + q columns 2q and 2q + 1 of rows p and p + 8 (PTX ISA,
    section 9.7.14, accumulator fragments).
    """
    down, across = ir.shr_w(lane, 2), ir.and_w(lane, 3)
    return Placement(
        row=ir.add_w(row, ir.mul_w(down, 2 if paired_rows else 1)),
        column=ir.add_w(column, ir.mul_w(across, 4 if paired_columns else 2)),
        paired_rows=paired_rows,
        paired_columns=paired_columns,
    )


class PairStore:
    """Stores what a lane holds, row by row."""

    def __init__(
        self,
        ir: PtxText,
        contraction: Contraction,
        shape: MmaShape,
        values: KernelValues,
        buffers: Mapping[str, str],
        *,
        place: Placement,
        address: str,
        stride: str,
        batch: str,
    ) -> None:
        """``address`` is C's first element in this batch, ``stride`` that of a row in bytes."""
        self.ir, self.contraction, self.shape = ir, contraction, shape
        self.values, self.buffers, self.place, self.batch = values, buffers, place, batch
        self.stride = stride
        self.m, self.n = (ir.from_index(values[d]) for d in (contraction.m, contraction.n))
        self.bytes = element_type(contraction.c.type).bytes
        across = ir.long("muli", ir.wide(place.column), self.bytes)
        down = ir.long("muli", ir.wide(place.row), stride)
        self.first = ir.long("addi", address, ir.long("addi", down, across))
        self.rows_left = ir.sub_w(self.m, place.row)
        self.columns_left = ir.sub_w(self.n, place.column)
        odd = ir.long("andi", ir.long("ori", address, stride), 2 * self.bytes - 1)
        zero = ir.constant(0, "i64")
        self.odd = ir.select_w(ir.value(f"arith.cmpi ne, {odd}, {zero} : i64", "p"), 1, 0)
        self._loaded: dict[tuple[str, Word, Word], str] = {}

    def store(self, sums: list[str]) -> None:
        """All sums: old values and operands of one row are read before any of it is written."""
        columns = self.shape.wave_n // 8
        for i in range(self.shape.wave_m // 16):
            for half in range(2):
                row = 16 * i + (half if self.place.paired_rows else 8 * half)
                cells = self._cells(sums[4 * i * columns : 4 * (i + 1) * columns], half)
                done = [
                    (column, [self._value(v, row, column + e) for e, v in enumerate(pair)])
                    for column, pair in cells
                ]
                address = self._row_address(row)
                for column, pair in done:
                    self._pair(address, row, column, pair)

    def _cells(self, sums: list[str], half: int) -> list[tuple[int, tuple[str, str]]]:
        """(column, values at it and the next) of one row of blocks."""
        blocks = [sums[j + 2 * half : j + 2 * half + 2] for j in range(0, len(sums), 4)]
        if not self.place.paired_columns:
            return [(8 * j, (pair[0], pair[1])) for j, pair in enumerate(blocks)]
        return [
            (8 * j + 2 * e, (blocks[j][e], blocks[j + 1][e]))
            for j in range(0, len(blocks), 2)
            for e in range(2)
        ]

    def _row_address(self, row: int) -> str:
        return self.ir.long("addi", self.first, self.ir.long("muli", self.stride, row))

    def _value(self, value: str, row: int, column: int) -> str:
        c, current = self.contraction, self._type

        def load(operand: Operand, wanted: str) -> str:
            return self._load(operand, wanted, row, column)

        if c.accumulate:
            value = add(self.ir, load(c.c, current), value, current)
        return apply_epilogue(self.ir, c, value, lanes=0, load=load, current=current)

    @property
    def _type(self) -> str:
        return self.shape.accumulator

    def _load(self, operand: Operand, wanted: str, row: int, column: int) -> str:
        """One element, the nearest one inside where (row, column) lies outside."""
        ir, c = self.ir, self.contraction
        key_row, key_column = (
            at if dim in operand.dims else -1 for at, dim in ((row, c.m), (column, c.n))
        )
        key = (f"{operand.name} {wanted}", key_row, key_column)
        if key not in self._loaded:
            where = {
                c.m: self._inside(self.place.row, row, self.m),
                c.n: self._inside(self.place.column, column, self.n),
                **({c.batch: self.batch} if c.batch else {}),
            }
            at = ir.index(self.values.offset(ir, operand, [where[d] for d in operand.dims]))
            kind = f"memref<?x{storage_type(operand.type)}, {STORAGE}>"
            raw = ir.value(f"memref.load {self.buffers[operand.name]}[{at}] : {kind}")
            self._loaded[key] = convert(ir, raw, operand.type, wanted)
        return self._loaded[key]

    def _inside(self, first: Word, offset: int, size: str) -> str:
        ir = self.ir
        return ir.to_index(ir.least_w(ir.add_w(first, offset), ir.sub_w(size, 1)))

    def _pair(self, address: str, row: int, column: int, pair: list[str]) -> None:
        """One store of both where C allows it, otherwise one each; none of what is outside."""
        at = column * self.bytes
        bits = 8 * self.bytes
        registers = {1: "h", 2: "h", 4: "r"}[self.bytes]
        kind = {"h": "i16", "r": "i32"}[registers]
        both = {
            1: "shl.b16 t, $5, 8; or.b16 t, t, $4; @v st.global.b16 [$0+{at}], t; ",
            2: "mov.b32 t, {{$4, $5}}; @v st.global.b32 [$0+{at}], t; ",
            4: "@v st.global.v2.b32 [$0+{at}], {{$4, $5}}; ",
        }[self.bytes].format(at=at)
        wide = {1: ".reg .b16 t; ", 2: ".reg .b32 t; ", 4: ""}[self.bytes]
        text = (
            f"{{ .reg .pred p, q, v; {wide}setp.gt.s32 p, $1, {row}; "
            f"setp.gt.and.s32 q, $2, {column + 1}, p; setp.gt.and.s32 p, $2, {column}, p; "
            f"setp.eq.and.s32 v, $3, 0, q; {both}not.pred v, v; and.pred p, p, v; "
            f"and.pred q, q, v; @p st.global.b{bits} [$0+{at}], $4; "
            f"@q st.global.b{bits} [$0+{at + self.bytes}], $5; }}"
        )
        operands = [(address, "i64"), (self.ir.word(self.rows_left), "i32")]
        operands += [(self.ir.word(self.columns_left), "i32"), (self.odd, "i32")]
        self.ir.asm(text, [*operands, *((self._bits(v), kind) for v in pair)])

    def _bits(self, value: str) -> str:
        """A stored value as the integer whose register it travels in."""
        ir, mlir = self.ir, storage_type(self.contraction.c.type)
        bits = 8 * self.bytes
        if not mlir.startswith("i"):
            value = ir.value(f"arith.bitcast {value} : {mlir} to i{bits}")
        return ir.value(f"arith.extui {value} : i8 to i16") if bits == 8 else value
