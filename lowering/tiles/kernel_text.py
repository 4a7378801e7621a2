"""A small writer of MLIR text: fresh SSA names, constants hoisted, integer folding, indentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Index = str | int  # an SSA name of type index, or a Python constant that folds away
MAX_UNROLLED = 1024  # elements of a lane's tile, or staged by a lane: the text holds each of them


class KernelText:
    """Collects the body of one function. Python integers stay symbolic until an op needs them."""

    def __init__(self, indent: int = 6) -> None:
        self._lines: list[str] = []
        self._constants: dict[tuple[str, str], str] = {}
        self._count = 0
        self._indent = indent
        self._depth = indent

    def name(self, hint: str = "v") -> str:
        """A name that nothing else uses."""
        self._count += 1
        return f"%{hint}_{self._count}"  # never one of the constants, whose names are %c<n>

    def emit(self, text: str) -> None:
        """Add one line."""
        self._lines.append(" " * self._depth + text)

    def value(self, text: str, hint: str = "v") -> str:
        """Add ``%new = text`` and return the new name."""
        result = self.name(hint)
        self.emit(f"{result} = {text}")
        return result

    def constant(self, literal: str | int | float, type_: str) -> str:
        """A constant of that type, defined once at the top of the function."""
        text = _literal(literal, type_)
        key = (text, type_)
        if key not in self._constants:
            self._constants[key] = f"%c{len(self._constants)}"
        return self._constants[key]

    def index(self, value: Index, type_: str = "index") -> str:
        """The SSA name of an index, or of another integer type."""
        return self.constant(value, type_) if isinstance(value, int) else value

    def _arith(
        self, op: str, a: Index, b: Index, fold: Callable[[int, int], int], type_: str
    ) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return fold(a, b)
        return self.value(f"arith.{op} {self.index(a, type_)}, {self.index(b, type_)} : {type_}")

    def add(self, a: Index, b: Index, type_: str = "index") -> Index:
        """a + b."""
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._arith("addi", a, b, lambda x, y: x + y, type_)

    def sub(self, a: Index, b: Index, type_: str = "index") -> Index:
        """a - b."""
        return a if b == 0 else self._arith("subi", a, b, lambda x, y: x - y, type_)

    def mul(self, a: Index, b: Index, type_: str = "index") -> Index:
        """a * b."""
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self._arith("muli", a, b, lambda x, y: x * y, type_)

    def div(self, a: Index, b: Index, type_: str = "index") -> Index:
        """a // b of unsigned values."""
        return a if b == 1 else self._arith("divui", a, b, lambda x, y: x // y, type_)

    def ceildiv(self, a: Index, b: Index) -> Index:
        """a / b of unsigned values, rounded up."""
        return a if b == 1 else self._arith("ceildivui", a, b, lambda x, y: -(-x // y), "index")

    def rem(self, a: Index, b: Index, type_: str = "index") -> Index:
        """a mod b of unsigned values."""
        return 0 if b == 1 else self._arith("remui", a, b, lambda x, y: x % y, type_)

    def xor(self, a: Index, b: Index, type_: str = "index") -> Index:
        """a ^ b."""
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self._arith("xori", a, b, lambda x, y: x ^ y, type_)

    def least(self, a: Index, b: Index, type_: str = "index") -> Index:
        """min(a, b) of unsigned values."""
        return self._arith("minui", a, b, min, type_)

    def greatest(self, a: Index, b: Index) -> Index:
        """max(a, b) of unsigned values."""
        return self._arith("maxui", a, b, max, "index")

    def less(self, a: Index, b: Index) -> str:
        """a < b of unsigned values, an i1."""
        return self.value(f"arith.cmpi ult, {self.index(a)}, {self.index(b)} : index", "p")

    def both(self, a: str, b: str) -> str:
        """Logical and of two i1."""
        return self.value(f"arith.andi {a}, {b} : i1", "p")

    def select(self, condition: str, a: str, b: str, type_: str) -> str:
        """``condition ? a : b``."""
        return self.value(f"arith.select {condition}, {a}, {b} : {type_}")

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """An indented region."""
        self.emit(head)
        self._depth += 2
        yield
        self._depth -= 2
        self.emit(tail)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """``scf.if`` without results."""
        with self.block(f"scf.if {condition} {{"):
            yield

    def otherwise(self) -> None:
        """Start the else branch of the block that is open."""
        self._depth -= 2
        self.emit("} else {")
        self._depth += 2

    @contextmanager
    def loop(self, begin: Index, end: Index, step: Index, hint: str = "i") -> Iterator[str]:
        """``scf.for`` without carried values; yields the induction variable."""
        variable = self.name(hint)
        bounds = f"{self.index(begin)} to {self.index(end)} step {self.index(step)}"
        with self.block(f"scf.for {variable} = {bounds} {{"):
            yield variable

    def carried_loop(
        self,
        begin: Index,
        end: Index,
        step: Index,
        initial: Sequence[str],
        type_: str,
        body: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """``scf.for`` that carries values of one type; ``body`` maps them to the next ones."""
        variable, result = self.name("i"), self.name("r")
        carried = [self.name("a") for _ in initial]
        pairs = ", ".join(f"{c} = {i}" for c, i in zip(carried, initial, strict=True))
        types = ", ".join([type_] * len(initial))
        bounds = f"{self.index(begin)} to {self.index(end)} step {self.index(step)}"
        head = f"{result}:{len(initial)} = scf.for {variable} = {bounds}"
        with self.block(f"{head} iter_args({pairs}) -> ({types}) {{"):
            self.emit(f"scf.yield {', '.join(body(variable, carried))} : {types}")
        return [f"{result}#{i}" for i in range(len(initial))]

    def text(self) -> str:
        """The constants, then the lines."""
        pad = " " * self._indent
        head = [f"{pad}{n} = arith.constant {v} : {t}" for (v, t), n in self._constants.items()]
        return "\n".join([*head, *self._lines])


def _literal(value: str | int | float, type_: str) -> str:
    if isinstance(value, str):
        return value
    scalar = type_[:-1].rpartition("x")[2] if type_.startswith("vector") else type_
    text = f"{float(value):.16e}" if scalar[0] in "fb" else str(int(value))
    return f"dense<{text}>" if type_.startswith("vector") else text
