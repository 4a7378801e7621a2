"""The writer of NVIDIA kernels: 32-bit arithmetic that folds, raw addresses, and inline PTX.

``llvm.inline_asm`` is not convergent: a branch on a lane's or thread's own value upstream of an
``.aligned`` instruction gets the instruction duplicated, and the kernel hangs. Predicates of a
single lane therefore go into the text of the instruction, and every ``.aligned`` mnemonic that is
emitted is counted, so that the artifact can be checked against it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from .interface import SHARED
from .kernel_text import KernelText

Word = str | int  # an SSA name of type i32, or a Python constant that folds away
_ALIGNED = re.compile(r"\b([a-z][\w.:]*\.aligned)\b")
_CONSTRAINTS = {"i32": "r", "i64": "l", "f32": "f", "i16": "h"}


class PtxText(KernelText):
    """Adds 32-bit words, addresses and inline PTX to :class:`KernelText`."""

    def __init__(self, indent: int = 6) -> None:
        super().__init__(indent)
        self.aligned: Counter[str] = Counter()

    def word(self, value: Word) -> str:
        """The SSA name of a 32-bit word."""
        return self.index(value, "i32")

    def add_w(self, a: Word, b: Word) -> Word:
        """a + b."""
        return self.add(a, b, "i32")

    def sub_w(self, a: Word, b: Word) -> Word:
        """a - b."""
        return self.sub(a, b, "i32")

    def mul_w(self, a: Word, b: Word) -> Word:
        """a * b."""
        return self.mul(a, b, "i32")

    def div_w(self, a: Word, b: Word) -> Word:
        """a // b of unsigned words."""
        return self.div(a, b, "i32")

    def ceildiv_w(self, a: Word, b: int) -> Word:
        """a / b of unsigned words, rounded up; a + b stays below 2^32."""
        return self.div_w(self.add_w(a, b - 1), b)

    def rem_w(self, a: Word, b: Word) -> Word:
        """a mod b of unsigned words."""
        return self.rem(a, b, "i32")

    def and_w(self, a: Word, b: Word) -> Word:
        """Bitwise and."""
        return self._arith("andi", a, b, lambda x, y: x & y, "i32")

    def xor_w(self, a: Word, b: Word) -> Word:
        """Bitwise exclusive or."""
        return self.xor(a, b, "i32")

    def shl_w(self, a: Word, bits: int) -> Word:
        """a shifted left."""
        return a if bits == 0 else self._arith("shli", a, bits, lambda x, y: x << y, "i32")

    def shr_w(self, a: Word, bits: int) -> Word:
        """a shifted right, unsigned."""
        return a if bits == 0 else self._arith("shrui", a, bits, lambda x, y: x >> y, "i32")

    def bit_w(self, a: Word, bit: int) -> Word:
        """One bit of a word, 0 or 1."""
        return self.and_w(self.shr_w(a, bit), 1)

    def least_w(self, a: Word, b: Word) -> Word:
        """min(a, b) of unsigned words."""
        return self.least(a, b, "i32")

    def compare_w(self, predicate: str, a: Word, b: Word) -> str:
        """An i1; ``predicate`` is one of arith.cmpi."""
        return self.value(f"arith.cmpi {predicate}, {self.word(a)}, {self.word(b)} : i32", "p")

    def select_w(self, condition: str, a: Word, b: Word) -> Word:
        """``condition ? a : b``."""
        return a if a == b else self.select(condition, self.word(a), self.word(b), "i32")

    def from_index(self, index: str) -> str:
        """An index as a 32-bit word."""
        return self.value(f"arith.index_cast {index} : index to i32")

    def loop_w(
        self,
        begin: Word,
        end: Word,
        step: Word,
        initial: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """``scf.for`` over words that carries (name, type) values; ``body`` gives the next ones."""
        variable, result = self.name("i"), self.name("r")
        carried = [self.name("a") for _ in initial]
        types = ", ".join(t for _, t in initial)
        head = f"scf.for {variable} = {self.word(begin)} to {self.word(end)} step {self.word(step)}"
        if initial:
            pairs = ", ".join(f"{c} = {n}" for c, (n, _) in zip(carried, initial, strict=True))
            head = f"{result}:{len(initial)} = {head} iter_args({pairs}) -> ({types})"
        with self.block(f"{head} : i32 {{"):
            values = body(variable, carried)
            if initial:
                self.emit(f"scf.yield {', '.join(values)} : {types}")
        return [f"{result}#{i}" for i in range(len(initial))]

    def wide(self, a: Word) -> str:
        """An unsigned word as i64."""
        return self.value(f"arith.extui {self.word(a)} : i32 to i64")

    def add_d(self, a: str, b: str | int) -> str:
        """a + b of 64-bit words, addresses among them."""
        return a if b == 0 else self.value(f"arith.addi {a}, {self.index(b, 'i64')} : i64")

    def mul_d(self, a: str, b: str | int) -> str:
        """a * b of 64-bit words."""
        return a if b == 1 else self.value(f"arith.muli {a}, {self.index(b, 'i64')} : i64")

    def address_of(self, memref: str, type_: str, integer: str) -> str:
        """The address of a memref's first element as i64 (global) or i32 (workgroup memory)."""
        index = self.value(
            f"memref.extract_aligned_pointer_as_index {memref} : {type_} -> index", "address"
        )
        return self.value(f"arith.index_cast {index} : index to {integer}", "address")

    def workgroup_bytes(self, count: int, alignment: int = 1024) -> str:
        """The 32-bit address of ``count`` bytes of workgroup memory.

        1024 is the atom of the 128-byte swizzle (PTX ISA, tensor swizzling modes); the assembler
        places the one dynamic block there as long as nothing static precedes it.
        """
        type_ = f"memref<{count}xi8, {SHARED}>"
        memory = self.value(
            f'"memref.alloc"() <{{alignment = {alignment} : i64, '
            f"operandSegmentSizes = array<i32: 0, 0>}}> : () -> {type_}",
            "shared",
        )
        return self.address_of(memory, type_, "i32")

    def asm(
        self,
        text: str,
        operands: Sequence[tuple[str, str]] = (),
        *,
        result: str | None = None,
        pure: bool = False,
        early: bool = False,
    ) -> str:
        """One ``llvm.inline_asm``; ``$0`` is the result when there is one, operands follow.

        ``operands`` are (SSA name, type) with types i16, i32, i64 or f32; the result, of one of
        those types, is returned. ``pure`` marks what reads no memory and may be moved or dropped,
        ``early`` a result that is written before the last operand has been read.
        """
        written = "=&" if early else "="
        constraints = [f"{written}{_CONSTRAINTS[result]}"] if result else []
        constraints += [_CONSTRAINTS[type_] for _, type_ in operands]
        return self._asm(text, constraints, operands, result, pure)

    def asm_in_place(
        self, text: str, struct: str, values: Sequence[str], inputs: Sequence[tuple[str, str]] = ()
    ) -> str:
        """An ``llvm.inline_asm`` that updates ``values``, f32 or i32 registers, in one struct.

        ``$0`` to ``$n-1`` are the registers, the inputs follow; the new struct is returned. Tied
        operands keep an accumulator in its registers, without copies.
        """
        kind = "f" if "f32" in struct else "r"
        scalar = "f32" if kind == "f" else "i32"
        constraints = [f"={kind}"] * len(values)
        constraints += [_CONSTRAINTS[type_] for _, type_ in inputs]
        constraints += [str(i) for i in range(len(values))]
        return self._asm(
            text, constraints, [*inputs, *((v, scalar) for v in values)], struct, pure=False
        )

    def _asm(
        self,
        text: str,
        constraints: list[str],
        operands: Sequence[tuple[str, str]],
        result: str | None,
        pure: bool,
    ) -> str:
        self.aligned.update(_ALIGNED.findall(text))
        if not pure:
            constraints = [*constraints, "~{memory}"]
        names, types = (", ".join(o[i] for o in operands) for i in (0, 1))
        line = (
            f'llvm.inline_asm {"" if pure else "has_side_effects "}"{text}", '
            f'"{",".join(constraints)}" {names} : ({types}) -> {result or "()"}'
        )
        if result is None:
            self.emit(line)
            return ""
        return self.value(line, "asm")

    def asm_values(
        self,
        text: str,
        types: Sequence[str],
        operands: Sequence[tuple[str, str]],
        *,
        early: bool = False,
    ) -> list[str]:
        """An ``llvm.inline_asm`` with several results ``$0`` to ``$n-1``; the operands follow.

        ``early`` is that of :meth:`asm`.
        """
        struct = f"!llvm.struct<({', '.join(types)})>"
        written = "=&" if early else "="
        constraints = [f"{written}{_CONSTRAINTS[t]}" for t in types]
        constraints += [_CONSTRAINTS[t] for _, t in operands]
        made = self._asm(text, constraints, operands, struct, pure=False)
        return self.fields(made, struct, len(types))

    def long(self, op: str, a: str, b: str | int) -> str:
        """An ``arith`` operation on i64; a Python integer becomes a constant."""
        return self.value(f"arith.{op} {a}, {self.index(b, 'i64')} : i64")

    def to_index(self, word: Word) -> str:
        """An unsigned word as an index."""
        return self.value(f"arith.index_castui {self.word(word)} : i32 to index")

    def fields(self, struct: str, type_: str, count: int) -> list[str]:
        """The members of an LLVM struct."""
        return [self.value(f"llvm.extractvalue {struct}[{i}] : {type_}") for i in range(count)]


def struct_type(scalar: str, count: int) -> str:
    """``!llvm.struct<(f32, f32, ...)>``."""
    return f"!llvm.struct<({', '.join([scalar] * count)})>"
