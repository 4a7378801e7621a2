"""The device function of the cooperative-matrix body."""

from __future__ import annotations

from contextlib import nullcontext

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .gemm_store import store_element
from .interface import SHARED, storage_type
from .kernel_text import Index
from .staged_gemm import BUFFERS, Copied, MatrixShape, Staged, StagedGemm
from .staging import WORD

_MATRIX_TYPES = {"i8": "si8", "u8": "ui8"}


def coop_shared_bytes(shape: MatrixShape, contraction: Contraction) -> int:
    """Workgroup memory: both buffers of A and B, and a result slot a wave."""
    tile, c = shape.tile, contraction
    a = (tile.k, tile.m) if c.transposed_a else (tile.m, tile.k)
    b = (tile.n, tile.k) if c.transposed_b else (tile.k, tile.n)
    staged = sum(rows * (width + shape.pad) for rows, width in (a, b))
    slots = tile.waves_m * tile.waves_n * shape.m * shape.n
    return BUFFERS * staged * shape.bytes + slots * element_type(c.accumulator).bytes


class _AsStored(Staged):
    """One operand in workgroup memory as it is stored: [BUFFERS * rows][width + pad].

    ``flipped`` says that its contiguous axis is the one that the matrix instruction does not want
    innermost, so that it loads by columns.
    """

    def __init__(self, kernel: StagedGemm, operand: Operand, outer: str, inner: str) -> None:
        shape, c = kernel.shape, kernel.contraction
        super().__init__(kernel, operand, outer, inner)
        self.pitch = (self.width + shape.pad) // shape.per
        self.flipped = inner != (c.k if operand is c.a else c.n)
        self.kind = f"memref<{BUFFERS * self.rows}x{self.pitch}x{shape.unit}, {SHARED}>"
        self.name = kernel.ir.value(f"memref.alloc() : {self.kind}", "shared")


class CoopKernel(StagedGemm):
    """Cooperative matrices straight from workgroup memory; results leave through slots in it."""

    def __init__(self, contraction: Contraction, shape: MatrixShape, layout: str) -> None:
        super().__init__(contraction, shape, layout)
        waves = self.tile.waves_m * self.tile.waves_n
        self.slot_kind = f"memref<{waves * shape.m}x{shape.n}x{self.acc}, {SHARED}>"
        self.slots = self.ir.value(f"memref.alloc() : {self.slot_kind}", "slots")

    def stage(self, operand: Operand, outer: str, inner: str) -> _AsStored:
        """See :class:`.StagedGemm`."""
        return _AsStored(self, operand, outer, inner)

    def put(self, staged: Staged, values: list[Copied], buffer: Index) -> None:
        """See :class:`.StagedGemm`."""
        ir = self.ir
        first = ir.mul(buffer, staged.rows)
        for index, value in enumerate(values):
            unit, row, column = staged.place(self, index)
            units = self._units(staged, value)
            row, column = ir.add(first, row), ir.mul(column, len(units))
            partial = (index + 1) * self.shape.threads > staged.total
            with ir.when(ir.less(unit, staged.total)) if partial else nullcontext():
                for number, stored in enumerate(units):
                    slot = f"{ir.index(row)}, {ir.index(ir.add(column, number))}"
                    ir.emit(f"memref.store {stored}, {staged.name}[{slot}] : {staged.kind}")

    def _units(self, staged: Staged, copied: Copied) -> list[str]:
        """What was copied, in units of workgroup memory."""
        if isinstance(copied, str):
            return [copied]
        assert staged.source is not None
        elements = staged.source.decode(copied)
        if not self.shape.wide:
            return elements
        words = self._words(elements)
        return [
            self.ir.value(f"vector.from_elements {', '.join(words[i : i + 4])} : {self.shape.unit}")
            for i in range(0, len(words), 4)
        ]

    def _words(self, elements: list[str]) -> list[str]:
        """Elements in 32-bit words; no longer vector of them is one of SPIR-V's."""
        ir, per, element = self.ir, WORD // self.shape.bytes, storage_type(self.shape.type)
        kind, words = f"vector<{per}x{element}>", []
        for i in range(0, len(elements), per):
            made = ir.value(f"vector.from_elements {', '.join(elements[i : i + per])} : {kind}")
            word = ir.value(f"vector.bitcast {made} : {kind} to vector<1xi32>")
            words.append(ir.value(f"vector.extract {word}[0] : i32 from vector<1xi32>"))
        return words

    def start(self) -> tuple[str, str]:
        """See :class:`.StagedGemm`."""
        acc = self._types[2]
        zero = self.ir.constant(0, self.acc)
        return self.ir.value(f"gpu.subgroup_mma_constant_matrix {zero} : {acc}"), acc

    @property
    def _types(self) -> tuple[str, str, str]:
        s, c = self.shape, self.contraction
        a, b = (_MATRIX_TYPES.get(o.type, storage_type(o.type)) for o in (c.a, c.b))
        return (
            f'!gpu.mma_matrix<{s.m}x{s.k}x{a}, "AOp">',
            f'!gpu.mma_matrix<{s.k}x{s.n}x{b}, "BOp">',
            f'!gpu.mma_matrix<{s.m}x{s.n}x{self.acc}, "COp">',
        )

    def load(self, staged: Staged, parity: Index, first: Index, ahead: int, k: int) -> str:
        """See :class:`.StagedGemm`."""
        assert isinstance(staged, _AsStored)
        ir = self.ir
        first = ir.add(first, ahead)
        outer, inner = (first, k) if staged.inner == self.contraction.k else (k, first)
        row = ir.add(ir.mul(parity, staged.rows), outer)
        column = ir.div(inner, self.shape.per)
        flipped = ", transpose" if staged.flipped else ""
        return ir.value(
            f'"gpu.subgroup_mma_load_matrix"({staged.name}, {ir.index(row)}, {ir.index(column)})'
            f" <{{leadDimension = {staged.pitch} : index{flipped}}}>"
            f" : ({staged.kind}, index, index) -> {self._types[0 if staged is self.a else 1]}"
        )

    def multiply(self, a: str, b: str, accumulator: str) -> str:
        """See :class:`.StagedGemm`."""
        a_type, b_type, c_type = self._types
        return self.ir.value(
            f"gpu.subgroup_mma_compute {a}, {b}, {accumulator} : {a_type}, {b_type} -> {c_type}"
        )

    def store(self, accumulators: list[str]) -> None:
        """Every wave takes the same steps, so that the barriers are met by all."""
        ir, s = self.ir, self.shape
        first = ir.mul(self.wave_index, s.m)
        for index, value in enumerate(accumulators):
            i, j = divmod(index, s.columns)
            ir.emit("gpu.barrier")
            ir.emit(
                f'"gpu.subgroup_mma_store_matrix"({value}, {self.slots}, {ir.index(first)}, '
                f"{ir.index(0)}) <{{leadDimension = {s.n} : index}}> : ({self._types[2]}, "
                f"{self.slot_kind}, index, index) -> ()"
            )
            ir.emit("gpu.barrier")
            self._drain(first, i, j)

    def _drain(self, first: Index, i: int, j: int) -> None:
        """Copy one wave's slot to C, element by element."""
        ir, s, c = self.ir, self.shape, self.contraction
        row0, col0 = self.origin_of(i, j)
        for start in range(0, s.m * s.n, s.wave):
            element = ir.add(self.wave_lane, start)
            r, q = ir.div(element, s.n), ir.rem(element, s.n)
            row, column = ir.add(row0, r), ir.add(col0, q)
            inside = ir.both(ir.less(row, self.values[c.m]), ir.less(column, self.values[c.n]))
            if s.m * s.n % s.wave and start + s.wave > s.m * s.n:
                inside = ir.both(inside, ir.less(element, s.m * s.n))
            with ir.when(inside):
                slot = f"{ir.index(ir.add(first, r))}, {ir.index(q)}"
                value = ir.value(f"memref.load {self.slots}[{slot}] : {self.slot_kind}")
                where = {c.m: row, c.n: column, **({c.batch: self.batch} if c.batch else {})}
                store_element(ir, c, value, self.values, self.buffers, where, current=c.accumulator)
