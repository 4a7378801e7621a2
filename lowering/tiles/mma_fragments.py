"""Fragments of ``mma.sync`` from workgroup memory by ``ldmatrix``, whichever way A and B lie there.

A register of a fragment holds four bytes along K of one row of A or column of B, bytes 4q to 4q+3
of lane q of four (PTX ISA, section 9.7.14, fragments of m16n8k16 and m16n8k32). Rows along K are
loaded as they are. Rows along M or N are transposed by ``ldmatrix.trans`` where elements have 16
bits. Bytes it moves in pairs: two matrices with rows 0, 1, 4, 5, ... and 2, 3, 6, 7, ... of K hold
the four bytes of two neighbouring columns, and ``prmt`` takes them apart. Rows of A, or columns of
B, are then numbered in that order: even ones in the first half of the instruction, odd ones in the
other, which :class:`.mma_epilogue` undoes.
"""

from __future__ import annotations

from .mma_shape import MMA_M, MmaShape, StagedRows
from .ptx_text import PtxText, Word

_EVEN, _ODD = "0x6420", "0x7531"  # bytes of two registers that prmt takes


class Fragments:
    """Loads one operand's fragments of a wave, 16 rows of A or 16 columns of B at a time."""

    def __init__(
        self,
        ir: PtxText,
        shape: MmaShape,
        staged: StagedRows,
        *,
        is_a: bool,
        wave0: Word,
        lane: Word,
    ) -> None:
        """``wave0`` is the wave's first row of A or column of B within the tile."""
        self.ir, self.shape, self.staged, self.is_a = ir, shape, staged, is_a
        extent = shape.wave_m if is_a else shape.wave_n
        self.count = extent // MMA_M
        row, chunk = self._lane_place(lane)
        if staged.k_inner:
            self._varies = shape.steps
            row = ir.add_w(wave0, row)
            self._fixed = MMA_M * staged.row_bytes  # from one 16 rows to the next
            chunks = [ir.add_w(chunk, 2 * step) for step in range(shape.steps)]
        else:
            self._varies = self.count
            self._fixed = shape.depth * staged.row_bytes  # from one step to the next
            first = ir.div_w(wave0, shape.per)
            wide = MMA_M // shape.per
            chunks = [ir.add_w(first, ir.add_w(chunk, wide * i)) for i in range(self.count)]
        self._offsets = [staged.place(ir, row, c) for c in chunks]

    def _lane_place(self, lane: Word) -> tuple[Word, Word]:
        """(row, chunk) whose address a lane gives: lanes 8t to 8t+7 give the rows of matrix t."""
        ir = self.ir
        low, first, second = ir.and_w(lane, 7), ir.bit_w(lane, 3), ir.bit_w(lane, 4)
        if self.staged.paired:
            row = ir.add_w(ir.mul_w(ir.shr_w(low, 1), 4), ir.and_w(low, 1))
            row = ir.add_w(row, ir.mul_w(first, 2))
            return ir.add_w(row, ir.mul_w(second, 16)), 0
        if self.is_a == self.staged.k_inner:  # matrices go down the rows first
            return ir.add_w(low, ir.mul_w(first, 8)), second
        return ir.add_w(low, ir.mul_w(second, 8)), first

    def load(self, slot: Word, step: int) -> list[list[str]]:
        """Four registers for each 16 rows of A, or for each 16 columns of B, at one step of K.

        Of B the first two are of the first eight columns. ``slot`` is the address of the operand's
        part of a stage.
        """
        loaded = []
        for index in range(self.count):
            varying, fixed = (step, index) if self.staged.k_inner else (index, step)
            where = self.ir.word(self.ir.add_w(slot, self._offsets[varying]))
            loaded.append(self._quad(where, fixed * self._fixed))
        return loaded

    def _quad(self, where: str, offset: int) -> list[str]:
        ir = self.ir
        flipped = "" if self.staged.k_inner else ".trans"
        words = ir.asm_values(
            f"ldmatrix.sync.aligned.m8n8.x4{flipped}.shared.b16 {{$0, $1, $2, $3}}, [$4+{offset}];",
            ["i32"] * 4,
            [(where, "i32")],
        )
        if not self.staged.paired:
            return words
        parts = [
            [self._permute(words[h], words[h + 1], select) for select in (_EVEN, _ODD)]
            for h in (0, 2)
        ]
        (low_even, low_odd), (high_even, high_odd) = parts
        if self.is_a:  # the order of A is rows first, that of B is K first
            return [low_even, low_odd, high_even, high_odd]
        return [low_even, high_even, low_odd, high_odd]

    def _permute(self, low: str, high: str, select: str) -> str:
        text = f"prmt.b32 $0, $1, $2, {select};"
        return self.ir.asm(text, [(low, "i32"), (high, "i32")], result="i32", pure=True)


class Multiplier:
    """Emits ``mma.sync`` over a wave's fragments."""

    def __init__(self, ir: PtxText, shape: MmaShape) -> None:
        self.ir, self.shape = ir, shape
        scalar = shape.accumulator
        self._struct = f"!llvm.struct<({', '.join([scalar] * 4)})>"

    def step(self, sums: list[str], a: list[list[str]], b: list[list[str]]) -> list[str]:
        """One step of K: ``sums`` holds four values for each 16 x 8 block, rows of blocks first."""
        columns = 2 * len(b)
        result = list(sums)
        for i, rows in enumerate(a):
            for j in range(columns):
                pair = b[j // 2][2 * (j % 2) : 2 * (j % 2) + 2]
                at = 4 * (i * columns + j)
                result[at : at + 4] = self.multiply(result[at : at + 4], rows, pair)
        return result

    def multiply(self, sums: list[str], a: list[str], b: list[str]) -> list[str]:
        text = (
            f"{self.shape.mnemonic} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, "
            "{$0, $1, $2, $3};"
        )
        made = self.ir.asm_in_place(text, self._struct, sums, [(w, "i32") for w in [*a, *b]])
        return self.ir.fields(made, self._struct, 4)
