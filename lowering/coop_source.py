"""Reads a kernel in cooperative-matrix IR and checks that a fragment body can rewrite it.

The form: a function over dynamic memrefs, one for each operand of the kernel's meaning in the same
order with the result last, then one ``index`` for each of ``xpu.dims``. One workgroup computes the
m x n tile of the only member: ``gpu.block_id`` x, y, z are its column, its row, its batch. What is
computed is said by the ``linalg`` function that ``xpu.reference`` names.

A tile that is loaded from an argument is zero outside of it, and what is stored outside is dropped,
on every tier: any sizes are legal. Plain ``memref.load`` and ``memref.store`` are the author's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dialects.errors import UnsupportedError
from dialects.manifest import Mode
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .generics import defining_op
from .ir import functions, mlir, operations, symbol
from .matrix_tiles import COMPUTE, LOAD, STORE, MatrixType, Tiles, matrix_type, tile_type

BUFFER_OPS = ("memref.load", "memref.store", "memref.dim", LOAD, STORE)
NESTING = ("func.func", "scf.for", "scf.if")
BARRIER = "gpu.barrier"
LANE_IDS = ("gpu.thread_id", "gpu.subgroup_id", "gpu.lane_id")
WAVE_OPS = ("gpu.shuffle", "gpu.rotate", "gpu.subgroup_reduce", "gpu.ballot")
WORKGROUP = "#gpu.address_space<workgroup>"


@dataclass(frozen=True, kw_only=True)
class CoopSource:
    """A checked kernel: its function, what its arguments are, and its tiles."""

    function: mlir.Operation
    contraction: Contraction
    tiles: Tiles
    wave: int | None  # the width that the kernel's indexing assumes

    @cached_property
    def buffers(self) -> dict[mlir.Value, Operand]:
        """The operand that each memref argument is."""
        return dict(zip(self._arguments, self.contraction.operands, strict=False))

    @cached_property
    def sizes(self) -> dict[mlir.Value, str]:
        """The name of the size that each index argument is."""
        first = len(self.contraction.operands)
        return dict(zip(self._arguments[first:], self.contraction.dims, strict=True))

    @property
    def _arguments(self) -> list[mlir.Value]:
        return list(self.function.regions[0].blocks[0].arguments)


def is_coop(function: mlir.Operation) -> bool:
    """Whether a kernel is written in cooperative-matrix IR."""
    arguments = list(function.regions[0].blocks[0].arguments)
    takes_memory = any(str(a.type).startswith("memref<") for a in arguments)
    return takes_memory or any(op.name.startswith("gpu.") for op in operations(function))


def read_coop_source(
    function: mlir.Operation, contraction: Contraction, wave: int | None
) -> CoopSource:
    """The kernel, given what it computes and the wave width that its author declares.

    Raises:
        UnsupportedError: something in it that no fragment body can rewrite, with what can be.
    """
    if len(list(function.regions[0].blocks)) != 1:
        raise UnsupportedError("a kernel is one block with scf.for and scf.if")
    ops = operations(function)
    source = CoopSource(
        function=function,
        contraction=contraction,
        tiles=Tiles(function),
        wave=wave,
    )
    if not source.tiles.groups:
        raise UnsupportedError("a kernel in cooperative-matrix IR multiplies at least one tile")
    _check_arguments(function, contraction)
    for op in ops[1:]:
        _check_op(op, source)
    _check_result(source, ops)
    _check_uniform(function, ops)
    return source


def _check_arguments(function: mlir.Operation, contraction: Contraction) -> None:
    arguments = list(function.regions[0].blocks[0].arguments)
    expected = [*contraction.operands, *contraction.dims]
    if len(arguments) != len(expected):
        names = ", ".join(e if isinstance(e, str) else e.name for e in expected)
        raise UnsupportedError(
            f"takes {len(arguments)} arguments, its reference and xpu.dims have "
            f"{len(expected)}: {names}"
        )
    for number, (argument, what) in enumerate(zip(arguments, expected, strict=True)):
        if isinstance(what, str):
            if str(argument.type) != "index":
                raise UnsupportedError(
                    f"argument {number} is the size {what} and must be an index, "
                    f"found {argument.type}"
                )
            continue
        if what.source is not None:
            raise UnsupportedError(
                f"argument {number} is '{what.name}' in {what.source} blocks, this form loads "
                "dense tiles only"
            )
        axes = "?x" * len(what.dims)
        wanted = f"memref<{axes}{element_type(what.type).mlir}>"
        if str(argument.type) != wanted:
            raise UnsupportedError(
                f"argument {number} is '{what.name}' of the reference and must be {wanted}, "
                f"found {argument.type}"
            )


def _check_op(op: mlir.Operation, source: CoopSource) -> None:
    if op.name in WAVE_OPS and source.wave is None:
        raise UnsupportedError(f"'{op.name}' assumes a wave width: declare xpu.wave {{width = N}}")
    if len(op.regions) and op.name not in NESTING:
        raise UnsupportedError(f"'{op.name}' nests ops, what may is scf.for and scf.if")
    if op.name == "memref.alloc" and not _is_shared(op):
        raise UnsupportedError(
            f"memref.alloc must be static, in {WORKGROUP} and outside of loops, "
            f"found {op.results[0].type}"
        )
    if op.name == "memref.dim" and not _is_constant(op.operands[1]):
        raise UnsupportedError("memref.dim takes a constant axis")
    for value in op.operands:
        if value in source.buffers and op.name not in BUFFER_OPS:
            name = source.buffers[value].name
            raise UnsupportedError(
                f"'{op.name}' takes the argument '{name}', what may is {', '.join(BUFFER_OPS)}"
            )
    if op.name in (LOAD, STORE):
        _check_access(op, source)


def _is_constant(value: mlir.Value) -> bool:
    made_by = defining_op(value)
    return made_by is not None and made_by.name == "arith.constant"


def _is_shared(op: mlir.Operation) -> bool:
    type_ = mlir.MemRefType(op.results[0].type)
    nested = op.parent.operation.name != "func.func"
    return type_.has_static_shape and str(type_.memory_space) == WORKGROUP and not nested


def access_of(op: mlir.Operation) -> tuple[MatrixType, mlir.Value, list[mlir.Value], bool]:
    """(tile type, memory, indices, transposed) of a tile's load or store."""
    operands = list(op.operands)
    tile = op.results[0] if op.name == LOAD else operands.pop(0)
    return tile_type(tile), operands[0], operands[1:], "transpose" in op.attributes


def _check_access(op: mlir.Operation, source: CoopSource) -> None:
    type_, memory, indices, _ = access_of(op)
    shape = mlir.MemRefType(memory.type)
    lead = mlir.IntegerAttr(op.attributes["leadDimension"]).value
    operand = source.buffers.get(memory)
    if operand is not None:
        if len(operand.dims) < 2 or operand.type != type_.element:
            raise UnsupportedError(
                f"a tile of {type_.element} is no part of '{operand.name}', which is "
                f"{operand.type} with sizes {', '.join(operand.dims)}"
            )
        if lead != 0:
            raise UnsupportedError(
                f"rows of '{operand.name}' are as far apart as the caller says: "
                f"write leadDimension 0, found {lead}"
            )
        return
    row = shape.get_dim_size(shape.rank - 1) if shape.rank > 1 else lead
    stored = str(shape.element_type)
    if stored != element_type(type_.element).mlir or lead != row or lead < 1:
        raise UnsupportedError(
            f"a tile of {type_.element} at leadDimension {lead} is no part of {memory.type}: "
            "the types must agree, and leadDimension is the length of a row"
        )
    assert len(indices) == shape.rank


def _check_result(source: CoopSource, ops: list[mlir.Operation]) -> None:
    """The result is written, and read exactly when the meaning says that it is added to."""
    modes = _modes(source, ops)
    for operand in source.contraction.operands:
        is_result = operand is source.contraction.c
        accumulated = is_result and source.contraction.accumulate
        wanted: Mode = "readwrite" if accumulated else "write" if is_result else "read"
        found = modes.get(operand.name, "no")
        if found != wanted:
            raise UnsupportedError(
                f"'{operand.name}' has {found} access, the reference says {wanted}"
            )


def _modes(source: CoopSource, ops: list[mlir.Operation]) -> dict[str, Mode]:
    modes: dict[str, Mode] = {}
    for op in ops:
        access: Mode | None = None
        if op.name in ("memref.load", LOAD):
            access = "read"
        elif op.name in ("memref.store", STORE):
            access = "write"
        for value in op.operands if access else ():
            operand = source.buffers.get(value)
            if operand is not None and access is not None:
                before = modes.setdefault(operand.name, access)
                modes[operand.name] = access if before == access else "readwrite"
    return modes


def _check_uniform(function: mlir.Operation, ops: list[mlir.Operation]) -> None:
    """Waves and barriers work together: none may stand where lanes or waves part ways."""
    varying = _varying(function, ops)
    for op in ops:
        if op.name not in (BARRIER, LOAD, STORE, COMPUTE):
            continue
        outer = op.parent.operation
        while outer.name != "func.func":
            deciding = list(outer.operands)[: 3 if outer.name == "scf.for" else 1]
            if any(v in varying for v in deciding):
                raise UnsupportedError(
                    f"'{op.name}' stands in an {outer.name} that depends on the lane or wave: "
                    "all lanes of a workgroup must reach it together"
                )
            outer = outer.parent.operation


def _varying(function: mlir.Operation, ops: list[mlir.Operation]) -> set[mlir.Value]:
    """Values that may differ between lanes of a workgroup; tiles count as the same for all."""
    varying: set[mlir.Value] = set()
    before = -1
    while len(varying) != before:  # to a fixed point: loops carry values backwards
        before = len(varying)
        for op in ops:
            if op == function or _makes_tile(op):
                continue
            if op.name in LANE_IDS or any(v in varying for v in op.operands):
                varying.update(op.results)
            if op.name == "scf.for":
                _carry(op, varying)
            elif op.name == "scf.yield" and op.parent.operation.name == "scf.if":
                pairs = zip(op.operands, op.parent.operation.results, strict=True)
                varying.update(r for o, r in pairs if o in varying)
    return varying


def _makes_tile(op: mlir.Operation) -> bool:
    """Whether an op makes a tile and nothing else."""
    results = list(op.results)
    return len(results) == 1 and not len(op.regions) and matrix_type(results[0].type) is not None


def _carry(loop: mlir.Operation, varying: set[mlir.Value]) -> None:
    block = loop.regions[0].blocks[0]
    induction, *carried = block.arguments
    if any(v in varying for v in list(loop.operands)[:3]):
        varying.add(induction)
    yielded = list(block.operations)[-1].operation.operands
    for initial, inner, outer, result in zip(
        list(loop.operands)[3:], carried, yielded, loop.results, strict=True
    ):
        if initial in varying or outer in varying or result in varying:
            varying.update((inner, result))


def stand_in_references(module: mlir.Operation) -> None:
    """Put each kernel's reference in the place of a kernel in this form: a peer compiles that."""
    known = {symbol(f): f for f in functions(module)}
    for function in list(known.values()):
        if "xpu.reference" not in function.attributes or not is_coop(function):
            continue
        reference = known.get(mlir.FlatSymbolRefAttr(function.attributes["xpu.reference"]).value)
        if reference is None:
            continue
        copy = reference.clone(mlir.InsertionPoint(function))
        copy.attributes["sym_name"] = function.attributes["sym_name"]
        copy.attributes["xpu.kernel"] = mlir.UnitAttr.get(function.context)
        function.erase()
