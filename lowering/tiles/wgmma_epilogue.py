"""From a warpgroup's accumulators to values of C: accumulation, epilogue, packing, staged store."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import add, apply_epilogue, compute_type, convert
from .interface import STORAGE, KernelValues, storage_type
from .kernel_text import Index
from .ptx_text import PtxText, Word
from .tensor_map import ROW_BYTES

CHUNK_ROWS = 64
CHUNK_BYTES = CHUNK_ROWS * ROW_BYTES  # staged at a time by one warpgroup
BUFFERS = 2
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

    def pair(
        self, accumulated: tuple[str, str], at: tuple[dict[str, Word], dict[str, Word]]
    ) -> str:
        """Two neighbours along n as one 32-bit word of 16-bit elements."""
        ir, c = self.ir, self.contraction
        narrowed = _before_narrowing(c)
        if narrowed is not None:
            low, high = (self._value(v, w, narrowed) for v, w in zip(accumulated, at, strict=True))
            text = f"{_PACKED_CONVERSION[c.c.type]} $0, $2, $1;"
            return ir.asm(text, [(low, "f32"), (high, "f32")], result="i32", pure=True)
        halves = []
        for value, where in zip(accumulated, at, strict=True):
            done = self._value(value, where, c)
            stored = storage_type(c.c.type)
            bits = done if stored == "i16" else ir.value(f"arith.bitcast {done} : {stored} to i16")
            halves.append(ir.value(f"arith.extui {bits} : i16 to i32"))
        return ir.word(_or(ir, halves[0], ir.shl_w(halves[1], 16)))

    def word(self, accumulated: str, where: Where) -> str:
        """One 32-bit element as a word."""
        stored = storage_type(self.contraction.c.type)
        value = self._value(accumulated, where, self.contraction)
        return (
            value if stored == "i32" else self.ir.value(f"arith.bitcast {value} : {stored} to i32")
        )

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


def _or(ir: PtxText, a: Word, b: Word) -> str:
    return ir.value(f"arith.ori {ir.word(a)}, {ir.word(b)} : i32")


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


@dataclass(frozen=True, kw_only=True)
class StagedStore:
    """One warpgroup's 64 rows leave in chunks of 128 bytes a row, through the copy engine.

    The engine clips what lies outside of C. ``buffer`` is the warpgroup's own staging memory,
    ``barrier`` its named barrier, ``thread`` the place in the warpgroup, ``tensor`` the map of C.
    """

    ir: PtxText
    type: str
    buffer: Word
    barrier: Word
    thread: Word
    tensor: str

    @property
    def columns(self) -> int:
        """Columns of one chunk."""
        return ROW_BYTES // element_type(self.type).bytes

    def addresses(self) -> list[Word]:
        """Where this lane writes its four 16-byte columns of a chunk, swizzled."""
        ir = self.ir
        warp, lane = ir.shr_w(self.thread, 5), ir.and_w(self.thread, 31)
        if element_type(self.type).bytes == 2:  # stmatrix: lanes 8i to 8i+7 name the rows of i
            matrix, row = ir.shr_w(lane, 3), ir.and_w(lane, 7)
            line = ir.add_w(ir.mul_w(warp, 16), ir.mul_w(ir.and_w(matrix, 1), 8))
            start = ir.add_w(self.buffer, ir.mul_w(ir.add_w(line, row), ROW_BYTES))
            column = ir.shr_w(matrix, 1)
        else:
            row = ir.shr_w(lane, 2)
            line = ir.add_w(ir.mul_w(warp, 16), row)
            start = ir.add_w(self.buffer, ir.mul_w(line, ROW_BYTES))
            start = ir.add_w(start, ir.mul_w(ir.and_w(lane, 1), 8))
            column = ir.and_w(ir.shr_w(lane, 1), 1)
        return [
            ir.add_w(start, ir.shl_w(ir.xor_w(ir.add_w(column, 2 * i), row), 4)) for i in range(4)
        ]

    def chunk(
        self,
        index: int,
        chunks: int,
        addresses: list[Word],
        words: list[str],
        coordinates: list[Word],
    ) -> None:
        """Stage ``words`` (in the order of :func:`chunk_elements`) and have the engine store them.

        A buffer is written once the engine has read what the chunk before it there left.
        """
        ir = self.ir
        offset = index % BUFFERS * CHUNK_BYTES
        pending = _pending(index, chunks)
        text = (
            "{ .reg .pred p; .reg .b32 y; setp.eq.u32 p, $4, 0; "
            f"@p cp.async.bulk.wait_group.read {pending}; bar.sync $5, 128; "
        )
        first = 8 + len(coordinates)
        per = 4 if element_type(self.type).bytes == 2 else 2
        for i in range(4):
            names = [f"${first + 4 * i + j}" for j in range(4)]
            if per == 4:
                text += (
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 "
                    f"[${i}+{offset}], {{{', '.join(names)}}}; "
                )
            else:
                for half in range(2):
                    pair = ", ".join(names[2 * half : 2 * half + 2])
                    text += f"st.shared.v2.b32 [${i}+{offset + half * 8 * ROW_BYTES}], {{{pair}}}; "
        where = ", ".join(f"${8 + i}" for i in range(len(coordinates)))
        text += (
            f"fence.proxy.async.shared::cta; bar.sync $5, 128; add.s32 y, $6, {offset}; "
            f"@p cp.async.bulk.tensor.{len(coordinates)}d.global.shared::cta.bulk_group "
            f"[$7, {{{where}}}], [y]; @p cp.async.bulk.commit_group; }}"
        )
        operands = [(ir.word(a), "i32") for a in addresses]
        operands += [(ir.word(w), "i32") for w in (self.thread, self.barrier, self.buffer)]
        operands += [(self.tensor, "i64"), *((ir.word(c), "i32") for c in coordinates)]
        ir.asm(text, [*operands, *((w, "i32") for w in words)])

    def drain(self) -> None:
        """Until the engine has stored everything."""
        text = "{ .reg .pred p; setp.eq.u32 p, $0, 0; @p cp.async.bulk.wait_group 0; }"
        self.ir.asm(text, [(self.ir.word(self.thread), "i32")])


def _pending(index: int, chunks: int) -> int:
    """Stores that may still read while this chunk's buffer is written; chunks go round."""
    distance = 1
    while ((index - distance) % chunks) % BUFFERS != index % BUFFERS:
        distance += 1
    return distance - 1
