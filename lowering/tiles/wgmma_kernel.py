"""What the warp-specialised wgmma bodies share: everything but how A and B reach workgroup memory.

A persistent grid; in each workgroup a producer warpgroup fills a ring of stages, and the consumer
warpgroups, one or more blocks of 64 rows of the tile each, multiply. Barriers count both ways:
``full`` what has arrived in a stage, ``empty`` the warps that are done with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from . import clusters, mbarrier, overlap, tensor_map
from .global_operand import global_operand
from .interface import STORAGE, KernelValues, bind_buffer, bind_operands, load_constants
from .ptx_text import PtxText, Word
from .raster import GROUP_ROWS, TileOrder
from .tensor_map import ROW_BYTES, TensorMap
from .warpgroup_mma import ROWS, THREADS
from .wgmma_epilogue import Finish, Words
from .wgmma_out import stage_out, store_out
from .wgmma_shape import MAPS, WARPS, WgmmaShape
from .wgmma_store import BUFFERS, CHUNK_BYTES, StagedStore

WORKGROUP_BYTES = MAPS * tensor_map.BYTES  # of workspace


class WgmmaKernel(ABC):
    """Emits the function; a subclass says how a stage is filled."""

    arrivals: ClassVar[int]  # that complete a full barrier, besides bytes
    producer_registers: ClassVar[dict[int, int]]  # by consumer warpgroups; the rest are theirs
    meetings: ClassVar[int] = 0  # of all threads of a cluster, after the products

    def __init__(
        self, contraction: Contraction, shape: WgmmaShape, layout: str, constants: tuple[str, ...]
    ) -> None:
        self.ir = ir = PtxText()
        self.contraction, self.shape, self.tile = contraction, shape, shape.tile
        self.wgmma = shape.wgmma
        self.values: KernelValues = load_constants(ir, constants, layout)
        self.size = {d: ir.from_index(self.values[d]) for d in contraction.dims}
        self.buffers = self._bind(layout)
        self.shared = ir.workgroup_bytes(shape.shared_bytes)
        self.thread = ir.from_index(ir.value("gpu.thread_id x"))
        self.group, self.warp = (self._uniform(ir.shr_w(self.thread, bits)) for bits in (7, 5))
        self.lane = ir.and_w(self.thread, 31)
        self.workgroup = ir.from_index(ir.value("hal.interface.workgroup.id[0] : index"))
        workgroups = ir.from_index(ir.value("hal.interface.workgroup.count[0] : index"))
        self.cluster, self.clusters = (
            ir.div_w(count, shape.workgroups) for count in (self.workgroup, workgroups)
        )
        self.rank = ir.rem_w(self.workgroup, shape.cluster)
        c, tile = contraction, self.tile
        self.order = TileOrder(
            rows=ir.ceildiv_w(self.size[c.m], tile.m * shape.cluster),
            columns=ir.ceildiv_w(self.size[c.n], tile.n),
            batches=self.size[c.batch] if c.batch else 1,
            group=GROUP_ROWS // (tile.m * shape.cluster),
        )
        self.tiles = self.order.count(ir)
        # A K of 0 takes one step of zeros, read beyond the end.
        self.without_k = ir.compare_w("eq", self.size[c.k], 0)
        self.k_first = ir.select_w(self.without_k, tile.k, 0)
        self.k_tiles = ir.select_w(self.without_k, 1, ir.ceildiv_w(self.size[c.k], tile.k))
        if shape.splits > 1:
            self._take_part()
        self.full = ir.add_w(self.shared, shape.full)
        self.empty = ir.add_w(self.shared, shape.empty)

    def _take_part(self) -> None:
        """Of the steps along K, those of this workgroup; one of zeros, beyond the end, if none."""
        ir, splits = self.ir, self.shape.splits
        self.part = ir.rem_w(self.workgroup, splits)
        each = ir.ceildiv_w(self.k_tiles, splits)
        before = ir.mul_w(self.part, each)
        left = ir.sub_w(self.k_tiles, ir.least_w(before, self.k_tiles))
        self.k_first = ir.add_w(self.k_first, ir.mul_w(before, self.tile.k))
        self.k_tiles = ir.value(
            f"arith.maxui {ir.word(ir.least_w(left, each))}, {ir.word(1)} : i32", "steps"
        )

    @abstractmethod
    def _maps(self) -> tuple[tuple[int, Operand, tuple[int, int]], ...]:
        """(place, operand, box in elements, innermost first) of each tensor map."""

    @abstractmethod
    def _produce_all(self) -> None:
        """What the producer warpgroup does."""

    def text(self) -> str:
        """The whole body."""
        ir = self.ir
        overlap.let_next_start(ir)
        self.map_addresses = self._prologue()
        with ir.when(ir.compare_w("eq", self.group, 0)):
            self._set_registers("dec", producer=True)
            self._produce_all()
            for _ in range(self.meetings):
                clusters.meet(ir)
            ir.otherwise()
            self._set_registers("inc", producer=False)
            self._consume()
        if self.shape.cluster > 1:  # others may still arrive at barriers of this workgroup
            ir.asm("barrier.cluster.arrive.relaxed; barrier.cluster.wait;")
        ir.emit("return")
        return ir.text()

    def _uniform(self, value: Word) -> str:
        """A value that is the same in all lanes, in a register that the assembler knows to be."""
        text = "shfl.sync.idx.b32 $0, $1, 0, 0x1f, 0xffffffff;"
        return self.ir.asm(text, [(self.ir.word(value), "i32")], result="i32")

    def _set_registers(self, how: str, *, producer: bool) -> None:
        """Move registers from the producer to the consumers, where there are enough to move.

        A multiprocessor has 65536; the instruction counts in units of 8, at most 240.
        """
        consumers = self.shape.consumers
        mine = self.producer_registers.get(consumers)
        if mine is None:
            return
        if not producer:
            mine = min((65536 // THREADS - mine) // consumers // 8 * 8, 240)
        self.ir.asm(f"setmaxnreg.{how}.sync.aligned.u32 {mine};")

    def _bind(self, layout: str) -> dict[str, str]:
        ir, c = self.ir, self.contraction
        found = bind_operands(ir, c, self.values, layout)
        found["workspace"] = bind_buffer(
            ir,
            layout=layout,
            binding=len(c.operands),
            type_name="i8",
            count=WORKGROUP_BYTES,
            read_only=False,
        )
        return found

    def _address(self, name: str, element: str) -> str:
        kind = f"memref<?x{element}, {STORAGE}>"
        return self.ir.address_of(self.buffers[name], kind, "i64")

    def _stride_bytes(self, operand: Operand, axis: int) -> str:
        """Byte distance along an outer axis, an i64."""
        stride = self.ir.from_index(self.values[operand.strides[axis]])
        return self.ir.mul_d(self.ir.wide(stride), element_type(operand.type).bytes)

    def _map(self, operand: Operand, box: tuple[int, int]) -> TensorMap:
        """Sizes, strides and addresses of 0 have no encoding; nothing is read on their account.

        Without any k, A and B may have no memory at all: the map is one of the workspace.
        """
        ir, rank = self.ir, len(operand.dims)
        base = self._address(operand.name, element_type(operand.type).mlir)
        if operand is not self.contraction.c:
            base = ir.select(self.without_k, self._address("workspace", "i8"), base, "i64")
        least = ir.constant(tensor_map.ALIGNMENT, "i64")
        sizes = [self.size[d] for d in reversed(operand.dims)]
        return TensorMap(
            type=operand.type,
            base=base,
            dims=tuple(ir.value(f"arith.maxui {s}, {ir.word(1)} : i32") for s in sizes),
            strides=tuple(
                ir.value(f"arith.maxui {self._stride_bytes(operand, axis)}, {least} : i64")
                for axis in reversed(range(rank - 1))
            ),
            box=(*box, 1)[:rank],
        )

    def _prologue(self) -> list[str]:
        """Warps 0 to 2 build the maps, warp 3 the barriers. The addresses of the maps.

        The workspace may still serve the kernel before, so maps are published after that has ended.
        """
        ir, s = self.ir, self.shape
        workspace = self._address("workspace", "i8")
        mine = ir.add_d(workspace, ir.wide(ir.mul_w(self.workgroup, WORKGROUP_BYTES)))
        places = [ir.add_d(mine, tensor_map.BYTES * i) for i in range(MAPS)]
        first = ir.add_w(self.shared, s.maps)
        built = [ir.word(ir.add_w(first, tensor_map.BYTES * i)) for i in range(MAPS)]
        for i, operand, box in self._maps():
            with ir.when(ir.compare_w("eq", self.warp, i)):
                tensor_map.build(ir, self._map(operand, box), built[i], self.lane)
        with ir.when(ir.compare_w("eq", self.warp, MAPS)):
            full = [self.arrivals] * self.tile.stages
            empty = [WARPS * s.consumers * s.cluster] * self.tile.stages
            mbarrier.initialise(ir, self.full, [*full, *empty], self.lane)
        overlap.await_previous(ir)
        for i, *_ in self._maps():
            with ir.when(ir.compare_w("eq", self.warp, i)):
                tensor_map.publish(ir, built[i], places[i])
        if s.cluster > 1:
            ir.asm("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;")
        else:
            ir.emit("gpu.barrier")
        return places

    def _each_tile(self, work: Callable[[str, str], None]) -> None:
        """Call ``work(tile, first step)``; steps are counted on from tile to tile."""
        ir = self.ir

        def body(tile: str, carried: list[str]) -> list[str]:
            work(tile, carried[0])
            return [ir.word(ir.add_w(carried[0], self.k_tiles))]

        ir.loop_w(self.cluster, self.tiles, self.clusters, [(ir.word(0), "i32")], body)

    def _stage(self, step: Word) -> tuple[Word, Word]:
        """(stage, parity of its phase) of a step."""
        ir, stages = self.ir, self.tile.stages
        return ir.rem_w(step, stages), ir.and_w(ir.div_w(step, stages), 1)

    def _barrier(self, first: Word, stage: Word) -> Word:
        return self.ir.add_w(first, self.ir.mul_w(stage, mbarrier.BYTES))

    def _origin(self, tile: str) -> tuple[Word, Word, Word]:
        """(row, column, batch) of the first element of a tile of C."""
        ir = self.ir
        row, column, batch = self.order.place(ir, tile)
        row = ir.add_w(ir.mul_w(row, self.shape.cluster), self.rank)
        return ir.mul_w(row, self.tile.m), ir.mul_w(column, self.tile.n), batch

    def _along_k(self, first: str, k: Word) -> Word:
        """The element of k at which a step starts.

        Every other tile walks K backwards: it starts with what the last one left in the L2 cache.
        """
        ir = self.ir
        odd = ir.compare_w("ne", ir.and_w(ir.div_w(first, self.k_tiles), 1), 0)
        last = ir.mul_w(ir.sub_w(self.k_tiles, 1), self.tile.k)
        forward = ir.mul_w(k, self.tile.k)
        return ir.add_w(ir.select_w(odd, ir.sub_w(last, forward), forward), self.k_first)

    def _consume(self) -> None:
        ir, s = self.ir, self.shape
        tensor_map.acquire(ir, self.map_addresses[2:])
        part = ir.sub_w(self.group, 1)
        staging = ir.mul_w(part, BUFFERS * CHUNK_BYTES)
        store = StagedStore(
            ir=ir,
            type=self.contraction.c.type,
            buffer=ir.add_w(ir.add_w(self.shared, s.staging), staging),
            barrier=ir.add_w(part, 1),
            thread=ir.and_w(self.thread, THREADS - 1),
            tensor=self.map_addresses[2],
        )
        addresses = store.addresses()
        own = ir.mul_w(part, s.blocks * ROWS * ROW_BYTES)
        a = self.wgmma.a.descriptor(ir, ir.add_w(self.shared, own))
        b = self.wgmma.b.descriptor(ir, ir.add_w(self.shared, s.a_bytes))

        def tile_of(tile: str, first: str) -> None:
            accumulators = self._multiply(first, a, b)
            self._store(tile, part, accumulators, store, addresses)

        self._each_tile(tile_of)
        store.drain()

    def _multiply(self, first: str, a: str, b: str) -> str:
        """All k tiles of one tile of C; a stage is free once the product after it is issued."""
        ir, w = self.ir, self.wgmma
        start = ir.value(f"llvm.mlir.undef : {w.struct}")

        def release(step: Word, given: Word | None = None) -> None:
            stage, _ = self._stage(step)
            barrier = self._barrier(self.empty, stage)
            mbarrier.arrive(ir, barrier, self.lane, given, cluster=self.shape.cluster)

        def step(k: str, carried: list[str]) -> list[str]:
            stage, parity = self._stage(ir.add_w(first, k))
            mbarrier.wait(ir, self._barrier(self.full, stage), parity)
            offset = ir.wide(ir.mul_w(stage, self.shape.stage_bytes // 16))
            issued = w.multiply(
                ir, w.values(ir, carried[0]), ir.add_d(a, offset), ir.add_d(b, offset), k
            )
            done = w.wait(ir, issued, 1)
            release(ir.sub_w(ir.add_w(first, k), 1), given=k)
            return [done]

        (result,) = ir.loop_w(0, self.k_tiles, 1, [(start, w.struct)], step)
        result = w.wait(ir, result, 0)
        release(ir.sub_w(ir.add_w(first, self.k_tiles), 1))
        return result

    def _store(
        self, tile: str, part: Word, struct: str, store: StagedStore, addresses: list[Word]
    ) -> None:
        ir, c = self.ir, self.contraction
        row, column, batch = self._origin(tile)
        row = ir.add_w(row, ir.mul_w(part, self.shape.blocks * ROWS))
        finish = Finish(ir=ir, contraction=c, values=self.values, buffers=self.buffers)
        values = self.wgmma.values(ir, struct)
        words = Words(finish, values, self.tile.n, store.thread, (row, column, batch))
        self._stage_out(words, store, addresses)

    def _stage_out(self, words: Words, store: StagedStore, addresses: list[Word]) -> None:
        stage_out(words, store, addresses, self.shape.blocks)

    def _store_out(self, words: Words) -> None:
        c = self.contraction
        buffer = self.buffers[c.c.name]
        batch = self.ir.to_index(words.batch) if c.batch else ""
        place = global_operand(self.ir, c, self.values, buffer, c.c, batch)
        store_out(words, place, (self.size[c.m], self.size[c.n]), self.shape.blocks)
