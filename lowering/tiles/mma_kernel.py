"""The device function of the ``mma.sync`` bodies."""

from __future__ import annotations

from collections import Counter

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from . import overlap
from .global_operand import GlobalOperand, global_operand
from .interface import bind_operands, constant_names, load_constants
from .mma_blocks import BlockCopy
from .mma_copy import AsyncCopy, OperandCopy, Window
from .mma_epilogue import PairStore, lane_placement
from .mma_fragments import Fragments
from .mma_pipeline import Loop, Staging, multiply_async, multiply_through_registers
from .mma_shape import WAVE, MmaShape, staged_rows
from .mma_shifted import ShiftedCopy
from .ptx_text import PtxText
from .raster import grouped_tile


class MmaKernel:
    """Emits the function: place, pipeline over K, epilogue."""

    def __init__(
        self, contraction: Contraction, shape: MmaShape, layout: str, *, overlaps: bool = False
    ) -> None:
        """``overlaps`` has it wait itself for the kernel before it (see :mod:`.overlap`)."""
        self.ir, self.overlaps = PtxText(), overlaps
        self.contraction, self.shape = contraction, shape
        ir, c = self.ir, contraction
        self.values = load_constants(ir, constant_names(c), layout)
        self.buffers = bind_operands(ir, c, self.values, layout)
        self.m, self.n, self.k = (ir.from_index(self.values[d]) for d in (c.m, c.n, c.k))
        self.batch = ir.value("hal.interface.workgroup.id[2] : index", "wg")
        self.row0, self.column0 = grouped_tile(ir, self.m, self.n, shape.tile)
        self.lane = ir.from_index(ir.value("gpu.thread_id x", "lane"))
        wave = ir.shr_w(self.lane, 5)
        self.wave_row = ir.mul_w(ir.div_w(wave, shape.tile.waves_n), shape.wave_m)
        self.wave_column = ir.mul_w(ir.rem_w(wave, shape.tile.waves_n), shape.wave_n)
        self.wave_lane = ir.and_w(self.lane, WAVE - 1)
        self.a_rows, self.b_rows = (staged_rows(c, o, shape) for o in (c.a, c.b))

    @property
    def aligned(self) -> Counter[str]:
        """Every ``.aligned`` mnemonic that was written, for the artifact's check."""
        return self.ir.aligned

    def text(self) -> str:
        """The whole body."""
        if self.overlaps:
            overlap.let_next_start(self.ir)
        self._store(self._sums())
        self.ir.emit("return")
        return self.ir.text()

    def _global(self, operand: Operand) -> GlobalOperand:
        buffer = self.buffers[operand.name]
        return global_operand(self.ir, self.contraction, self.values, buffer, operand, self.batch)

    def _window(self, operand: Operand) -> Window:
        """The part of A or B that this workgroup's tile reads, from K = 0."""
        ir, c = self.ir, self.contraction
        place = self._global(operand)
        is_a = operand is c.a
        first, size = (self.row0, self.m) if is_a else (self.column0, self.n)
        left = ir.sub_w(size, first)
        if operand.dims[-1] == c.k:
            start = ir.long("muli", ir.wide(first), place.stride)
            outer, inner = left, None
        else:
            start = ir.long("muli", ir.wide(first), self.shape.bytes)
            outer, inner = None, left
        start = ir.long("addi", place.address, start)
        return Window(
            address=start,
            stride=place.stride,
            outer=outer,
            inner=inner,
            bounds=self._bounds(operand, place)
            if self._copy_kind(operand) is ShiftedCopy
            else None,
        )

    def _bounds(self, operand: Operand, place: GlobalOperand) -> tuple[str, str]:
        ir = self.ir
        span = ir.wide(ir.from_index(ir.index(self.values.span(ir, operand))))
        nbytes = ir.long("muli", span, element_type(operand.stored_type).bytes)
        return place.begin, ir.long("addi", place.begin, nbytes)

    def _copy_kind(self, operand: Operand) -> type[OperandCopy]:
        if operand.source is not None:
            return BlockCopy
        return AsyncCopy if self.shape.copy_bytes else ShiftedCopy

    def _sums(self) -> list[str]:
        ir, shape, c = self.ir, self.shape, self.contraction
        stage = self.a_rows.bytes + self.b_rows.bytes
        shared = ir.workgroup_bytes(shape.tile.stages * stage)
        parts = []
        for operand, staged, base, wave0 in (
            (c.a, self.a_rows, 0, self.wave_row),
            (c.b, self.b_rows, self.a_rows.bytes, self.wave_column),
        ):
            window = self._window(operand)
            copy = self._copy_kind(operand)(ir, shape, staged, window, self.lane)
            fragments = Fragments(
                ir, shape, staged, is_a=operand is c.a, wave0=wave0, lane=self.wave_lane
            )
            parts.append(Staging(base=base, copy=copy, fragments=fragments))
        loop = Loop(
            ir=ir,
            shape=shape,
            k=self.k,
            shared=shared,
            stage_bytes=stage,
            a=parts[0],
            b=parts[1],
        )
        if self.overlaps:
            overlap.await_previous(ir)
        return multiply_async(loop) if shape.copy_bytes else multiply_through_registers(loop)

    def _store(self, sums: list[str]) -> None:
        ir = self.ir
        c = self._global(self.contraction.c)
        place = lane_placement(
            ir,
            self.wave_lane,
            ir.add_w(self.row0, self.wave_row),
            ir.add_w(self.column0, self.wave_column),
            paired_rows=self.a_rows.paired,
            paired_columns=self.b_rows.paired,
        )
        PairStore(
            ir,
            self.contraction,
            self.shape,
            self.values,
            self.buffers,
            place=place,
            address=c.address,
            stride=c.stride,
            batch=self.batch,
        ).store(sums)
