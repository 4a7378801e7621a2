"""Constant integer expressions of declarations and manifests: ``m % 16 == 0``, ``ceildiv(M, 64)``.

The grammar is a small part of Python's, read with :mod:`ast` and never evaluated by Python itself:
integers, names, ``+ - * // % min max ceildiv``, comparisons (chained too), ``and or not``.
``/`` is refused, because it would be ambiguous between the two divisions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
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
        return int(_evaluate(_parse(self.text).body, values, self.text))


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


def _evaluate(node: ast.expr, values: Mapping[str, int], text: str) -> int:
    match node:
        case ast.Constant(value=value):
            result = int(value)  # type: ignore[arg-type]
        case ast.Name(id=name):
            if name not in values:
                known = ", ".join(sorted(values)) or "none"
                raise ExpressionError(
                    f"expression '{text}' names '{name}', which is not one of: {known}"
                )
            result = values[name]
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _evaluate(left, values, text), _evaluate(right, values, text)
            if b == 0 and isinstance(op, ast.FloorDiv | ast.Mod):
                raise ExpressionError(f"expression '{text}' divides by zero")
            result = _BINARY[type(op)](a, b)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            result = int(not _evaluate(operand, values, text))
        case ast.UnaryOp(operand=operand):
            result = -_evaluate(operand, values, text)
        case ast.BoolOp(op=op, values=operands):
            results = (_evaluate(o, values, text) for o in operands)
            result = int(all(results) if isinstance(op, ast.And) else any(results))
        case ast.Compare(left=left, ops=ops, comparators=rest):
            result, a = 1, _evaluate(left, values, text)
            for op, operand in zip(ops, rest, strict=True):
                b = _evaluate(operand, values, text)
                if not _COMPARE[type(op)](a, b):
                    result = 0
                    break
                a = b
        case ast.Call(func=ast.Name(id=name), args=args):
            operands = [_evaluate(a, values, text) for a in args]
            if name == "ceildiv" and operands[1] == 0:
                raise ExpressionError(f"expression '{text}' divides by zero")
            result = _CALLS[name](*operands)
        case _:
            raise ExpressionError(f"expression '{text}' is not supported")
    if abs(result) > MAX_MAGNITUDE:
        raise ExpressionError(f"expression '{text}' exceeds {MAX_MAGNITUDE.bit_length() - 1} bits")
    return result
