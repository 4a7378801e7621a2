"""Warpgroup matrix instructions: 64 x n accumulators of four warps, operands in workgroup memory.

PTX ISA, section "asynchronous warpgroup level matrix instructions". Operands lie there in the
128-byte swizzle: rows of 128 bytes, groups of eight rows 1024 bytes apart. An operand whose
contiguous axis is k (K-major) advances 32 bytes an instruction; one that is contiguous along m or n
lies in slabs of 64 elements, and advances by its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .ptx_text import PtxText, Word, struct_type
from .tensor_map import ROW_BYTES

ROWS = 64  # of C a warpgroup
GROUP_BYTES = 1024  # eight rows
BLOCK_BYTES = ROWS * ROW_BYTES  # of A, whichever axis is contiguous: k spans 128 bytes, or 64 rows
STEP_BYTES = 32  # of k an instruction, of every type
THREADS = 128

_TYPES = {
    "f16": ("f32", "f16"),
    "bf16": ("f32", "bf16"),
    "f8e4m3": ("f32", "e4m3"),
    "f8e5m2": ("f32", "e5m2"),
    "i8": ("s32", "s8"),
    "u8": ("s32", "u8"),
}


@dataclass(frozen=True, kw_only=True)
class OperandTile:
    """One staged operand: ``k`` elements along k, rows or slabs of 128 bytes.

    ``major_k`` says that k is its contiguous axis. Only 16-bit types may have the other one.
    """

    k: int
    major_k: bool

    @property
    def step(self) -> int:
        """Distance of one instruction along k, in units of 16 bytes."""
        return (STEP_BYTES if self.major_k else STEP_BYTES // 2 * ROW_BYTES) // 16

    def descriptor(self, ir: PtxText, address: Word) -> str:
        """The matrix descriptor of the tile at that workgroup address, an i64."""
        slab = 16 if self.major_k else self.k * ROW_BYTES  # unused along a swizzled k
        high = (slab // 16) << 16 | (GROUP_BYTES // 16) << 32 | 1 << 62
        low = ir.wide(ir.and_w(ir.shr_w(address, 4), 0x3FFF))
        return ir.value(f"arith.ori {low}, {ir.constant(high, 'i64')} : i64", "descriptor")


@dataclass(frozen=True, kw_only=True)
class Wgmma:
    """The product of one staged tile pair: C[64 * blocks, n] += A[64 * blocks, k] * B[k, n]."""

    n: int
    blocks: int
    type_a: str
    type_b: str
    a: OperandTile
    b: OperandTile

    @property
    def registers(self) -> int:
        """32-bit accumulators of one thread."""
        return self.blocks * self.n // 2

    @property
    def scalar(self) -> str:
        """MLIR type of one accumulator."""
        return "f32" if _TYPES[self.type_a][0] == "f32" else "i32"

    @property
    def struct(self) -> str:
        """MLIR type of all of a thread's accumulators."""
        return struct_type(self.scalar, self.registers)

    @property
    def steps(self) -> int:
        """Instructions along k."""
        return self.a.k // self.instruction_k

    @property
    def instruction_k(self) -> int:
        """Elements of k an instruction."""
        return 16 if self.type_a in ("f16", "bf16") else 32

    @property
    def instruction(self) -> str:
        """The mnemonic."""
        accumulator, a = _TYPES[self.type_a]
        b = _TYPES[self.type_b][1]
        shape = f"m{ROWS}n{self.n}k{self.instruction_k}"
        return f"wgmma.mma_async.sync.aligned.{shape}.{accumulator}.{a}.{b}"

    def multiply(self, ir: PtxText, values: Sequence[str], a: str, b: str, keep: Word) -> str:
        """Issue all steps of one tile pair; ``keep`` 0 starts from zero instead of ``values``.

        ``a`` and ``b`` are descriptors. The accumulators are one struct, in flight until
        :meth:`wait`. All steps stand in one piece of PTX, so that the assembler keeps the
        accumulators in place and serialises nothing.
        """
        count = self.registers
        per = count // self.blocks
        text = (
            f"{{ .reg .b64 da, db; .reg .pred keep; setp.ne.b32 keep, ${count + 2}, 0; "
            "wgmma.fence.sync.aligned; "
        )
        for step in range(self.steps):
            text += f"add.s64 db, ${count + 1}, {step * self.b.step}; "
            scale = "keep" if step == 0 else "1"
            for block in range(self.blocks):
                offset = step * self.a.step + block * BLOCK_BYTES // 16
                names = ", ".join(f"${i}" for i in range(block * per, (block + 1) * per))
                text += f"add.s64 da, ${count}, {offset}; "
                text += f"{self.instruction} {{{names}}}, da, db, {scale}{self._modifiers}; "
        text += "wgmma.commit_group.sync.aligned; }"
        inputs = [(a, "i64"), (b, "i64"), (ir.word(keep), "i32")]
        return ir.asm_in_place(text, self.struct, values, inputs)

    @property
    def _modifiers(self) -> str:
        """Signs of A and B for floats, and transposition for 16-bit types."""
        if self.scalar != "f32":
            return ""
        if self.instruction_k != 16:
            return ", 1, 1"
        return f", 1, 1, {int(not self.a.major_k)}, {int(not self.b.major_k)}"

    def wait(self, ir: PtxText, struct: str, pending: int) -> str:
        """Until at most ``pending`` of the last products are in flight."""
        text = f"wgmma.wait_group.sync.aligned {pending};"
        return ir.asm_in_place(text, self.struct, self.values(ir, struct))

    def values(self, ir: PtxText, struct: str) -> list[str]:
        """A thread's accumulators, block by block: group j of 8 columns holds 4j to 4j+3.

        In a group, 2h + e is row ``lane // 4 + 8h`` of the warp's sixteen, column
        ``2 * (lane % 4) + e``.
        """
        return ir.fields(struct, self.struct, self.registers)
