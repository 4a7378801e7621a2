"""The producer of the TMA body: one thread has the copy engine fill the stages."""

from __future__ import annotations

from typing import ClassVar

from dialects.operands import Operand
from dialects.types import element_type

from . import mbarrier, tensor_map
from .ptx_text import Word
from .tensor_map import ROW_BYTES
from .warpgroup_mma import ROWS
from .wgmma_kernel import WgmmaKernel


class TmaKernel(WgmmaKernel):
    """A full barrier completes with the bytes that the engine has put into the stage."""

    arrivals: ClassVar[int] = 1
    producer_registers: ClassVar[dict[int, int]] = {2: 40, 3: 32}

    def _maps(self) -> tuple[tuple[int, Operand, tuple[int, int]], ...]:
        c, tile = self.contraction, self.tile
        row_a, row_b, row_c = (ROW_BYTES // element_type(o.type).bytes for o in (c.a, c.b, c.c))
        shared_n = tile.n // self.shape.cluster
        return (
            (0, c.a, (row_a, tile.k if c.transposed_a else tile.m)),
            (1, c.b, (row_b, shared_n if c.transposed_b else tile.k)),
            (2, c.c, (row_c, ROWS)),
        )

    def _produce_all(self) -> None:
        with self.ir.when(self.ir.compare_w("eq", self.thread, 0)):
            tensor_map.acquire(self.ir, self.map_addresses[:2])
            self._each_tile(self._produce)

    def _produce(self, tile: str, first: str) -> None:
        """Fetch every k tile of one tile of C.

        The workgroups of a cluster have the same columns: each fetches its part of B for all.
        """
        ir, s = self.ir, self.shape
        row, column, batch = self._origin(tile)
        part = self.tile.n // s.cluster
        mine = ir.mul_w(self.rank, part)

        def step(k: str, _: list[str]) -> list[str]:
            stage, parity = self._stage(ir.add_w(first, k))
            mbarrier.wait(ir, self._barrier(self.empty, stage), ir.xor_w(parity, 1))
            k0 = self._along_k(first, k)
            address = ir.add_w(self.shared, ir.mul_w(stage, s.stage_bytes))
            own_b = ir.add_w(address, ir.add_w(ir.mul_w(mine, ROW_BYTES), s.a_bytes))
            boxes = [
                *self._boxes(0, address, k0, row, batch),
                *self._boxes(1, own_b, k0, ir.add_w(column, mine), batch),
            ]
            tensor_map.copy_in(ir, boxes, self._barrier(self.full, stage), s.stage_bytes)
            return []

        ir.loop_w(0, self.k_tiles, 1, [], step)

    def _boxes(
        self, which: int, address: Word, k0: Word, outer: Word, batch: Word
    ) -> list[tensor_map.Box]:
        """The copies of one operand's part of a stage; ``which`` is 0 for A, 1 for B.

        Rows and columns take 128 bytes of a stage each, whichever axis is contiguous.
        """
        ir, c, tile = self.ir, self.contraction, self.tile
        cluster = self.shape.cluster if which else 1
        operand, extent = ((c.a, tile.m), (c.b, tile.n // cluster))[which]
        tensor = self.map_addresses[which]
        tail = (batch,) if len(operand.dims) == 3 else ()

        def box(offset: int, *coordinates: Word) -> tensor_map.Box:
            return tensor_map.Box(
                address=ir.add_w(address, offset * ROW_BYTES),
                tensor=tensor,
                coordinates=(*coordinates, *tail),
                cluster=cluster,
            )

        if operand.dims[-1] == c.k:
            return [box(0, k0, outer)]
        slabs = range(0, extent, ROW_BYTES // element_type(operand.type).bytes)
        return [box(slab, ir.add_w(outer, slab), k0) for slab in slabs]
