"""The producer of the cp.async body: a warpgroup copies 16, 8 or 4 bytes at a time.

What the copy engine cannot address, because rows or addresses are no multiples of 16 bytes, is
copied by threads. They write where and as the engine would: rows of 128 bytes, swizzled.
"""

from __future__ import annotations

from typing import ClassVar

from dialects.operands import Operand
from dialects.types import element_type

from . import mbarrier
from .ptx_text import PtxText, Word
from .tensor_map import ROW_BYTES
from .warpgroup_mma import ROWS, THREADS
from .wgmma_epilogue import Words
from .wgmma_kernel import WgmmaKernel
from .wgmma_store import StagedStore

CHUNK = 16  # bytes that one thread copies at a time, in one to four instructions
CHUNKS = ROW_BYTES // CHUNK
LINES = THREADS // CHUNKS  # rows of 128 bytes that the warpgroup copies at a time
WIDTHS = (16, 8, 4)  # of a copy instruction, in bytes
IN_FLIGHT = 2  # stages whose copies are under way


class OperandCopy:
    """Fills one operand's part of a stage."""

    def __init__(
        self, ir: PtxText, operand: Operand, thread: Word, base: str, extent: int, k_tile: int
    ) -> None:
        self.ir, self.operand, self.extent, self.k_tile = ir, operand, extent, k_tile
        self.size = element_type(operand.type).bytes
        self.chunk, self.line = ir.and_w(thread, CHUNKS - 1), ir.shr_w(thread, 3)
        self.base = base
        swizzled = ir.xor_w(self.chunk, ir.and_w(self.line, 7))
        self.slot = ir.add_w(ir.mul_w(self.line, ROW_BYTES), ir.shl_w(swizzled, 4))
        self.first_element = ir.mul_w(self.chunk, CHUNK // self.size)

    @property
    def passes(self) -> range:
        """Lines of 128 bytes, in steps of what all threads copy at a time."""
        return range(0, self.extent, LINES)

    def alignment(self, strides: list[str]) -> Word:
        """The low bits that the address and the strides have in any of them."""
        ir = self.ir
        bits = ir.value(f"arith.trunci {self.base} : i64 to i32")
        for stride in strides:
            low = ir.value(f"arith.trunci {stride} : i64 to i32")
            bits = ir.value(f"arith.ori {bits}, {low} : i32")
        return ir.and_w(bits, CHUNK - 1)

    def copy(self, stage: Word, source: str, stride: str, valid: Valid, width: int) -> None:
        """All passes at one width. ``source`` is this thread's address in the first line."""
        ir = self.ir
        slot = ir.add_w(stage, self.slot)
        step = ir.mul_d(stride, LINES)
        address = source
        for line in self.passes:
            slab, within = divmod(line, valid.lines)
            if slab and within == 0:
                address = ir.add_d(source, slab * ROW_BYTES)
            left = valid.bytes(ir, slab, within, self.size)
            offset = slab * valid.lines * ROW_BYTES + within * ROW_BYTES
            for part in range(0, CHUNK, width):
                _copy(ir, slot, offset, address, part, width, left)
            if within + LINES < valid.lines:
                address = ir.add_d(address, step)


class Valid:
    """What of a thread's chunks lies inside: ``rows`` from its first line on, ``elements`` along.

    ``lines`` rows of 128 bytes make a slab; each further slab is 128 bytes further along.
    """

    def __init__(self, rows: Word, elements: Word, lines: int) -> None:
        self.rows, self.elements, self.lines = rows, elements, lines

    def bytes(self, ir: PtxText, slab: int, line: int, size: int) -> Word:
        """Bytes from the chunk's first on that are inside; may be less than 0 or more than 16."""
        elements = ir.sub_w(self.elements, slab * ROW_BYTES // size)
        inside = ir.compare_w("sgt", self.rows, line)
        return ir.select_w(inside, ir.mul_w(elements, size), 0)


def _copy(
    ir: PtxText, slot: Word, offset: int, address: str, part: int, width: int, left: Word
) -> None:
    """One instruction; what is not valid is zero."""
    beyond = ir.word(ir.sub_w(left, part))
    least = ir.value(f"arith.maxsi {beyond}, {ir.word(0)} : i32")
    size = ir.value(f"arith.minsi {least}, {ir.word(width)} : i32")
    kind = "cg" if width == CHUNK else "ca"
    ir.asm(
        f"cp.async.{kind}.shared.global [$0+{offset + part}], [$1+{part}], {width}, $2;",
        [(ir.word(slot), "i32"), (address, "i64"), (size, "i32")],
    )


class CpAsyncKernel(WgmmaKernel):
    """Every producer thread arrives at a full barrier once its own copies are there."""

    arrivals: ClassVar[int] = THREADS
    producer_registers: ClassVar[dict[int, int]] = {2: 56, 3: 56}

    def _maps(self) -> tuple[tuple[int, Operand, tuple[int, int]], ...]:
        c = self.contraction.c
        return ((2, c, (ROW_BYTES // element_type(c.type).bytes, ROWS)),)

    def _produce_all(self) -> None:
        ir, c, tile = self.ir, self.contraction, self.tile
        thread = ir.and_w(self.thread, THREADS - 1)
        self.copies = [
            OperandCopy(
                ir,
                o,
                thread,
                self._address(o.name, element_type(o.type).mlir),
                extent,
                tile.k,
            )
            for o, extent in ((c.a, tile.m), (c.b, tile.n))
        ]
        self.strides = [
            [self._stride_bytes(copy.operand, axis) for axis in range(len(copy.operand.strides))]
            for copy in self.copies
        ]
        self.loose = [
            copy.alignment(strides) for copy, strides in zip(self.copies, self.strides, strict=True)
        ]
        self._each_tile(self._produce)
        total = self._steps()
        for behind in reversed(range(IN_FLIGHT)):
            self._arrive(ir.sub_w(total, 1 + behind), behind)

    def _steps(self) -> Word:
        """How many steps this workgroup takes in all."""
        ir = self.ir
        left = ir.sub_w(self.tiles, self.cluster)
        mine = ir.div_w(ir.sub_w(ir.add_w(left, self.clusters), 1), self.clusters)
        return ir.mul_w(mine, self.k_tiles)

    def _arrive(self, step: Word, pending: int) -> None:
        """Arrive for a step once only the ``pending`` last ones are in flight; none before 0.

        The copies were made by ordinary writes, the matrix instructions read through the
        asynchronous proxy: the fence orders them.
        """
        ir = self.ir
        stage, _ = self._stage(step)
        ir.asm(
            f"{{ .reg .pred p; cp.async.wait_group {pending}; fence.proxy.async.shared::cta; "
            "setp.ge.s32 p, $1, 0; @p mbarrier.arrive.shared::cta.b64 _, [$0]; }",
            [(ir.word(self._barrier(self.full, stage)), "i32"), (ir.word(step), "i32")],
        )

    def _produce(self, tile: str, first: str) -> None:
        """Copy every k tile of one tile of C."""
        ir = self.ir
        row, column, batch = self._origin(tile)
        sources = [self._source(which, outer, batch) for which, outer in enumerate((row, column))]

        def step(k: str, _: list[str]) -> list[str]:
            number = ir.add_w(first, k)
            # First, so that what has arrived never waits for a stage to become free.
            self._arrive(ir.sub_w(number, IN_FLIGHT), IN_FLIGHT - 1)
            stage, parity = self._stage(number)
            mbarrier.wait(ir, self._barrier(self.empty, stage), ir.xor_w(parity, 1))
            k0 = self._along_k(first, k)
            address = ir.add_w(self.shared, ir.mul_w(stage, self.shape.stage_bytes))
            for which, outer in enumerate((row, column)):
                part = ir.add_w(address, self.shape.a_bytes if which else 0)
                self._fill(which, part, sources[which], outer, k0)
            ir.asm("cp.async.commit_group;")
            return []

        ir.loop_w(0, self.k_tiles, 1, [], step)

    def _major_k(self, which: int) -> bool:
        return self.copies[which].operand.dims[-1] == self.contraction.k

    def _source(self, which: int, outer: Word, batch: Word) -> str:
        """This thread's address in the first line of a tile, at k = 0."""
        ir, copy, strides = self.ir, self.copies[which], self.strides[which]
        address = copy.base
        if len(copy.operand.dims) == 3:
            address = ir.add_d(address, ir.mul_d(ir.wide(batch), strides[0]))
        row = copy.line
        along = copy.first_element
        if self._major_k(which):
            row = ir.add_w(row, outer)
        else:
            along = ir.add_w(along, outer)
        address = ir.add_d(address, ir.mul_d(ir.wide(row), strides[-1]))
        return ir.add_d(address, ir.mul_d(ir.wide(along), copy.size))

    def _fill(self, which: int, stage: Word, source: str, outer: Word, k0: Word) -> None:
        """One operand's part of a stage, at the widest copy that its alignment allows."""
        ir, c, copy = self.ir, self.contraction, self.copies[which]
        stride = self.strides[which][-1]
        size = self.size[c.n if which else c.m]
        k_left, outer_left = ir.sub_w(self.size[c.k], k0), ir.sub_w(size, outer)
        if self._major_k(which):
            source = ir.add_d(source, ir.mul_d(ir.wide(k0), copy.size))
            rows, along, lines = outer_left, k_left, copy.extent
        else:
            source = ir.add_d(source, ir.mul_d(ir.wide(k0), stride))
            rows, along, lines = k_left, outer_left, copy.k_tile
        valid = Valid(ir.sub_w(rows, copy.line), ir.sub_w(along, copy.first_element), lines)
        loose = self.loose[which]
        with ir.when(ir.compare_w("eq", loose, 0)):
            copy.copy(stage, source, stride, valid, WIDTHS[0])
            ir.otherwise()
            with ir.when(ir.compare_w("eq", ir.and_w(loose, WIDTHS[1] - 1), 0)):
                copy.copy(stage, source, stride, valid, WIDTHS[1])
                ir.otherwise()
                copy.copy(stage, source, stride, valid, WIDTHS[2])

    def _stage_out(self, words: Words, store: StagedStore, addresses: list[Word]) -> None:
        """Through staging memory where C and its rows are whole chunks, else one by one.

        All threads of a workgroup take the same way. The copy engine clips whole chunks only, as
        was seen on a row that ends within one, with memory beyond it.
        """
        ir, c = self.ir, self.contraction
        size = element_type(c.c.type)
        address = self._address(c.c.name, size.mlir)
        bits = ir.value(f"arith.trunci {address} : i64 to i32")
        row = ir.word(ir.mul_w(self.size[c.n], size.bytes))
        bits = ir.value(f"arith.ori {bits}, {row} : i32")
        for axis in range(len(c.c.strides)):
            low = ir.value(f"arith.trunci {self._stride_bytes(c.c, axis)} : i64 to i32")
            bits = ir.value(f"arith.ori {bits}, {low} : i32")
        with ir.when(ir.compare_w("eq", ir.and_w(bits, CHUNK - 1), 0)):
            super()._stage_out(words, store, addresses)
            ir.otherwise()
            self._store_out(words)
