"""The device function of the TMA + wgmma body.

A persistent grid; in each workgroup one producer thread has the copy engine fill a ring of stages,
and the consumer warpgroups, 64 rows of the tile each, multiply. Barriers count both ways: ``full``
bytes that have arrived, ``empty`` warps that are done with a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from . import mbarrier, tensor_map
from .interface import KernelValues, bind_buffer, load_constants
from .ptx_text import PtxText, Word
from .tensor_map import ROW_BYTES, TensorMap
from .tile_order import TileOrder
from .wgmma import ROWS, THREADS, OperandTile, Wgmma
from .wgmma_epilogue import BUFFERS, CHUNK_BYTES, Finish, StagedStore

MAPS = 3
WORKGROUP_BYTES = MAPS * tensor_map.BYTES  # of workspace
PRODUCER_REGISTERS = {1: None, 2: 40, 3: 32}  # by consumer warpgroups; None keeps the even split
CONSUMER_REGISTERS = {1: None, 2: 232, 3: 160}  # 65536 of a multiprocessor, in units of 8


@dataclass(frozen=True, kw_only=True)
class TmaShape:
    """A tile in workgroup memory: ``stages`` of A and B, staging of C, barriers, maps."""

    contraction: Contraction
    tile: Tile

    @property
    def consumers(self) -> int:
        """Consumer warpgroups."""
        return self.tile.m // ROWS

    @property
    def threads(self) -> int:
        """Of a workgroup: the consumers and one producer warpgroup."""
        return (self.consumers + 1) * THREADS

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
        """Offset of the barriers: all full ones, then all empty ones."""
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
            type_a=c.a.type,
            type_b=c.b.type,
            a=OperandTile(k=tile.k, major_k=not c.transposed_a),
            b=OperandTile(k=tile.k, major_k=c.transposed_b),
        )


class TmaKernel:
    """Emits the function."""

    def __init__(
        self, contraction: Contraction, shape: TmaShape, layout: str, constants: tuple[str, ...]
    ) -> None:
        self.ir = ir = PtxText()
        self.contraction, self.shape, self.tile = contraction, shape, shape.tile
        self.wgmma = shape.wgmma
        self.values: KernelValues = load_constants(ir, constants, layout)
        self.size = {d: ir.from_index(self.values[d]) for d in contraction.dims}
        self.buffers = self._bind(layout)
        self.shared = ir.workgroup_bytes(shape.shared_bytes)
        thread = ir.from_index(ir.value("gpu.thread_id x"))
        self.thread = thread
        self.group, self.warp = (self._uniform(ir.shr_w(thread, bits)) for bits in (7, 5))
        self.lane = ir.and_w(thread, 31)
        self.block = ir.from_index(ir.value("hal.interface.workgroup.id[0] : index"))
        self.blocks = ir.from_index(ir.value("hal.interface.workgroup.count[0] : index"))
        c, tile = contraction, self.tile
        self.order = TileOrder(
            rows=ir.ceildiv_w(self.size[c.m], tile.m),
            columns=ir.ceildiv_w(self.size[c.n], tile.n),
            batches=self.size[c.batch] if c.batch else 1,
        )
        self.tiles = self.order.count(ir)
        # A K of 0 takes one step of zeros, read beyond the end.
        none = ir.compare_w("eq", self.size[c.k], 0)
        self.k_first = ir.select_w(none, tile.k, 0)
        self.k_tiles = ir.select_w(none, 1, ir.ceildiv_w(self.size[c.k], tile.k))
        self.full = ir.add_w(self.shared, shape.full)
        self.empty = ir.add_w(self.shared, shape.empty)

    def text(self) -> str:
        """The whole body."""
        ir = self.ir
        self.maps = self._prologue()
        producer = ir.compare_w("eq", self.group, 0)
        registers = self.shape.consumers
        with ir.when(producer):
            self._set_registers("dec", PRODUCER_REGISTERS[registers])
            with ir.when(ir.compare_w("eq", self.thread, 0)):
                tensor_map.acquire(ir, self.maps[:2])
                self._each_tile(self._produce)
            ir.otherwise()
            self._set_registers("inc", CONSUMER_REGISTERS[registers])
            self._consume()
        ir.emit("return")
        return ir.text()

    def _uniform(self, value: Word) -> str:
        """A value that is the same in all lanes, in a register that the assembler knows to be."""
        text = "shfl.sync.idx.b32 $0, $1, 0, 0x1f, 0xffffffff;"
        return self.ir.asm(text, [(self.ir.word(value), "i32")], result="i32")

    def _set_registers(self, how: str, count: int | None) -> None:
        if count is not None:
            self.ir.asm(f"setmaxnreg.{how}.sync.aligned.u32 {count};")

    def _bind(self, layout: str) -> dict[str, str]:
        ir, c = self.ir, self.contraction
        operands = c.operands
        found = {
            o.name: bind_buffer(
                ir,
                layout=layout,
                binding=i,
                type_name=o.type,
                count=self.values.span(ir, o),
                read_only=i < len(operands) - 1,
            )
            for i, o in enumerate(operands)
        }
        found["workspace"] = bind_buffer(
            ir,
            layout=layout,
            binding=len(operands),
            type_name="i8",
            count=WORKGROUP_BYTES,
            read_only=False,
        )
        return found

    def _address(self, name: str, element: str) -> str:
        kind = f"memref<?x{element}, #hal.descriptor_type<storage_buffer>>"
        return self.ir.address_of(self.buffers[name], kind, "i64")

    def _map(self, operand: Operand, box: tuple[int, int]) -> TensorMap:
        """``box`` is (innermost, next) in elements. A size of 0 counts as 1: it is never read."""
        ir = self.ir
        element = element_type(operand.type)
        sizes = [self.size[d] for d in reversed(operand.dims)]
        # ceildiv by 1 of max(size, 1): an empty axis has no encoding
        dims = tuple(ir.value(f"arith.maxui {s}, {ir.word(1)} : i32") for s in sizes)
        strides = [
            ir.mul_d(ir.wide(ir.from_index(self.values[s])), element.bytes)
            for s in reversed(operand.strides)
        ]
        return TensorMap(
            type=operand.type,
            base=self._address(operand.name, element.mlir),
            dims=dims,
            strides=tuple(strides),
            box=(*box, 1)[: len(dims)],
        )

    def _prologue(self) -> list[str]:
        """Warps 0 to 2 build the maps, warp 3 the barriers. The addresses of the maps."""
        ir, c, tile, s = self.ir, self.contraction, self.tile, self.shape
        workspace = self._address("workspace", "i8")
        mine = ir.add_d(workspace, ir.wide(ir.mul_w(self.block, WORKGROUP_BYTES)))
        maps = [ir.add_d(mine, tensor_map.BYTES * i) for i in range(MAPS)]
        row_a, row_b = (ROW_BYTES // element_type(o.type).bytes for o in (c.a, c.b))
        row_c = ROW_BYTES // element_type(c.c.type).bytes
        boxes = (
            (c.a, (row_a, tile.k) if c.transposed_a else (row_a, tile.m)),
            (c.b, (row_b, tile.n) if c.transposed_b else (row_b, tile.k)),
            (c.c, (row_c, ROWS)),
        )
        for i, (operand, box) in enumerate(boxes):
            with ir.when(ir.compare_w("eq", self.warp, i)):
                shared = ir.add_w(self.shared, s.maps + tensor_map.BYTES * i)
                built = self._map(operand, box)
                tensor_map.build_map(ir, built, shared, maps[i], self.lane)
        with ir.when(ir.compare_w("eq", self.warp, MAPS)):
            counts = [1] * tile.stages + [4 * s.consumers] * tile.stages
            mbarrier.initialise(ir, self.full, counts, self.lane)
        ir.emit("gpu.barrier")
        return maps

    def _each_tile(self, work: Callable[[str, str], None]) -> None:
        """Call ``work(tile, first step)``; steps are counted on from tile to tile."""
        ir = self.ir

        def body(tile: str, carried: list[str]) -> list[str]:
            work(tile, carried[0])
            return [ir.word(ir.add_w(carried[0], self.k_tiles))]

        ir.loop_w(self.block, self.tiles, self.blocks, [(ir.word(0), "i32")], body)

    def _stage(self, step: Word) -> tuple[Word, Word]:
        """(stage, parity of its phase) of a step."""
        ir, stages = self.ir, self.tile.stages
        return ir.rem_w(step, stages), ir.and_w(ir.div_w(step, stages), 1)

    def _origin(self, tile: str) -> tuple[Word, Word, Word]:
        """(row, column, batch) of the first element of a tile of C."""
        row, column, batch = self.order.place(self.ir, tile)
        return self.ir.mul_w(row, self.tile.m), self.ir.mul_w(column, self.tile.n), batch

    def _produce(self, tile: str, first: str) -> None:
        """Fetch every k tile of one tile of C.

        Every other tile walks K backwards: it starts with what the last one left in the L2 cache.
        """
        ir, s = self.ir, self.shape
        row, column, batch = self._origin(tile)
        odd = ir.compare_w("ne", ir.and_w(ir.div_w(first, self.k_tiles), 1), 0)
        last = ir.mul_w(ir.sub_w(self.k_tiles, 1), self.tile.k)

        def step(k: str, _: list[str]) -> list[str]:
            stage, parity = self._stage(ir.add_w(first, k))
            barrier = ir.mul_w(stage, mbarrier.BYTES)
            mbarrier.wait(ir, ir.add_w(self.empty, barrier), ir.xor_w(parity, 1))
            forward = ir.mul_w(k, self.tile.k)
            k0 = ir.select_w(odd, ir.sub_w(last, forward), forward)
            k0 = ir.add_w(k0, self.k_first)
            address = ir.add_w(self.shared, ir.mul_w(stage, s.stage_bytes))
            boxes = [
                *self._boxes(0, address, k0, row, batch),
                *self._boxes(1, ir.add_w(address, s.a_bytes), k0, column, batch),
            ]
            tensor_map.copy_in(ir, boxes, ir.add_w(self.full, barrier), s.stage_bytes)
            return []

        ir.loop_w(0, self.k_tiles, 1, [], step)

    def _boxes(
        self, which: int, address: Word, k0: Word, outer: Word, batch: Word
    ) -> list[tuple[Word, str, list[Word]]]:
        """The copies of one operand's stage; ``which`` is 0 for A, 1 for B."""
        ir, c, tile = self.ir, self.contraction, self.tile
        operand, extent = ((c.a, tile.m), (c.b, tile.n))[which]
        tail = [batch] if len(operand.dims) == 3 else []
        if operand.dims[-1] == c.k:
            return [(address, self.maps[which], [k0, outer, *tail])]
        width = ROW_BYTES // element_type(operand.type).bytes
        return [
            (
                ir.add_w(address, slab // width * tile.k * ROW_BYTES),
                self.maps[which],
                [ir.add_w(outer, slab), k0, *tail],
            )
            for slab in range(0, extent, width)
        ]

    def _consume(self) -> None:
        ir, s = self.ir, self.shape
        tensor_map.acquire(ir, self.maps[2:])
        part = ir.sub_w(self.group, 1)
        thread = ir.and_w(self.thread, THREADS - 1)
        staging = ir.mul_w(part, BUFFERS * CHUNK_BYTES)
        store = StagedStore(
            ir=ir,
            type=self.contraction.c.type,
            buffer=ir.add_w(ir.add_w(self.shared, s.staging), staging),
            barrier=ir.add_w(part, 1),
            thread=thread,
            tensor=self.maps[2],
        )
        addresses = store.addresses()
        a = self.wgmma.a.descriptor(ir, ir.add_w(self.shared, ir.mul_w(part, ROWS * ROW_BYTES)))
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
            barrier = ir.add_w(self.empty, ir.mul_w(stage, mbarrier.BYTES))
            mbarrier.arrive(ir, barrier, self.lane, given)

        def step(k: str, carried: list[str]) -> list[str]:
            stage, parity = self._stage(ir.add_w(first, k))
            mbarrier.wait(ir, ir.add_w(self.full, ir.mul_w(stage, mbarrier.BYTES)), parity)
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
        row = ir.add_w(row, ir.mul_w(part, ROWS))
        values = self.wgmma.values(ir, struct)
        finish = Finish(ir=ir, contraction=c, values=self.values, buffers=self.buffers)
        warp = ir.shr_w(store.thread, 5)
        own_row = ir.add_w(row, ir.add_w(ir.mul_w(warp, 16), ir.shr_w(self.lane, 2)))
        own_column = ir.add_w(column, ir.mul_w(ir.and_w(self.lane, 3), 2))

        def at(group: int, half: int, element: int) -> dict[str, Word]:
            where: dict[str, Word] = {
                c.m: ir.add_w(own_row, 8 * half),
                c.n: ir.add_w(own_column, 8 * group + element),
            }
            return {**where, **({c.batch: batch} if c.batch else {})}

        chunks = self.tile.n // store.columns
        groups = store.columns // 8
        tail = [batch] if len(c.c.dims) == 3 else []
        for chunk in range(chunks):
            words: list[str] = []
            for group in range(chunk * groups, (chunk + 1) * groups):
                for half in range(2):
                    pair = values[4 * group + 2 * half : 4 * group + 2 * half + 2]
                    places = at(group, half, 0), at(group, half, 1)
                    if element_type(c.c.type).bytes == 2:
                        words.append(finish.pair((pair[0], pair[1]), places))
                    else:
                        words += [finish.word(v, w) for v, w in zip(pair, places, strict=True)]
            where = [ir.add_w(column, chunk * store.columns), row, *tail]
            store.chunk(chunk, chunks, addresses, words, where)
