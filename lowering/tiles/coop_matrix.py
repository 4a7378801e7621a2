"""The Vulkan native body: VK_KHR_cooperative_matrix at a config that the driver lists.

A workgroup of waves_m x waves_n waves computes an m x n tile of C. A and B are staged in workgroup
memory, double-buffered, in their own type; each wave multiplies whole matrix instructions. Results
leave through a workgroup slot a wave, because a cooperative store takes a stride that is known when
compiling, and so that edges and the epilogue are per element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.facts import MatrixConfig
from dialects.manifest import Footprint, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Tier

from ..instructions import coop_matrix_name
from ..target import Target
from .body import Emitted, contraction_group, refused_types
from .coop_kernel import CoopKernel, coop_shared_bytes
from .gemm_launch import gemm_executable, gemm_host, gemm_launch, gemm_layout
from .operand_source import DECODED
from .software import storage_needs
from .staged_gemm import (
    WIDE_BYTES,
    MatrixShape,
    in_blocks,
    refused_blocks,
    staged_alignment,
    too_much_text,
)

_BITS = {"f16", "i8", "u8"}  # operand types that gpu.mma_matrix has; bf16 and f8 it lacks


@dataclass(frozen=True, kw_only=True)
class CoopMatrixBody:
    """Cooperative matrices, staged and double-buffered, copied 16 bytes at a time."""

    name: ClassVar[str] = "coop_matrix"
    wide: ClassVar[bool] = True
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("vulkan",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs a listed config, a known wave width, and waves that split the tile into it."""
        if target.facts.wave_widths is None:
            return "cooperative matrices need a known wave width, use a facts file or a device"
        if not tile.waves_m or not tile.waves_n:
            return "coop_matrix needs waves_m and waves_n"
        if contraction.a.type not in _BITS:
            return f"gpu.mma_matrix has no {contraction.a.type} operand"
        if not listed(contraction, target):
            return f"the driver lists no config for {contraction.signature}"
        config = chosen_config(contraction, tile, target)
        if config is None:
            return f"no listed config for {contraction.signature} divides the wave tile"
        shape = self._shape(contraction, tile, config, target)
        too_much = too_much_text(shape)
        if too_much is not None:
            return too_much
        if self.wide and (tile.m % shape.per or tile.n % shape.per or tile.k % shape.per):
            return f"copies of {WIDE_BYTES} bytes need a tile in multiples of {shape.per}"
        refused = refused_types(contraction, self.name, DECODED)
        return refused or refused_blocks(contraction, shape, shape.per)

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        config = chosen_config(contraction, tile, target)
        assert config is not None
        shape = self._shape(contraction, tile, config, target)
        layout = gemm_layout(contraction)
        body, blocks = CoopKernel(contraction, shape, layout).text(), in_blocks(contraction)
        code = gemm_executable(
            contraction,
            tile,
            layout=layout,
            block=(shape.threads, 1, 1),
            body=body,
            wave=target.wave,
        )
        return Emitted(
            text=code + gemm_host(kernel, contraction, in_words=blocks),
            launch=gemm_launch(contraction, tile, (shape.threads, 1, 1)),
            workspace=None,
            prepared=None,
            needs=Needs(
                features=storage_needs(contraction, target, in_words=blocks),
                wave_width=target.wave,
                waves=(tile.waves_m, tile.waves_n),
                alignment=staged_alignment(contraction, shape),
            ),
            footprint=Footprint(
                static_shared_bytes=coop_shared_bytes(shape, contraction),
                threads_per_group=shape.threads,
                wave_width=target.wave,
            ),
            groups=(
                contraction_group(
                    contraction,
                    "the driver lists this config",
                    instruction=coop_matrix_name(config.m, config.n, config.k),
                    shape=(config.m, config.n, config.k),
                ),
            ),
        )

    def _shape(
        self, contraction: Contraction, tile: Tile, config: MatrixConfig, target: Target
    ) -> MatrixShape:
        return MatrixShape(
            tile=tile,
            m=config.m,
            n=config.n,
            k=config.k,
            wave=target.wave,
            type=contraction.a.type,
            wide=self.wide,
        )


@dataclass(frozen=True, kw_only=True)
class CoopMatrixNarrowBody(CoopMatrixBody):
    """The same copied element by element, for rows that are not aligned to 16 bytes."""

    name: ClassVar[str] = "coop_matrix_narrow"
    wide: ClassVar[bool] = False


def listed(contraction: Contraction, target: Target) -> tuple[MatrixConfig, ...]:
    """The driver's configs for exactly the types of the contraction, at subgroup scope."""
    c = contraction
    return target.facts.matrix_configs(c.a.type, c.b.type, c.accumulator)


def chosen_config(contraction: Contraction, tile: Tile, target: Target) -> MatrixConfig | None:
    """The largest listed config that divides the wave tile and k; None when none does."""
    if tile.m % tile.waves_m or tile.n % tile.waves_n:
        return None
    wave_m, wave_n = tile.m // tile.waves_m, tile.n // tile.waves_n
    fitting = [
        row
        for row in listed(contraction, target)
        if wave_m % row.m == 0 and wave_n % row.n == 0 and tile.k % row.k == 0
    ]
    return max(fitting, key=lambda row: row.m * row.n * row.k, default=None)
