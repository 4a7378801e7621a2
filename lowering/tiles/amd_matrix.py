"""What the bodies on AMD matrix instructions share: their choice, refusals and emission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.manifest import Footprint, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Tier

from ..instructions import Instruction, native_instructions
from ..target import Target
from .amd_fragments import fragment_of
from .amd_kernel import AmdKernel, amd_shared_bytes
from .body import Emitted, contraction_group, refused_types
from .gemm_launch import gemm_executable, gemm_host, gemm_launch, gemm_layout
from .operand_source import DECODED
from .staged_gemm import (
    WIDE_BYTES,
    MatrixShape,
    in_blocks,
    refused_blocks,
    staged_alignment,
    too_much_text,
)

MAX_THREADS = 1024  # of a workgroup, on every AMD GPU


@dataclass(frozen=True, kw_only=True)
class AmdMatrixBody:
    """Staged, double-buffered matrix instructions of one kind; ``wide`` copies 16 bytes."""

    name: ClassVar[str]
    kind: ClassVar[str]
    wave: ClassVar[int]
    wide: ClassVar[bool] = True
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("rocm",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs an instruction of the ISA for the types, and waves that split the tile into it."""
        if not self._listed(contraction, target):
            return f"{target.isa} has no {self.kind} for {contraction.signature}"
        if not tile.waves_m or not tile.waves_n:
            return f"{self.name} needs waves_m and waves_n"
        instruction = self._chosen(contraction, tile, target)
        if instruction is None:
            return f"no {self.kind} shape for {contraction.signature} divides the wave tile"
        if self.wave not in (target.facts.wave_widths or (self.wave,)):
            return f"{self.kind} takes a wave of {self.wave}, the device offers none"
        shape = self._shape(contraction, tile, instruction)
        if shape.threads > MAX_THREADS:
            return f"{shape.threads} lanes > {MAX_THREADS} of a workgroup"
        if amd_shared_bytes(shape) > target.shared_bytes:
            return (
                f"workgroup memory {amd_shared_bytes(shape)} B > {target.shared_bytes} B of "
                f"{target.name}"
            )
        if self.wide and (tile.m % shape.per or tile.n % shape.per or tile.k % shape.per):
            return f"copies of {WIDE_BYTES} bytes need a tile in multiples of {shape.per}"
        refused = too_much_text(shape) or refused_types(contraction, self.name, DECODED)
        return refused or refused_blocks(contraction, shape)

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        instruction = self._chosen(contraction, tile, target)
        assert instruction is not None
        shape = self._shape(contraction, tile, instruction)
        layout = gemm_layout(contraction)
        code = gemm_executable(
            contraction,
            tile,
            layout=layout,
            block=(shape.threads, 1, 1),
            body=AmdKernel(contraction, shape, layout, fragment_of(instruction)).text(),
            wave=self.wave,
        )
        return Emitted(
            text=code + gemm_host(kernel, contraction, in_words=in_blocks(contraction)),
            launch=gemm_launch(contraction, tile, (shape.threads, 1, 1)),
            workspace=None,
            prepared=None,
            needs=Needs(
                wave_width=self.wave,
                alignment=staged_alignment(contraction, shape),
            ),
            footprint=Footprint(
                static_shared_bytes=amd_shared_bytes(shape),
                threads_per_group=shape.threads,
                wave_width=self.wave,
            ),
            groups=(
                contraction_group(
                    contraction,
                    f"the target lists {instruction.name}",
                    instruction=instruction.name,
                    shape=instruction.shape,
                ),
            ),
        )

    def _listed(self, contraction: Contraction, target: Target) -> list[Instruction]:
        c = contraction
        found = native_instructions(target, (c.a.type, c.b.type, c.accumulator))
        return [i for i in found if i.name.startswith(self.kind)]

    def _chosen(self, contraction: Contraction, tile: Tile, target: Target) -> Instruction | None:
        """The largest instruction that divides the wave tile and k; None when none does."""
        if tile.m % tile.waves_m or tile.n % tile.waves_n:
            return None
        extents = (tile.m // tile.waves_m, tile.n // tile.waves_n, tile.k)
        fitting = [
            i
            for i in self._listed(contraction, target)
            if not any(e % s for e, s in zip(extents, i.shape, strict=True))
        ]
        return max(fitting, key=lambda i: i.shape[0] * i.shape[1] * i.shape[2], default=None)

    def _shape(self, contraction: Contraction, tile: Tile, chosen: Instruction) -> MatrixShape:
        m, n, k = chosen.shape
        return MatrixShape(
            tile=tile, m=m, n=n, k=k, wave=self.wave, type=contraction.a.type, wide=self.wide
        )
