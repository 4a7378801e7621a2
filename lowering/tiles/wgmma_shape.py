"""A member of the wgmma bodies laid out in workgroup memory."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction

from . import mbarrier, tensor_map
from .tensor_map import ROW_BYTES
from .warpgroup_mma import ROWS, THREADS, OperandTile, Wgmma
from .wgmma_store import BUFFERS, CHUNK_BYTES

MAPS = 3  # of A, B and C; a body that does not need one leaves its place empty
WARPS = 4  # of a warpgroup


@dataclass(frozen=True, kw_only=True)
class WgmmaShape:
    """A tile in workgroup memory: ``stages`` of A and B, staging of C, barriers, maps.

    A cluster's workgroups take neighbouring tiles along m, so that B is the same for all; or, where
    there are ``splits``, that many parts of the K of one tile.
    """

    contraction: Contraction
    tile: Tile
    cluster: int = 1
    splits: int = 1

    @property
    def consumers(self) -> int:
        """Consumer warpgroups."""
        return self.tile.waves_m * self.tile.waves_n // WARPS

    @property
    def blocks(self) -> int:
        """Blocks of 64 rows a consumer warpgroup."""
        return self.tile.m // ROWS // self.consumers

    @property
    def threads(self) -> int:
        """Of a workgroup: the consumers and one producer warpgroup."""
        return (self.consumers + 1) * THREADS

    @property
    def workgroups(self) -> int:
        """Of a cluster."""
        return self.cluster * self.splits

    @property
    def a_bytes(self) -> int:
        """Of A in one stage."""
        return self.tile.m * ROW_BYTES

    @property
    def stage_bytes(self) -> int:
        """Of one stage."""
        return self.a_bytes + self.tile.n * ROW_BYTES

    @property
    def staging(self) -> int:
        """Offset of the staging buffers of C."""
        return self.tile.stages * self.stage_bytes

    @property
    def full(self) -> int:
        """Offset of the full barriers."""
        return self.staging + self.consumers * BUFFERS * CHUNK_BYTES

    @property
    def empty(self) -> int:
        """Offset of the empty barriers."""
        return self.full + mbarrier.BYTES * self.tile.stages

    @property
    def maps(self) -> int:
        """Offset of the tensor maps."""
        end = self.empty + mbarrier.BYTES * self.tile.stages
        return -(-end // tensor_map.BYTES) * tensor_map.BYTES

    @property
    def shared_bytes(self) -> int:
        """All of it."""
        return self.maps + MAPS * tensor_map.BYTES

    @property
    def wgmma(self) -> Wgmma:
        """The instruction and how its operands lie."""
        c, tile = self.contraction, self.tile
        return Wgmma(
            n=tile.n,
            blocks=self.blocks,
            type_a=c.a.type,
            type_b=c.b.type,
            a=OperandTile(k=tile.k, major_k=not c.transposed_a),
            b=OperandTile(k=tile.k, major_k=c.transposed_b),
        )
