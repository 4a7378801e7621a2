"""Finds the launch sites of kernels in a module, and the block that each of them asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dialects.launches import LaunchSite

from .generics import defining_op
from .ir import location, mlir, operations, symbol_reference

_FOLDS: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b if b else 0,
    "arith.divsi": lambda a, b: a // b if b else 0,
    "arith.ceildivui": lambda a, b: -(-a // b) if b else 0,
    "arith.remui": lambda a, b: a % b if b else 0,
    "arith.minui": min,
    "arith.maxui": max,
}
_CASTS = ("arith.index_cast", "arith.index_castui", "arith.extui", "arith.extsi", "arith.trunci")
_DEEPEST = 64  # ops that a block's operand is folded through
_SEGMENTS = "operandSegmentSizes"
_BLOCK_SEGMENT = 4  # gpu.launch_func: async tokens, grid x y z, block x y z, ...


def launch_sites(module: mlir.Operation, kernels: Iterable[str], source: str) -> list[LaunchSite]:
    """The sites in ``module`` that launch one of ``kernels``.

    A ``gpu.launch_func`` names a kernel by the last part of its symbol, and its block operands are
    the block. A ``func.call`` has none: it launches the block that the body chose, which is a
    constant of the code.
    """
    known = set(kernels)
    found: list[LaunchSite] = []
    for op in operations(module):
        if op.name == "gpu.launch_func":
            kernel, block = symbol_reference(op, "kernel"), _block(op)
        elif op.name == "func.call":
            kernel, block = symbol_reference(op, "callee"), ()
        else:
            continue
        if kernel in known:
            found.append(LaunchSite(kernel=kernel, where=location(op, source), block=block))
    return found


def _block(op: mlir.Operation) -> tuple[int, ...] | None:
    sizes = list(mlir.DenseI32ArrayAttr(op.attributes[_SEGMENTS]))
    first = sum(sizes[:_BLOCK_SEGMENT])
    x, y, z = (folded(op.operands[first + axis]) for axis in range(3))
    if x is None or y is None or z is None or min(x, y, z) < 1:
        return None
    return x, y, z


def folded(value: mlir.Value, depth: int = _DEEPEST) -> int | None:
    """The integer that a value comes to, or None when it is no constant."""
    op = defining_op(value)
    if op is None or not depth:
        return None
    if op.name == "arith.constant":
        literal = op.attributes["value"]
        return literal.value if isinstance(literal, mlir.IntegerAttr) else None
    if op.name in _CASTS:
        return folded(op.operands[0], depth - 1)
    if op.name not in _FOLDS:
        return None
    a, b = (folded(operand, depth - 1) for operand in op.operands)
    return None if a is None or b is None else _FOLDS[op.name](a, b)
