"""How a tile is cut for ``mma.sync``: instructions, waves, and rows of workgroup memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .ptx_text import PtxText, Word

WAVE = 32
CHUNK = 16  # bytes that a lane copies at a time, and one row of a matrix of ldmatrix
MMA_M, MMA_N = 16, 8
# PTX ISA 8.4, section 9.7.14: (elements of K, A and B, accumulator) by stored type
_PTX = {
    "f16": (16, "f16", "f32"),
    "bf16": (16, "bf16", "f32"),
    "i8": (32, "s8", "s32"),
    "u8": (32, "u8", "s32"),
    "f8e4m3": (32, "e4m3", "f32"),
    "f8e5m2": (32, "e5m2", "f32"),
}
MMA_TYPES = tuple(_PTX)


@dataclass(frozen=True, kw_only=True)
class MmaShape:
    """A tile of one element type. ``copy_bytes`` is the width of a copy, 0 one element."""

    tile: Tile
    type: str
    copy_bytes: int

    @property
    def bytes(self) -> int:
        """Of one element of A and B."""
        return element_type(self.type).bytes

    @property
    def per(self) -> int:
        """Elements of a chunk."""
        return CHUNK // self.bytes

    @property
    def depth(self) -> int:
        """Elements of K of one instruction: 32 bytes."""
        return _PTX[self.type][0]

    @property
    def steps(self) -> int:
        """Instructions along K of a tile."""
        return self.tile.k // self.depth

    @property
    def threads(self) -> int:
        """Lanes of a workgroup."""
        return self.tile.waves_m * self.tile.waves_n * WAVE

    @property
    def wave_m(self) -> int:
        """Rows of a wave's part of the tile."""
        return self.tile.m // self.tile.waves_m

    @property
    def wave_n(self) -> int:
        """Columns of a wave's part of the tile."""
        return self.tile.n // self.tile.waves_n

    @property
    def held(self) -> int:
        """Registers of a lane for sums, and for fragments of this step of K and the next."""
        fragments = 4 * (self.wave_m + self.wave_n) // MMA_M
        return self.wave_m * self.wave_n // WAVE + 2 * fragments

    @property
    def accumulator(self) -> str:
        """The MLIR type of a sum."""
        return {"s32": "i32"}.get(_PTX[self.type][2], _PTX[self.type][2])

    @property
    def name(self) -> str:
        """The instruction as the table of instructions calls it."""
        return f"mma.sync.m{MMA_M}n{MMA_N}k{self.depth}.{self.accumulator}.{self.type}"

    @property
    def mnemonic(self) -> str:
        """The instruction in PTX."""
        depth, operand, total = _PTX[self.type]
        types = f"{total}.{operand}.{operand}.{total}"
        return f"mma.sync.aligned.m{MMA_M}n{MMA_N}k{depth}.row.col.{types}"


@dataclass(frozen=True, kw_only=True)
class StagedRows:
    """One operand's tile in workgroup memory: rows along its contiguous axis, in swizzled chunks.

    ``k_inner`` says that K is the contiguous axis. Where it is not, and elements are bytes,
    matrices take rows in ``paired`` order (see :mod:`.mma_fragments`), as the swizzle does.
    """

    rows: int
    row_bytes: int
    k_inner: bool
    paired: bool

    @property
    def bytes(self) -> int:
        """Of one stage."""
        return self.rows * self.row_bytes

    @property
    def chunks(self) -> int:
        """Chunks of a row."""
        return self.row_bytes // CHUNK

    @property
    def period(self) -> int:
        """Rows after which the swizzle repeats."""
        return 16 if self.paired else 8

    def refusal(self) -> str | None:
        """Why the swizzle does not serve rows of that length, or None when it does."""
        least = 64 if self.paired else 32
        if self.row_bytes % 128 and (self.row_bytes not in (32, 64) or self.row_bytes < least):
            lengths = "64" if self.paired else "32, 64"
            return f"staged rows of {self.row_bytes} B are not {lengths} or a multiple of 128 B"
        return None

    def swizzle(self, ir: PtxText, row: Word) -> Word:
        """What a row's chunk numbers are xored with.

        The eight rows of one matrix fall on eight different groups of four banks; a line of 128
        bytes holds one, two or four rows.
        """
        if self.paired:  # the rows are 0, 1, 4, 5, 8, 9, 12, 13, or those two further
            if self.row_bytes == 64:
                return ir.and_w(ir.shr_w(row, 2), 3)
            return ir.add_w(ir.and_w(row, 1), ir.and_w(ir.shr_w(row, 1), 6))
        shift, mask = {32: (2, 1), 64: (1, 3)}.get(self.row_bytes, (0, 7))
        return ir.and_w(ir.shr_w(row, shift), mask)

    def place(self, ir: PtxText, row: Word, chunk: Word) -> Word:
        """The byte offset of a chunk."""
        swizzled = ir.xor_w(chunk, self.swizzle(ir, row))
        return ir.add_w(ir.mul_w(row, self.row_bytes), ir.mul_w(swizzled, CHUNK))

    def passes(self, threads: int) -> int:
        """Chunks that a lane copies."""
        return -(-self.rows * self.chunks // threads)

    def phases(self, threads: int) -> list[int]:
        """Rows, relative to a lane's first, whose swizzles differ from pass to pass."""
        step = threads // self.chunks
        return [i * step for i in range(self.period // gcd(step, self.period))]


def staged_rows(contraction: Contraction, operand: Operand, shape: MmaShape) -> StagedRows:
    """How A or B lies in workgroup memory: in the order in which it is stored."""
    c, tile = contraction, shape.tile
    outer = tile.m if operand is c.a else tile.n
    k_inner = operand.dims[-1] == c.k
    rows, width = (outer, tile.k) if k_inner else (tile.k, outer)
    return StagedRows(
        rows=rows,
        row_bytes=width * shape.bytes,
        k_inner=k_inner,
        paired=shape.bytes == 1 and not k_inner,
    )
