"""Constant integer expressions of declarations and manifests: ``m % 16 == 0``, ``ceildiv(M, 64)``.

The grammar is a small part of Python's, read with :mod:`ast` and never evaluated by Python itself:
integers, names, ``+ - * // % min max ceildiv``, comparisons (chained too), ``and or not``.
``/`` is refused, because it would be ambiguous between the two divisions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from .errors import ExpressionError

MAX_LENGTH = 1000
MAX_DEPTH = 100  # far from Python's recursion limit, whatever stack evaluates it
MAX_MAGNITUDE = 1 << 127  # keeps a product chain from growing without bound

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def ceildiv(a: int, b: int) -> int:
    """The quotient rounded up."""
    return -(-a // b)


_CALLS: dict[str, Callable[..., int]] = {"min": min, "max": max, "ceildiv": ceildiv}


@dataclass(frozen=True)
class Expression:
    """One parsed expression; ``str`` gives its text back."""

    text: str

    def __post_init__(self) -> None:
        _parse(self.text)

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> frozenset[str]:
        """The free names, without the functions."""
        tree = _parse(self.text)
        called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
        return frozenset(
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called
        )

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Evaluate with ``values``; truth values are 0 and 1.

        Raises:
            ExpressionError: an unbound name (named), a division by zero, a value out of range.
        """
        return evaluate(self.text, values)


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """The value of an expression's text, as :meth:`Expression.evaluate`.

    A text is read once: later calls run what was made of it.
    """
    return int(_compiled(text)(values))


@lru_cache(maxsize=1024)
def _parse(text: str) -> ast.Expression:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression of {len(text)} characters > {MAX_LENGTH}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        _check(tree.body, text, MAX_DEPTH)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"expression '{text}' does not parse: {error}") from None
    return tree


def _check(node: ast.expr, text: str, depth: int) -> None:
    if not depth:
        raise ExpressionError(f"expression '{text}' nests deeper than {MAX_DEPTH}")
    match node:
        case ast.Constant(value=int() | bool()) | ast.Name():
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            children = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            children = [operand]
        case ast.BoolOp(values=values):
            children = values
        case ast.Compare(left=left, ops=ops, comparators=rest) if all(
            type(o) in _COMPARE for o in ops
        ):
            children = [left, *rest]
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and args:
            if len(args) < 2 or (name == "ceildiv" and len(args) > 2):
                least = "" if name == "ceildiv" else "at least "
                raise ExpressionError(
                    f"expression '{text}': {name} takes {least}2 values, found {len(args)}"
                )
            children = args
        case ast.BinOp(op=ast.Div()):
            raise ExpressionError(f"expression '{text}': '/' is not supported, use '//' or ceildiv")
        case _:
            raise ExpressionError(
                f"expression '{text}': {type(node).__name__.lower()} is not supported"
            )
    for child in children:
        _check(child, text, depth - 1)


_Compiled = Callable[[Mapping[str, int]], int]


@lru_cache(maxsize=4096)
def _compiled(text: str) -> _Compiled:
    return _compile(_parse(text).body, text)


def _compile(node: ast.expr, text: str) -> _Compiled:
    """A function of the values; what it may raise is that of :meth:`Expression.evaluate`."""
    match node:
        case ast.Constant(value=value):
            constant = _in_range(int(value), text)  # type: ignore[arg-type]
            return lambda values: constant
        case ast.Name(id=name):
            return _name(name, text)
        case ast.BinOp(left=left, op=op, right=right):
            divides = isinstance(op, ast.FloorDiv | ast.Mod)
            return _call(_BINARY[type(op)], [left, right], text, divides=divides)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _call(operator.not_, [operand], text)
        case ast.UnaryOp(operand=operand):
            return _call(lambda value: -value, [operand], text)
        case ast.BoolOp(op=op, values=operands):
            return _boolean(all if isinstance(op, ast.And) else any, operands, text)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            return _compare([left, *rest], [_COMPARE[type(o)] for o in ops], text)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(_CALLS[name], args, text, divides=name == "ceildiv")
    raise ExpressionError(f"expression '{text}' is not supported")


def _in_range(value: int, text: str) -> int:
    if -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE:
        return value
    raise ExpressionError(f"expression '{text}' exceeds {MAX_MAGNITUDE.bit_length() - 1} bits")


def _name(name: str, text: str) -> _Compiled:
    def look_up(values: Mapping[str, int]) -> int:
        try:
            value = values[name]
        except KeyError:
            known = ", ".join(sorted(values)) or "none"
            raise ExpressionError(
                f"expression '{text}' names '{name}', which is not one of: {known}"
            ) from None
        return value if -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE else _in_range(value, text)

    return look_up


def _call(
    function: Callable[..., int], nodes: Sequence[ast.expr], text: str, *, divides: bool = False
) -> _Compiled:
    parts = [_compile(n, text) for n in nodes]
    if len(parts) != 2:
        return lambda values: _in_range(function(*(p(values) for p in parts)), text)
    first, second = parts

    def call(values: Mapping[str, int]) -> int:
        a, b = first(values), second(values)
        if divides and b == 0:
            raise ExpressionError(f"expression '{text}' divides by zero")
        value = function(a, b)
        return value if -MAX_MAGNITUDE <= value <= MAX_MAGNITUDE else _in_range(value, text)

    return call


def _boolean(
    function: Callable[[Iterable[int]], bool], nodes: Sequence[ast.expr], text: str
) -> _Compiled:
    parts = [_compile(n, text) for n in nodes]
    return lambda values: function(p(values) for p in parts)


def _compare(
    nodes: Sequence[ast.expr], tests: Sequence[Callable[[int, int], bool]], text: str
) -> _Compiled:
    first, *rest = (_compile(n, text) for n in nodes)

    def compare(values: Mapping[str, int]) -> int:
        """Chained as Python's: what follows a false comparison is not evaluated."""
        left = first(values)
        for test, part in zip(tests, rest, strict=True):
            right = part(values)
            if not test(left, right):
                return 0
            left = right
        return 1

    return compare
