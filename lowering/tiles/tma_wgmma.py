"""The body for tensors that the copy engine can address: TMA + wgmma.

Warpgroup matrix instructions read both operands from workgroup memory, where the tensor copy engine
(TMA) puts them; it checks bounds itself, zero-filling loads and clipping stores, so that any M, N
and K runs at the same speed. Rows and addresses must be multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.member import Tile
from dialects.operands import Contraction

from ..target import Target
from . import clusters
from .tma_kernel import TmaKernel
from .tma_split_kernel import TmaSplitKernel
from .wgmma_body import WgmmaBodyBase
from .wgmma_kernel import WgmmaKernel
from .wgmma_shape import WgmmaShape


@dataclass(frozen=True, kw_only=True)
class TmaWgmmaBody(WgmmaBodyBase):
    """One producer thread drives the copy engine."""

    name: ClassVar[str] = "tma_wgmma"
    kernel: ClassVar[type[WgmmaKernel]] = TmaKernel
    copy_bytes: ClassVar[int] = 16
    store_bytes: ClassVar[int] = 16


@dataclass(frozen=True, kw_only=True)
class TmaWgmmaPairBody(TmaWgmmaBody):
    """Two workgroups take tiles one above the other, and each fetches half of B for both."""

    name: ClassVar[str] = "tma_wgmma_pair"
    cluster: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class TmaWgmmaSplitBody(TmaWgmmaBody):
    """The workgroups of a member's cluster share the K of a tile: for few tiles and a long K."""

    name: ClassVar[str] = "tma_wgmma_split"
    kernel: ClassVar[type[WgmmaKernel]] = TmaSplitKernel

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """As the others, and needs a cluster whose workgroups finish whole groups of columns."""
        if not 2 <= tile.cluster <= clusters.MOST:
            return f"{self.name} needs cluster of 2 to {clusters.MOST}, found {tile.cluster}"
        if tile.n % (8 * tile.cluster):
            return f"{self.name} splits n among {tile.cluster} workgroups, found {tile.n}"
        return super().refusal(contraction, tile, target)

    def _shape(self, contraction: Contraction, tile: Tile) -> WgmmaShape:
        return WgmmaShape(contraction=contraction, tile=tile, splits=tile.cluster)
