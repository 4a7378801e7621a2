"""``linalg.generic`` ops taken apart, and what is known of values and their types."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.errors import UnsupportedError
from dialects.types import ELEMENT_TYPES

from .ir import affine_results, mlir

# The IR has no sign of its own: an integer is signed until an op widens it without.
_MLIR_TYPES = {t.mlir: t.name for t in ELEMENT_TYPES if t.kind != "unsigned"}


@dataclass(frozen=True, kw_only=True)
class Generic:
    """One op; ``maps`` are the dimension numbers of each operand, the output's last."""

    op: mlir.Operation
    inputs: list[mlir.Value]
    output: mlir.Value
    maps: list[tuple[int, ...]]
    reductions: int
    block: mlir.Block

    @property
    def identity(self) -> tuple[int, ...]:
        """The map of an operand of the full shape, in loop order."""
        return tuple(range(len(mlir.ArrayAttr(self.op.attributes["iterator_types"]))))

    @property
    def body(self) -> list[mlir.Operation]:
        """The scalar ops, ``linalg.yield`` last."""
        return [o.operation for o in self.block.operations]


def read_generic(value: mlir.Value) -> Generic:
    """The ``linalg.generic`` that computes a value.

    Raises:
        UnsupportedError: something else does, with what it is.
    """
    op = defining_op(value)
    if op is None:
        raise UnsupportedError("the result is an argument: no contraction produces it")
    if op.name != "linalg.generic":
        raise UnsupportedError(
            f"expected a linalg contraction or elementwise linalg.generic, found '{op.name}'"
        )
    maps = []
    for attribute in mlir.ArrayAttr(op.attributes["indexing_maps"]):
        results = affine_results(attribute)
        if results is None:
            raise UnsupportedError(f"indexing map {attribute} is not a projected permutation")
        maps.append(results)
    if len(op.results) != 1:
        raise UnsupportedError(f"linalg.generic with {len(op.results)} results")
    iterators = [str(i) for i in mlir.ArrayAttr(op.attributes["iterator_types"])]
    operands = list(op.operands)
    return Generic(
        op=op,
        inputs=operands[:-1],
        output=operands[-1],
        maps=maps,
        reductions=sum("parallel" not in i for i in iterators),
        block=op.regions[0].blocks[0],
    )


def defining_op(value: mlir.Value) -> mlir.Operation | None:
    """The op that computes a value; None for an argument of a block."""
    owner = value.owner
    return owner.operation if isinstance(owner, mlir.Operation | mlir.OpView) else None


def tensor_element(value: mlir.Value) -> str:
    """The element type of a tensor, by our name.

    Raises:
        UnsupportedError: no tensor, or of a type that no body has.
    """
    if not isinstance(value.type, mlir.RankedTensorType):
        raise UnsupportedError(f"expected a tensor, found {value.type}")
    return scalar_type(mlir.RankedTensorType(value.type).element_type)


def scalar_type(type_: mlir.Type) -> str:
    """Our name of a scalar type.

    Raises:
        UnsupportedError: a type that no body has, with those there are.
    """
    name = str(type_)
    if name not in _MLIR_TYPES:
        raise UnsupportedError(
            f"element type {name} is not one of {', '.join(sorted(_MLIR_TYPES))}"
        )
    return _MLIR_TYPES[name]
