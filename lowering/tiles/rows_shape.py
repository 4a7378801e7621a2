"""How a tile is cut for the body of few rows: waves along N, waves and workgroups along K."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction
from dialects.types import element_type

from .mma_shape import WAVE, MmaShape

GROUP = 16  # columns of C that one instruction takes as its rows
ROWS = 8  # rows of C that one instruction takes as its columns
CHUNK = 16  # bytes that a lane copies at a time
LINES = (32, 64, 128)  # columns of a wave where they are contiguous: lines of 64 bytes or more


@dataclass(frozen=True, kw_only=True)
class RowsShape:
    """A tile of ``waves_n`` x ``waves_k`` waves in each of ``cluster`` workgroups.

    ``k_inner`` says that K is the contiguous axis of B.
    """

    tile: Tile
    type: str
    k_inner: bool

    @property
    def bytes(self) -> int:
        """Of one element of A and B."""
        return element_type(self.type).bytes

    @property
    def mma(self) -> MmaShape:
        """The instruction."""
        return MmaShape(tile=self.tile, type=self.type, copy_bytes=16)

    @property
    def steps(self) -> int:
        """Instructions along K of a wave's turn."""
        return self.tile.k // self.mma.depth

    @property
    def threads(self) -> int:
        """Lanes of a workgroup."""
        return self.tile.waves_n * self.tile.waves_k * WAVE

    @property
    def wave_n(self) -> int:
        """Columns of C of a wave."""
        return self.tile.n // self.tile.waves_n

    @property
    def groups(self) -> int:
        """Instructions along N of a wave."""
        return self.wave_n // GROUP

    @property
    def blocks(self) -> int:
        """Instructions along M of a wave."""
        return self.tile.m // ROWS

    @property
    def cluster(self) -> int:
        """Workgroups that share the K of a tile."""
        return max(self.tile.cluster, 1)

    @property
    def parts(self) -> int:
        """Waves that take turns along K."""
        return self.tile.waves_k * self.cluster

    @property
    def sums(self) -> int:
        """Accumulators of a lane."""
        return 4 * self.groups * self.blocks

    @property
    def held(self) -> int:
        """Registers of a lane for sums and for the words of one turn."""
        return self.sums + self.steps * (4 * self.groups + 2 * self.blocks)

    @property
    def chunks_a(self) -> int:
        """Chunks of a row of A in one turn."""
        return self.tile.k * self.bytes // CHUNK

    @property
    def bytes_b(self) -> int:
        """Of B in one turn of a wave."""
        return self.tile.k * self.wave_n * self.bytes

    @property
    def bytes_a(self) -> int:
        """Of A in one turn of a wave, whole copies of all lanes."""
        whole = WAVE * CHUNK
        return -(-self.tile.m * self.chunks_a * CHUNK // whole) * whole

    @property
    def turn_bytes(self) -> int:
        """Of one turn of a wave."""
        return self.bytes_b + self.bytes_a

    @property
    def wave_bytes(self) -> int:
        """Of a wave: the turns that are under way, and afterwards its sums."""
        return max(self.tile.stages * self.turn_bytes, self.sums * WAVE * 4)

    @property
    def shared_bytes(self) -> int:
        """Of a workgroup."""
        return self.tile.waves_n * self.tile.waves_k * self.wave_bytes

    def cut_refusal(self) -> str | None:
        """Why the tile cannot be cut so, or None when it can."""
        tile = self.tile
        fits = self.wave_n % GROUP == 0 if self.k_inner else self.wave_n in LINES
        if tile.n % tile.waves_n or not fits:
            parts = f"a multiple of {GROUP}" if self.k_inner else "32, 64 or 128"
            return f"{tile.waves_n} waves do not cut n = {tile.n} into parts of {parts}"
        if tile.m % ROWS:
            return f"m = {tile.m} is no multiple of {ROWS}"
        turn = 64 // self.bytes if self.k_inner else self.mma.depth
        if tile.k % turn:
            return f"k = {tile.k} is no multiple of {turn}"
        if tile.m * tile.n // 2 % self.cluster:
            return f"{self.cluster} workgroups do not cut {tile.m}x{tile.n} sums"
        if not self.k_inner and (self.chunks_a > 8 or self.chunks_a & (self.chunks_a - 1)):
            return f"k = {tile.k} is not 16, 32 or 64"
        return None


def rows_shape(contraction: Contraction, tile: Tile) -> RowsShape:
    """The shape of a member."""
    return RowsShape(tile=tile, type=contraction.a.type, k_inner=contraction.transposed_b)
