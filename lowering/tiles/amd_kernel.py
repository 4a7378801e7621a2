"""The device function of the bodies on AMD matrix instructions.

An instruction takes runs of neighbouring k of one row of A or one column of B, so both operands lie
in workgroup memory with k innermost, whatever their order in memory: what is stored the other way
is turned in registers on its way there.
"""

from __future__ import annotations

from contextlib import nullcontext

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .amd_fragments import Fragment
from .gemm_store import store_element
from .interface import SHARED, storage_type
from .kernel_text import Index
from .operand_source import Fetched
from .staged_gemm import BUFFERS, WIDE_BYTES, Copied, MatrixShape, Staged, StagedGemm

_LEAST_STORE = 4  # bytes: a bank of workgroup memory


def amd_shared_bytes(shape: MatrixShape) -> int:
    """Workgroup memory: both buffers of A and B, k innermost."""
    return BUFFERS * (shape.tile.m + shape.tile.n) * (shape.tile.k + shape.pad) * shape.bytes


def turned_depth(shape: MatrixShape, total: int) -> int:
    """Rows of k that a lane copies at once of an operand that is turned.

    As many as one store can take while every lane has some of the ``total`` units to copy.
    """
    depth = WIDE_BYTES // shape.bytes
    while shape.tile.k % depth:
        depth //= 2
    while depth * shape.bytes > _LEAST_STORE and total // depth < shape.threads:
        depth //= 2
    return depth


class _InnermostK(Staged):
    """One operand in workgroup memory: [BUFFERS * extent][k + pad] elements, flat.

    Flat, so that what differs between two places of a lane is a constant that fits the instruction.
    ``turned`` says that its contiguous axis in memory is not k.
    """

    def __init__(self, kernel: StagedGemm, operand: Operand, outer: str, inner: str) -> None:
        shape, k = kernel.shape, kernel.contraction.k
        self.turned = inner != k
        depth = 1
        if self.turned:
            extent = kernel.tile.m if operand is kernel.contraction.a else kernel.tile.n
            depth = turned_depth(shape, extent * kernel.tile.k // shape.per)
        wide = self.turned and shape.wide
        super().__init__(kernel, operand, outer, inner, depth=depth, down=wide)
        self.extent = self.width if self.turned else self.rows
        self.element = storage_type(operand.type)
        self.pitch = kernel.tile.k + shape.pad
        self.size = self.extent * self.pitch
        self.kind = f"memref<{BUFFERS * self.size}x{self.element}, {SHARED}>"
        self.name = kernel.ir.value(f"memref.alloc() : {self.kind}", "shared")


class AmdKernel(StagedGemm):
    """WMMA or MFMA from workgroup memory; each lane stores its own sums."""

    def __init__(
        self, contraction: Contraction, shape: MatrixShape, layout: str, fragment: Fragment
    ) -> None:
        super().__init__(contraction, shape, layout)
        ir = self.ir
        self.fragment = fragment
        self.op = "amdgpu.mfma" if fragment.wave == 64 else "amdgpu.wmma"
        self.across = ir.rem(self.wave_lane, fragment.m)
        self.group = ir.div(self.wave_lane, fragment.m)
        self.lane_k: Index = ir.mul(self.group, fragment.k_run) if fragment.k_lanes > 1 else 0
        self.lane_row = ir.mul(self.group, fragment.row_step)
        self.acc_kind = f"vector<{fragment.sums * fragment.step}x{self.acc}>"

    def stage(self, operand: Operand, outer: str, inner: str) -> _InnermostK:
        """See :class:`.StagedGemm`."""
        return _InnermostK(self, operand, outer, inner)

    def put(self, staged: Staged, values: list[Copied], buffer: Index) -> None:
        """See :class:`.StagedGemm`."""
        assert isinstance(staged, _InnermostK)
        ir = self.ir
        start = ir.mul(buffer, staged.size)
        for index in range(staged.passes):
            unit, row, column = staged.place(self, index)
            inner = ir.mul(column, staged.per)
            mine = values[index * staged.depth : (index + 1) * staged.depth]
            along = (inner, row) if staged.turned else (row, inner)
            first = ir.add(start, ir.add(ir.mul(along[0], staged.pitch), along[1]))
            step = staged.pitch if staged.turned else self._run(staged)
            partial = (index + 1) * self.shape.threads > staged.total
            with ir.when(ir.less(unit, staged.total)) if partial else nullcontext():
                for number, value in enumerate(self._runs(staged, mine)):
                    self._put_run(staged, value, ir.add(first, number * step))

    def _run(self, staged: _InnermostK) -> int:
        """Neighbouring k that are stored at once."""
        if staged.turned:
            return staged.depth
        return min(staged.per, WIDE_BYTES // self.shape.bytes)

    def _runs(self, staged: _InnermostK, copied: list[Copied]) -> list[str]:
        """What to store of one copy: vectors along k, or lone elements."""
        if staged.source is None:
            units = [unit for unit in copied if isinstance(unit, str)]
            return self._turn(units) if staged.turned else [self._elements(units[0])]
        (fetched,) = copied
        assert isinstance(fetched, Fetched)
        elements, run = staged.source.decode(fetched), self._run(staged)
        return [self._vector(elements[i : i + run]) for i in range(0, len(elements), run)]

    def _vector(self, elements: list[str]) -> str:
        made = f"vector<{len(elements)}x{storage_type(self.shape.type)}>"
        return self.ir.value(f"vector.from_elements {', '.join(elements)} : {made}")

    def _elements(self, unit: str) -> str:
        """A copied unit as a vector of elements; a lone element as it is."""
        if not self.shape.wide:
            return unit
        kind = f"vector<{self.shape.per}x{storage_type(self.shape.type)}>"
        return self.ir.value(f"vector.bitcast {unit} : {self.shape.unit} to {kind}")

    def _turn(self, rows: list[str]) -> list[str]:
        """The columns of a block of copied rows, each a vector along k, or its only element."""
        ir, per = self.ir, self.shape.per
        element = storage_type(self.shape.type)
        if self.shape.wide:
            kind = f"vector<{per}x{element}>"
            units = [self._elements(r) for r in rows]
            cells = [
                [ir.value(f"vector.extract {u}[{j}] : {element} from {kind}") for u in units]
                for j in range(per)
            ]
        else:
            cells = [rows]
        if len(rows) == 1:
            return [cell for (cell,) in cells]
        return [self._vector(cell) for cell in cells]

    def _put_run(self, staged: _InnermostK, value: str, place: Index) -> None:
        """Store a run of k, or one element where the copy is no wider."""
        ir, count = self.ir, self._run(staged)
        slot = f"{staged.name}[{ir.index(place)}]"
        if count == 1:
            ir.emit(f"memref.store {value}, {slot} : {staged.kind}")
            return
        ir.emit(
            f"vector.store {value}, {slot} alignment = {count * self.shape.bytes}"
            f" : {staged.kind}, vector<{count}x{staged.element}>"
        )

    def start(self) -> tuple[str, str]:
        """See :class:`.StagedGemm`."""
        return self.ir.constant(0, self.acc_kind), self.acc_kind

    @property
    def _operand_kind(self) -> str:
        """A run of k; a lone element is no vector."""
        run, element = self.fragment.k_run, storage_type(self.shape.type)
        return f"vector<{run}x{element}>" if run > 1 else element

    def load(self, staged: Staged, parity: Index, first: Index, ahead: int, k: int) -> str:
        """See :class:`.StagedGemm`."""
        assert isinstance(staged, _InnermostK)
        ir = self.ir
        mine = ir.add(ir.mul(ir.add(first, self.across), staged.pitch), self.lane_k)
        place = ir.add(ir.add(mine, ir.mul(parity, staged.size)), ahead * staged.pitch + k)
        if self.fragment.k_run == 1:
            return ir.value(f"memref.load {staged.name}[{ir.index(place)}] : {staged.kind}")
        alignment = min(WIDE_BYTES, self.fragment.k_run * self.shape.bytes)
        return ir.value(
            f"vector.load {staged.name}[{ir.index(place)}] alignment = {alignment}"
            f" : {staged.kind}, {self._operand_kind}"
        )

    def multiply(self, a: str, b: str, accumulator: str) -> str:
        """See :class:`.StagedGemm`."""
        f, kind = self.fragment, self._operand_kind
        unsigned = element_type(self.shape.type).kind == "unsigned"
        flags = " unsignedA unsignedB" if unsigned else ""
        return self.ir.value(
            f"{self.op} {f.m}x{f.n}x{f.k} {a} * {b} + {accumulator}{flags}"
            f" : {kind}, {kind}, {self.acc_kind}"
        )

    def store(self, accumulators: list[str]) -> None:
        """See :class:`.StagedGemm`."""
        ir, s, c = self.ir, self.shape, self.contraction
        for index, sums in enumerate(accumulators):
            row0, col0 = self.origin_of(*divmod(index, s.columns))
            first, column = ir.add(row0, self.lane_row), ir.add(col0, self.across)
            with ir.when(ir.less(column, self.values[c.n])):
                for element in range(self.fragment.sums):
                    self._store_sum(
                        sums, element, ir.add(first, self.fragment.row(element)), column
                    )

    def _store_sum(self, sums: str, element: int, row: Index, column: Index) -> None:
        ir, c = self.ir, self.contraction
        with ir.when(ir.less(row, self.values[c.m])):
            position = element * self.fragment.step
            value = ir.value(f"vector.extract {sums}[{position}] : {self.acc} from {self.acc_kind}")
            where = {c.m: row, c.n: column, **({c.batch: self.batch} if c.batch else {})}
            store_element(ir, c, value, self.values, self.buffers, where, current=c.accumulator)
