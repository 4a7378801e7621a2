"""The CUDA native bodies of sm_80 and newer: ``mma.sync`` fed by ``ldmatrix`` and ``cp.async``.

A workgroup of waves_m x waves_n waves computes an m x n tile of C. Tiles of A and B travel through
a ring of stages in workgroup memory, in their own type and in the order in which they are stored,
swizzled so that neither copies nor matrix loads meet in a bank (seed section 1; PTX ISA, sections
9.7.9.25, 9.7.14). Three widths of copies, because ``cp.async`` takes aligned addresses only; block
formats come through registers, whatever the width of the other operand's copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dialects.block_formats import block_format
from dialects.manifest import Footprint, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Operand, OperandGroup, Tier
from dialects.types import element_type

from ..instructions import native_instruction
from ..target import Target
from .body import Emitted, contraction_group, refused_types
from .gemm_launch import gemm_executable, gemm_host, gemm_launch, gemm_layout
from .kernel_text import MAX_UNROLLED
from .mma_blocks import BlockCopy
from .mma_epilogue import STORED_BYTES
from .mma_kernel import MmaKernel
from .mma_shape import CHUNK, MMA_TYPES, WAVE, MmaShape, staged_rows
from .operand_source import DECODED
from .overlap import PTX_VERSION as PTX_OVERLAP
from .overlap import can_overlap
from .staged_gemm import copied_alignment

MOST_THREADS = 1024
HELD = 224  # sums, fragments, blocks of a lane: the rest of 255 registers is for addresses
# PTX ISA, release notes: mma.m16n8k16, cp.async and ldmatrix; mma with e4m3 and e5m2
PTX, PTX_F8 = (7, 0), (8, 4)


@dataclass(frozen=True, kw_only=True)
class MmaSyncBody:
    """Copies of 16 bytes: rows of A and B start on multiples of 16 bytes."""

    name: ClassVar[str] = "mma_sync"
    copy_bytes: ClassVar[int] = CHUNK
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("cuda",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs waves and stages, an instruction for the types, and whole instructions a wave."""
        c = contraction
        instruction = native_instruction(target, c.a.type, c.b.type, c.accumulator)
        if c.a.type not in MMA_TYPES or instruction is None:
            return f"{self.name}: {target.name} has no mma.sync for {c.signature}"
        if not tile.waves_m or not tile.waves_n or tile.stages < 2:
            return f"{self.name} needs waves_m, waves_n, and stages of at least 2"
        if element_type(c.c.type).bytes not in STORED_BYTES:
            return f"{self.name} stores no {c.c.type} ('{c.c.name}')"
        plain = replace(c, a=replace(c.a, type="f16"), b=replace(c.b, type="f16"))
        refused = refused_types(plain, self.name, DECODED)  # 8-bit floats are multiplied, no more
        return refused or self._cut_refusal(c, tile)

    def _cut_refusal(self, contraction: Contraction, tile: Tile) -> str | None:
        """Why the tile cannot be cut, or None when it can."""
        shape = self._shape(contraction, tile)
        if shape.threads > MOST_THREADS:
            return f"{self.name}: {shape.threads} threads > {MOST_THREADS} of a workgroup"
        if tile.m % (16 * tile.waves_m) or tile.n % (16 * tile.waves_n):
            waves = f"{tile.waves_m}x{tile.waves_n} waves"
            return f"{self.name}: {waves} do not cut {tile.m}x{tile.n} into parts of 16x16"
        if tile.k % shape.depth:
            return f"{self.name}: k = {tile.k} is no multiple of {shape.depth}, the instruction's"
        held = shape.held + _held_blocks(contraction, shape)
        if held > HELD:
            return f"{self.name}: a lane would hold {held} > {HELD} sums, fragments and blocks"
        return self._copy_refusal(contraction, shape)

    def _copy_refusal(self, contraction: Contraction, shape: MmaShape) -> str | None:
        """Why the tile cannot be copied, or None when it can."""
        copied = 0
        for operand in (contraction.a, contraction.b):
            staged = staged_rows(contraction, operand, shape)
            refusal = staged.refusal() or _block_refusal(operand, staged.row_bytes // shape.bytes)
            if refusal is not None:
                return f"{self.name}: {refusal} ('{operand.name}')"
            if shape.threads % staged.chunks:
                rows = f"rows of {staged.row_bytes} B ('{operand.name}')"
                return f"{self.name}: {shape.threads} lanes do not copy whole {rows}"
            copied += staged.passes(shape.threads) * (CHUNK // (self.copy_bytes or shape.bytes))
        copied *= shape.tile.stages
        if copied > MAX_UNROLLED:
            return f"{self.name}: each lane would issue {copied} > {MAX_UNROLLED} copies"
        return None

    def _shape(self, contraction: Contraction, tile: Tile) -> MmaShape:
        return MmaShape(tile=tile, type=contraction.a.type, copy_bytes=self.copy_bytes)

    def _ptx_version(self, contraction: Contraction, *, overlaps: bool) -> tuple[int, int]:
        if contraction.a.type.startswith("f8"):
            return PTX_F8
        return PTX_OVERLAP if overlaps else PTX

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        shape = self._shape(contraction, tile)
        layout = gemm_layout(contraction)
        block = (shape.threads, 1, 1)
        overlaps = can_overlap(target)
        body = MmaKernel(contraction, shape, layout, overlaps=overlaps)
        code = gemm_executable(
            contraction,
            tile,
            layout=layout,
            block=block,
            body=body.text(),
            wave=WAVE,
            attributes=", nvvm.minctasm = 1 : i32",
            linear=True,
        )
        staged = sum(
            staged_rows(contraction, o, shape).bytes for o in (contraction.a, contraction.b)
        )
        shared = tile.stages * staged
        return Emitted(
            text=code + gemm_host(kernel, contraction),
            launch=replace(
                gemm_launch(contraction, tile, block, shared, linear=True), overlaps=overlaps
            ),
            workspace=None,
            prepared=None,
            needs=Needs(
                wave_width=WAVE,
                alignment=copied_alignment(contraction, self.copy_bytes // shape.bytes or 1),
            ),
            footprint=Footprint(
                static_shared_bytes=0,
                dynamic_shared_bytes=shared,
                threads_per_group=shape.threads,
                wave_width=WAVE,
            ),
            groups=(_group(contraction, shape),),
            aligned=dict(body.aligned),
            ptx_version=self._ptx_version(contraction, overlaps=overlaps),
        )


@dataclass(frozen=True, kw_only=True)
class MmaSyncWordsBody(MmaSyncBody):
    """Copies of 4 bytes, for rows that are aligned to no more."""

    name: ClassVar[str] = "mma_sync_words"
    copy_bytes: ClassVar[int] = 4

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Built of members with two stages alone, so that deeper ones are not built twice."""
        return _two_stages(self.name, tile) or super().refusal(contraction, tile, target)


@dataclass(frozen=True, kw_only=True)
class MmaSyncNarrowBody(MmaSyncBody):
    """The same copied element by element through registers, for rows of any alignment."""

    name: ClassVar[str] = "mma_sync_narrow"
    copy_bytes: ClassVar[int] = 0

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """A tile waits in registers for one of two stages."""
        return _two_stages(self.name, tile) or super().refusal(contraction, tile, target)


def _two_stages(name: str, tile: Tile) -> str | None:
    if tile.stages in (0, 2):
        return None
    return f"{name} has 2 stages, not {tile.stages}"


def _held_blocks(contraction: Contraction, shape: MmaShape) -> int:
    """Registers of a lane for blocks on their way, each with its address."""
    blocks = [o for o in (contraction.a, contraction.b) if o.source is not None]
    lanes = shape.threads * BlockCopy.span
    passes = sum(staged_rows(contraction, o, shape).passes(lanes) for o in blocks)
    return passes * (BlockCopy.held + 2)


def _block_refusal(operand: Operand, elements: int) -> str | None:
    """Why staged rows of so many elements cannot be decoded from blocks, or None."""
    if operand.source is None:
        return None
    if operand.type != "f16":
        return f"{operand.source} is decoded to f16, not {operand.type}"
    whole = block_format(operand.source).elements
    if elements % whole:
        return f"staged rows of {elements} elements are no whole {operand.source} blocks of {whole}"
    return None


def _group(contraction: Contraction, shape: MmaShape) -> OperandGroup:
    """Narrow float accumulators are summed in f32, so the instruction is the one for f32."""
    wide = shape.accumulator != contraction.accumulator
    rounded = f", rounded to {contraction.accumulator} once" if wide else ""
    return contraction_group(
        contraction,
        f"the target lists {shape.name}{rounded}",
        instruction=shape.name,
        shape=(16, 8, shape.depth),
    )
