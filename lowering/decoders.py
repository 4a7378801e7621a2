"""``xpu.decode``: a private declaration that stands for the decoding of a block format.

``func.func private @decode(tensor<?x?xi8>) -> tensor<?x?xf32> attributes {xpu.decode = "q8_0"}``
takes raw bytes and gives the elements; a kernel calls it on the argument that holds them. It has no
body: each kernel body decodes where it would have loaded.
"""

from __future__ import annotations

from dialects.block_formats import DECODED_TYPES, block_format
from dialects.errors import DeclarationError, UnsupportedError

from .ir import mlir, symbol, value_at

ATTRIBUTE = "xpu.decode"


def is_decoder(op: mlir.Operation) -> bool:
    """Whether the op carries ``xpu.decode``."""
    return op.name == "func.func" and ATTRIBUTE in op.attributes


def check_decoder(function: mlir.Operation) -> str:
    """The block format that a declaration decodes.

    Raises:
        DeclarationError: it has a body, or another signature than raw bytes to elements.
        UnsupportedError: an unknown format, with those that work.
    """
    name = value_at(function, ATTRIBUTE)
    if not isinstance(name, str):
        raise DeclarationError("xpu.decode must be the name of a block format")
    block_format(name)
    if list(function.regions[0].blocks):
        raise DeclarationError(f"'{symbol(function)}' decodes {name}: it must have no body")
    type_ = mlir.FunctionType(mlir.TypeAttr(function.attributes["function_type"]).value)
    inputs, results = list(type_.inputs), list(type_.results)
    if len(inputs) == 1 and len(results) == 1 and _raw_to_elements(inputs[0], results[0]):
        return name
    raise DeclarationError(
        f"'{symbol(function)}' decodes {name}: required (tensor<?x?xi8>) -> tensor<?x?xE> of one "
        f"rank, E one of {', '.join(DECODED_TYPES)}, found {type_}"
    )


def _raw_to_elements(raw: mlir.Type, elements: mlir.Type) -> bool:
    if not all(isinstance(t, mlir.RankedTensorType) for t in (raw, elements)):
        return False
    raw, elements = mlir.RankedTensorType(raw), mlir.RankedTensorType(elements)
    return (
        str(raw.element_type) == "i8"
        and str(elements.element_type) in DECODED_TYPES
        and raw.rank == elements.rank
        and raw.rank > 0
    )


def decoded_argument(
    call: mlir.Operation, module: mlir.Operation, name: str
) -> tuple[mlir.Value, str]:
    """The raw bytes that a call decodes, and their format.

    Raises:
        UnsupportedError: the operand ``name`` is computed by anything else.
    """
    callee = _callee(call, module)
    if callee is None or not is_decoder(callee):
        raise UnsupportedError(
            f"operand '{name}' must be an argument, or one that a function with {ATTRIBUTE} "
            "decodes, found a computed value"
        )
    raw = call.operands[0]
    if not isinstance(raw.owner, mlir.Block):
        raise UnsupportedError(f"operand '{name}' must be decoded from an argument")
    return raw, check_decoder(callee)


def _callee(call: mlir.Operation, module: mlir.Operation) -> mlir.Operation | None:
    if call.name != "func.call":
        return None
    wanted = mlir.FlatSymbolRefAttr(call.attributes["callee"]).value
    for op in module.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and symbol(op.operation) == wanted:
            return op.operation
    return None
