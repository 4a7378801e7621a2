"""The writer of MLIR text: numbers fold away, constants are hoisted, names never clash."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.expressions import ceildiv
from lowering.ir import context, parse_module
from lowering.tiles.kernel_text import Index, KernelText

NUMBERS = st.integers(0, 1 << 40)
Op = Callable[[KernelText, Index, Index], Index]
FOLDS: list[tuple[Op, Callable[[int, int], int]]] = [
    (KernelText.add, operator.add),
    (KernelText.sub, operator.sub),
    (KernelText.mul, operator.mul),
    (KernelText.div, operator.floordiv),
    (KernelText.rem, operator.mod),
    (KernelText.ceildiv, ceildiv),
    (KernelText.least, min),
    (KernelText.greatest, max),
]


def parses(ir: KernelText, arguments: str = "") -> str:
    """The canonical text of what was written, as the body of a function."""
    with context() as ctx:
        body = f"func.func @f({arguments}) {{\n{ir.text()}\n  return\n}}"
        return str(parse_module(body, "written", ctx))


@pytest.mark.parametrize(("op", "fold"), FOLDS, ids=lambda f: f.__name__)
@given(a=NUMBERS, b=NUMBERS)
def test_numbers_fold(op: Op, fold: Callable[[int, int], int], a: int, b: int) -> None:
    """Two numbers give a number, and no text."""
    if fold in (operator.floordiv, operator.mod, ceildiv) and not b:
        return
    ir = KernelText()
    assert op(ir, a, b) == fold(a, b)
    assert ir.text() == ""


def test_neutral_operands_write_nothing() -> None:
    ir = KernelText()
    x = "%x"
    assert [ir.add(x, 0), ir.add(0, x), ir.sub(x, 0), ir.mul(x, 1), ir.mul(1, x)] == [x] * 5
    assert [ir.div(x, 1), ir.ceildiv(x, 1), ir.rem(x, 1)] == [x, x, 0]
    assert ir.text() == ""


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (KernelText.add, "addi"),
        (KernelText.sub, "subi"),
        (KernelText.mul, "muli"),
        (KernelText.div, "divui"),
        (KernelText.rem, "remui"),
        (KernelText.ceildiv, "ceildivui"),
        (KernelText.least, "minui"),
        (KernelText.greatest, "maxui"),
    ],
)
def test_values_become_ops(op: Op, name: str) -> None:
    ir = KernelText(indent=2)
    assert op(ir, "%x", 7) == "%v_1"
    assert ir.text() == f"  %c0 = arith.constant 7 : index\n  %v_1 = arith.{name} %x, %c0 : index"


def test_constants_are_hoisted_and_shared() -> None:
    """One definition a literal and type, above all else, wherever it was asked for."""
    ir = KernelText(indent=0)
    with ir.loop(0, "%n", 1) as i, ir.when(ir.less(i, 8)):
        ir.emit(f'"test.use"({ir.constant(0, "index")}, {ir.constant(0, "f32")}) : (index, f32)')
    first = ir.text().index("scf.for")
    definitions = re.findall(r"(%c\d+) = arith.constant (.*)", ir.text())
    assert len({text for _, text in definitions}) == len(definitions) == 4
    assert all(ir.text().index(f"{name} =") < first for name, _ in definitions)


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (3, "index", "3"),
        (0.1, "f32", "1.0000000000000001e-01"),
        (1 / 3, "f64", "3.3333333333333331e-01"),
        (2, "f16", "2.0000000000000000e+00"),
        (1.5, "vector<4xbf16>", "dense<1.5000000000000000e+00>"),
        (2.0, "i32", "2"),
        (-1, "vector<16xi8>", "dense<-1>"),
    ],
)
def test_literals(value: float, type_: str, text: str) -> None:
    """A float keeps every bit that a double has."""
    ir = KernelText(indent=0)
    ir.constant(value, type_)
    assert ir.text() == f"%c0 = arith.constant {text} : {type_}"
    assert "arith.constant" in parses(ir)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_round_trip(value: float) -> None:
    ir = KernelText(indent=0)
    ir.constant(value, "f64")
    assert float(ir.text().split()[3]) == value


@given(hints=st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), max_size=30))
def test_names_are_unique(hints: list[str]) -> None:
    """Hints are names of sizes, which authors choose; ``c1`` and ``v_1`` among them."""
    ir = KernelText()
    names = [ir.name(h) for h in hints] + [ir.constant(i, "index") for i in range(12)]
    assert len(set(names)) == len(names)


def test_regions_and_carried_values_parse() -> None:
    """Loops, conditions with both branches, and what a loop carries, as the parser reads them."""
    ir = KernelText(indent=2)
    zero = ir.constant(0, "f32")

    def body(i: str, carried: list[str]) -> list[str]:
        with ir.when(ir.both(ir.less(i, 4), ir.less("%n", i))):
            ir.emit("memref.store %x, %m[%n] : memref<?xf32>")
            ir.otherwise()
            ir.emit("memref.store %x, %m[%n] : memref<?xf32>")
        first, second = carried
        return [ir.select(ir.less(i, 2), first, second, "f32"), first]

    sums = ir.carried_loop(0, "%n", 1, [zero, zero], "f32", body)
    ir.emit(f"memref.store {sums[1]}, %m[%n] : memref<?xf32>")
    text = parses(ir, "%n: index, %x: f32, %m: memref<?xf32>")
    assert "iter_args" in text
    assert "} else {" in text
    assert re.search(r"memref.store %\d+#1", text)
