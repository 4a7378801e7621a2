"""Constant expressions: what they mean, against Python's own arithmetic, and what is refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.errors import ExpressionError
from dialects.expressions import MAX_DEPTH, MAX_LENGTH, Expression, ceildiv

VALUES = {"m": 128, "n": 0, "k": 3, "wave": -32}


@dataclass(frozen=True)
class Node:
    """An expression's text beside what Python computes for it; None for a division by zero."""

    text: str
    value: Callable[[], int | None]
    names: frozenset[str] = field(default_factory=frozenset)


def leaf_number(number: int) -> Node:
    return Node(f"{number}" if number >= 0 else f"(-{-number})", lambda: number)


def leaf_name(name: str) -> Node:
    return Node(name, lambda: VALUES[name], frozenset({name}))


def lifted(function: Callable[..., int], *nodes: Node) -> Callable[[], int | None]:
    """``function`` of all the values, or None where one of them is, or it divides by zero."""

    def value() -> int | None:
        values = [node.value() for node in nodes]
        if any(v is None for v in values):
            return None
        try:
            return int(function(*values))
        except ZeroDivisionError:
            return None

    return value


def shortened(is_and: bool, nodes: list[Node]) -> Callable[[], int | None]:
    """``and`` and ``or`` look no further than they must, like Python's."""

    def value() -> int | None:
        for node in nodes:
            found = node.value()
            if found is None:
                return None
            if bool(found) is not is_and:
                return int(found != 0)
        return int(is_and)

    return value


def chained(names: list[str], nodes: list[Node]) -> Callable[[], int | None]:
    """``a < b < c``, which stops at the first false one."""
    compare = {
        "<": operator.lt, "<=": operator.le, ">": operator.gt,
        ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
    }  # fmt: skip

    def value() -> int | None:
        left = nodes[0].value()
        for name, node in zip(names, nodes[1:], strict=True):
            right = node.value() if left is not None else None
            if left is None or right is None:
                return None
            if not compare[name](left, right):
                return 0
            left = right
        return 1

    return value


def joined(text: str, nodes: list[Node], value: Callable[[], int | None]) -> Node:
    return Node(text, value, frozenset().union(*(n.names for n in nodes)))


ARITHMETIC = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


def grown(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    """One operator over smaller expressions."""
    pair = st.tuples(children, children)
    several = st.lists(children, min_size=2, max_size=3)

    def binary(sign: str, ab: tuple[Node, Node]) -> Node:
        a, b = ab
        return joined(f"({a.text} {sign} {b.text})", [a, b], lifted(ARITHMETIC[sign], a, b))

    def call(name: str, nodes: list[Node]) -> Node:
        text = f"{name}({', '.join(n.text for n in nodes)})"
        return joined(text, nodes, lifted(min if name == "min" else max, *nodes))

    def rounded_up(ab: tuple[Node, Node]) -> Node:
        a, b = ab
        quotient = lifted(lambda x, y: x // y + (x % y != 0), a, b)
        return joined(f"ceildiv({a.text}, {b.text})", [a, b], quotient)

    def negated(a: Node) -> Node:
        return joined(f"(-{a.text})", [a], lifted(lambda x: -x, a))

    def inverted(a: Node) -> Node:
        return joined(f"(not {a.text})", [a], lifted(operator.not_, a))

    def logical(word: str, nodes: list[Node]) -> Node:
        text = "(" + f" {word} ".join(n.text for n in nodes) + ")"
        return joined(text, nodes, shortened(word == "and", nodes))

    def comparison(signs: list[str], nodes: list[Node]) -> Node:
        signs = signs[: len(nodes) - 1]
        rest = (f" {s} {n.text}" for s, n in zip(signs, nodes[1:], strict=True))
        return joined(f"({nodes[0].text}{''.join(rest)})", nodes, chained(signs, nodes))

    sign = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    return st.one_of(
        st.builds(binary, st.sampled_from(sorted(ARITHMETIC)), pair),
        st.builds(call, st.sampled_from(["min", "max"]), several),
        st.builds(rounded_up, pair),
        st.builds(negated, children),
        st.builds(inverted, children),
        st.builds(logical, st.sampled_from(["and", "or"]), several),
        st.builds(comparison, st.lists(sign, min_size=2, max_size=2), several),
    )


NODES = st.recursive(
    st.one_of(
        st.builds(leaf_number, st.integers(-9, 300)),
        st.builds(leaf_name, st.sampled_from(sorted(VALUES))),
    ),
    grown,
    max_leaves=8,
)


@given(NODES)
def test_an_expression_means_what_python_computes(node: Node) -> None:
    expression = Expression(node.text)
    assert expression.names == node.names
    assert str(expression) == node.text
    expected = node.value()
    if expected is None:
        with pytest.raises(ExpressionError, match="divides by zero"):
            expression.evaluate(VALUES)
    else:
        assert expression.evaluate(VALUES) == expected


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9).filter(bool))
def test_ceildiv_is_the_quotient_rounded_up(a: int, b: int) -> None:
    quotient = ceildiv(a, b)
    assert (quotient - 1) * abs(b) < a * (1 if b > 0 else -1) <= quotient * abs(b)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("m % 16 == 0 and n % 16 == 0", 1),
        ("waves_m * waves_n * wave", 256),
        ("ceildiv(k, 64)", 1),
        ("1 + 2 * 3", 7),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("1 < 2 < 2", 0),
        ("2 < 1 < m // n", 0),
        ("not 5", 0),
        ("3 and 5", 1),
        ("True + True", 2),
        ("n == 0 or m // n > 3", 1),
        ("  m  ", 64),
        ("max(m, n, k)", 64),
    ],
)
def test_examples(text: str, value: int) -> None:
    values = {"m": 64, "n": 0, "k": 32, "waves_m": 2, "waves_n": 4, "wave": 32}
    found = Expression(text).evaluate(values)
    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m / 2", "expression 'm / 2': '/' is not supported, use '//' or ceildiv"),
        ("m ** 2", "expression 'm ** 2': binop is not supported"),
        ("m << 2", "expression 'm << 2': binop is not supported"),
        ("+m", "expression '+m': unaryop is not supported"),
        ("~m", "expression '~m': unaryop is not supported"),
        ("m.n", "expression 'm.n': attribute is not supported"),
        ("m[0]", "expression 'm[0]': subscript is not supported"),
        ("abs(m)", "expression 'abs(m)': call is not supported"),
        ("min.real(m, n)", "expression 'min.real(m, n)': call is not supported"),
        ("min()", "expression 'min()': call is not supported"),
        ("min(m)", "expression 'min(m)': min takes at least 2 values, found 1"),
        ("max(m)", "expression 'max(m)': max takes at least 2 values, found 1"),
        ("min(m, *n)", "expression 'min(m, *n)': starred is not supported"),
        ("min(m, key=n)", "expression 'min(m, key=n)': call is not supported"),
        ("ceildiv(m)", "expression 'ceildiv(m)': ceildiv takes 2 values, found 1"),
        ("ceildiv(m, n, k)", "expression 'ceildiv(m, n, k)': ceildiv takes 2 values, found 3"),
        ("1.5", "expression '1.5': constant is not supported"),
        ("'m'", "expression ''m'': constant is not supported"),
        ("None", "expression 'None': constant is not supported"),
        ("m if n else k", "expression 'm if n else k': ifexp is not supported"),
        ("(m := 1)", "expression '(m := 1)': namedexpr is not supported"),
        ("lambda: m", "expression 'lambda: m': lambda is not supported"),
        ("[m]", "expression '[m]': list is not supported"),
        ("m, n", "expression 'm, n': tuple is not supported"),
        ("m in n", "expression 'm in n': compare is not supported"),
        ("m is n", "expression 'm is n': compare is not supported"),
        ("m < n in k", "expression 'm < n in k': compare is not supported"),
        ("1 + (2 * (m / 3))", "expression '1 + (2 * (m / 3))': '/' is not supported, "),
        (
            "__import__('os').system('true')",
            "expression '__import__('os').system('true')': call is not supported",
        ),
    ],
)
def test_what_the_grammar_lacks_is_refused_when_it_is_read(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    "text", ["", "   ", "m +", "m n", "m = 1", "1; 2", "m\n+ n", "(m", "\0", "1_"]
)
def test_what_does_not_parse_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    assert caught.value.message.startswith(f"expression '{text}' does not parse: ")


def test_an_unbound_name_is_named_beside_those_that_are_bound() -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression("m * depth").evaluate({"n": 1, "m": 2})
    assert caught.value.message == (
        "expression 'm * depth' names 'depth', which is not one of: m, n"
    )
    with pytest.raises(ExpressionError, match="names 'm', which is not one of: none"):
        Expression("m").evaluate({})


@pytest.mark.parametrize("text", ["m // n", "m % n", "ceildiv(m, n)", "1 and m // n"])
def test_a_division_by_zero_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(text).evaluate({"m": 1, "n": 0})
    assert caught.value.message == f"expression '{text}' divides by zero"


def test_an_expression_may_be_so_long_and_no_longer() -> None:
    text = "m * " + " " * (MAX_LENGTH - 5) + "n"
    assert Expression(text).evaluate({"m": 3, "n": 5}) == 15
    with pytest.raises(ExpressionError, match="expression of 1001 characters > 1000"):
        Expression(text + "n")


@pytest.mark.parametrize(
    ("before", "after"), [("-", ""), ("not ", ""), ("", " + m"), ("min(1,", ")")]
)
def test_an_expression_may_nest_so_deep_and_no_deeper(before: str, after: str) -> None:
    def nested(depth: int) -> str:
        return before * (depth - 1) + "m" + after * (depth - 1)

    assert isinstance(Expression(nested(MAX_DEPTH)).evaluate({"m": 1}), int)
    with pytest.raises(ExpressionError, match="nests deeper than 100"):
        Expression(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("text", ["(" * 400 + "m" + ")" * 400, "-" * 999 + "m", "not " * 249 + "m"])
def test_no_nesting_reaches_the_recursion_limit(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


def test_a_value_may_be_so_large_and_no_larger() -> None:
    assert Expression("m * 2").evaluate({"m": 1 << 126}) == 1 << 127
    for text in ("m * 2 + 1", "-m * 2 - 1", "m * m * m * m", "9" * 40):
        with pytest.raises(ExpressionError) as caught:
            Expression(text).evaluate({"m": 1 << 126})
        assert caught.value.message == f"expression '{text}' exceeds 127 bits"


def test_equal_texts_are_equal_expressions() -> None:
    assert Expression("m * n") == Expression("m * n")
    assert len({Expression("m"), Expression("m"), Expression("n")}) == 2
