"""From a warpgroup's accumulators to elements of C: accumulation, epilogue, packing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import add, apply_epilogue, compute_type, convert
from .interface import STORAGE, KernelValues, storage_type
from .kernel_text import Index
from .ptx_text import PtxText, Word
from .warpgroup_mma import ROWS

Where = dict[str, Word]
_PACKED_CONVERSION = {"f16": "cvt.rn.f16x2.f32", "bf16": "cvt.rn.bf16x2.f32"}


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Turns accumulated elements into elements of C.

    A :data:`Where` maps the names of C's sizes to an element's indices. Those outside are clamped
    before anything is loaded, since a branch of a lane's own may not stand here.
    """

    ir: PtxText
    contraction: Contraction
    values: KernelValues
    buffers: dict[str, str]

    def words(self, accumulated: tuple[str, str], at: tuple[Where, Where]) -> list[str]:
        """Two neighbours along n as 32-bit words: one of 16-bit elements, or two."""
        ir, c = self.ir, self.contraction
        stored = storage_type(c.c.type)
        narrowed = _before_narrowing(c)
        if narrowed is not None:
            low, high = (self._value(v, w, narrowed) for v, w in zip(accumulated, at, strict=True))
            text = f"{_PACKED_CONVERSION[c.c.type]} $0, $2, $1;"
            return [ir.asm(text, [(low, "f32"), (high, "f32")], result="i32", pure=True)]
        values = [self._value(v, w, c) for v, w in zip(accumulated, at, strict=True)]
        bits = f"i{element_type(c.c.type).bits}"
        if stored != bits:
            values = [ir.value(f"arith.bitcast {v} : {stored} to {bits}") for v in values]
        if bits == "i32":
            return values
        low, high = (ir.value(f"arith.extui {v} : {bits} to i32") for v in values)
        return [ir.value(f"arith.ori {low}, {ir.word(ir.shl_w(high, 16))} : i32")]

    def _value(self, value: str, where: Where, contraction: Contraction) -> str:
        current = compute_type(contraction)

        def load(operand: Operand, wanted: str) -> str:
            raw = self._load(operand, where)
            return convert(self.ir, raw, operand.type, wanted)

        if contraction.accumulate:
            value = add(self.ir, load(self.contraction.c, current), value, current)
        return apply_epilogue(self.ir, contraction, value, lanes=0, load=load, current=current)

    def _load(self, operand: Operand, where: Where) -> str:
        ir = self.ir
        indices: list[Index] = []
        for dim in operand.dims:
            index = ir.value(f"arith.index_castui {ir.word(where[dim])} : i32 to index")
            indices.append(ir.least(index, ir.sub(self.values[dim], 1)))
        at = ir.index(self.values.offset(ir, operand, indices))
        kind = f"memref<?x{storage_type(operand.type)}, {STORAGE}>"
        return ir.value(f"memref.load {self.buffers[operand.name]}[{at}] : {kind}")


def _before_narrowing(contraction: Contraction) -> Contraction | None:
    """The contraction without a last rounding from f32 to C's 16-bit type; None if it has none.

    Two elements are then rounded and packed by one instruction.
    """
    result = contraction.c
    if result.type not in _PACKED_CONVERSION:
        return None
    wide = replace(result, type="f32")
    if not contraction.epilogue:
        narrow = contraction.accumulator == result.type and not contraction.accumulate
        return replace(contraction, accumulator="f32", c=wide) if narrow else None
    *before, last = contraction.epilogue
    current = contraction.accumulator
    for step in before:
        current = step.type or current
    if last.type != result.type or current != "f32":
        return None
    return replace(contraction, epilogue=tuple(before), c=wide)


class Words:
    """This thread's elements of one tile, finished and packed when asked for.

    ``row`` and ``column`` are those of the warpgroup's first element; the thread's own first one
    is at ``own_row`` and ``own_column``.
    """

    def __init__(
        self,
        finish: Finish,
        values: Sequence[str],
        columns: int,
        thread: Word,
        origin: tuple[Word, ...],
    ) -> None:
        """``values`` are blocks of 64 rows by ``columns``, as an instruction leaves them.

        ``thread`` is the place in the warpgroup, ``origin`` the row, column and batch.
        """
        self.ir = ir = finish.ir
        self.contraction = finish.contraction
        self.row, self.column, self.batch = origin
        self.columns = columns
        self._finish, self._per_block = finish, columns // 2
        self._values = values
        warp, lane = ir.shr_w(thread, 5), ir.and_w(thread, 31)
        self.own_row = ir.add_w(self.row, ir.add_w(ir.mul_w(warp, 16), ir.shr_w(lane, 2)))
        self.own_column = ir.add_w(self.column, ir.mul_w(ir.and_w(lane, 3), 2))

    def pair(self, block: int, group: int, half: int) -> list[str]:
        """The two neighbours of a block, a group of 8 columns and a half of 8 rows."""
        ir, c = self._finish.ir, self._finish.contraction
        start = block * self._per_block + 4 * group + 2 * half
        at: Where = {c.m: ir.add_w(self.own_row, block * ROWS + 8 * half)}
        at |= {c.batch: self.batch} if c.batch else {}
        first, second = ({**at, c.n: ir.add_w(self.own_column, 8 * group + e)} for e in range(2))
        return self._finish.words((self._values[start], self._values[start + 1]), (first, second))
