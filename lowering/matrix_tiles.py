"""The tiles of a kernel in cooperative-matrix IR: their types, and the groups that they form."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dialects.errors import UnsupportedError
from dialects.grouping import MultiplyAdd, TileGroup, group_tiles
from dialects.types import element_type

from .ir import mlir, operations

PREFIX = "gpu.subgroup_mma_"
LOAD, STORE = f"{PREFIX}load_matrix", f"{PREFIX}store_matrix"
CONSTANT, COMPUTE = f"{PREFIX}constant_matrix", f"{PREFIX}compute"
ELEMENTWISE = f"{PREFIX}elementwise"
UNEVEN_ROWS = "rows"  # a use of a tile: in workgroup memory, rows no multiple of ROW_BYTES
ROW_BYTES = 16  # PTX ISA, wmma.load; KHR_cooperative_matrix, alignment of rows
ELEMENTWISE_KINDS = (
    *("addf", "subf", "mulf", "divf", "maxf", "minf", "negatef", "extf"),
    *("addi", "subi", "muli", "divs", "divu", "negates"),
)
TILE_OPS = (LOAD, STORE, CONSTANT, COMPUTE, ELEMENTWISE)

_TYPE = re.compile(r'!gpu\.mma_matrix<(\d+)x(\d+)x(\w+), "(\w+)">')
_ELEMENTS = {"f16": "f16", "f32": "f32", "f64": "f64", "i32": "i32", "si8": "i8", "ui8": "u8"}


@dataclass(frozen=True, kw_only=True)
class MatrixType:
    """``rows`` x ``columns`` elements of a type by our name; ``use`` is AOp, BOp or COp."""

    rows: int
    columns: int
    element: str
    use: str

    @property
    def count(self) -> int:
        """Elements of one tile."""
        return self.rows * self.columns


def matrix_type(type_: mlir.Type) -> MatrixType | None:
    """A ``!gpu.mma_matrix`` type taken apart; None for any other.

    Raises:
        UnsupportedError: an element type that the op set lacks, with the spelling that works.
    """
    found = _TYPE.fullmatch(str(type_))
    if found is None:
        return None
    rows, columns, element, use = found.groups()
    if element not in _ELEMENTS:
        raise UnsupportedError(
            f"a tile of {element} is not one of {', '.join(_ELEMENTS)}: write the kernel in linalg"
        )
    return MatrixType(rows=int(rows), columns=int(columns), element=_ELEMENTS[element], use=use)


def tile_type(value: mlir.Value) -> MatrixType:
    """The type of a value that is a tile."""
    found = matrix_type(value.type)
    assert found is not None
    return found


class Tiles:
    """The tile values of one function by number, and the group of each."""

    def __init__(self, function: mlir.Operation) -> None:
        """Group the tiles.

        Raises:
            UnsupportedError: an op that takes a tile and is none of ours.
        """
        self._numbers: dict[mlir.Value, int] = {}
        self._links: list[list[int]] = []
        self._products: list[tuple[int, MultiplyAdd]] = []
        self._uses: list[tuple[int, str]] = []
        for op in operations(function):
            self._visit(op)
        roots = group_tiles(self._links)
        products = dict.fromkeys(roots[n] for n, _ in self._products)
        self._group = {root: index for index, root in enumerate(products)}
        self._root = roots
        self.groups = tuple(self._of(root) for root in products)

    def group_of(self, value: mlir.Value) -> int | None:
        """The number of a tile's group; None for one that meets no product."""
        return self._group.get(self._root[self._numbers[value]])

    def _of(self, root: int) -> TileGroup:
        return TileGroup(
            multiplies=tuple(dict.fromkeys(m for n, m in self._products if self._root[n] == root)),
            uses=tuple(dict.fromkeys(u for n, u in self._uses if self._root[n] == root)),
        )

    def _number(self, value: mlir.Value) -> int | None:
        if matrix_type(value.type) is None:
            return None
        return self._numbers.setdefault(value, len(self._numbers))

    def _link(self, *values: mlir.Value) -> int | None:
        numbers = [n for n in map(self._number, values) if n is not None]
        if numbers:
            self._links.append(numbers)
        return numbers[0] if numbers else None

    def _visit(self, op: mlir.Operation) -> None:
        operands, results = list(op.operands), list(op.results)
        if op.name == "scf.for":
            block = op.regions[0].blocks[0]
            yielded = list(_terminator(block).operands)
            carried = list(block.arguments)[1:]
            for group in zip(operands[3:], carried, yielded, results, strict=True):
                self._link(*group)
        elif op.name == "scf.if":
            for region in op.regions:
                if results:
                    yielded = list(_terminator(region.blocks[0]).operands)
                    for pair in zip(yielded, results, strict=True):
                        self._link(*pair)
        elif op.name == COMPUTE:
            first = self._link(*operands, *results)
            assert first is not None
            self._products.append((first, _multiply(op)))
        elif op.name in TILE_OPS:
            first = self._link(*operands, *results)
            use = elementwise_kind(op) if op.name == ELEMENTWISE else _uneven_rows(op)
            if use is not None and first is not None:
                self._uses.append((first, use))
        elif op.name != "scf.yield" and any(matrix_type(v.type) for v in (*operands, *results)):
            raise UnsupportedError(
                f"'{op.name}' takes a tile, what may is scf.for, scf.if, {', '.join(TILE_OPS)}"
            )


def _terminator(block: mlir.Block) -> mlir.Operation:
    return list(block.operations)[-1].operation


def _uneven_rows(op: mlir.Operation) -> str | None:
    """:data:`UNEVEN_ROWS` for a tile in rows that no matrix load can be sure to read."""
    if op.name not in (LOAD, STORE):
        return None
    tile = op.results[0] if op.name == LOAD else op.operands[0]
    lead = mlir.IntegerAttr(op.attributes["leadDimension"]).value
    nbytes = lead * element_type(tile_type(tile).element).bytes
    return UNEVEN_ROWS if nbytes % ROW_BYTES else None


def elementwise_kind(op: mlir.Operation) -> str:
    """``addf`` and the like."""
    text = str(op.attributes["opType"])
    found = re.fullmatch(r"#gpu(?:\.|<)mma_element_wise ?<?(\w+)>+", text)
    if found is None or found[1] not in ELEMENTWISE_KINDS:
        raise UnsupportedError(
            f"elementwise {found[1] if found else text} is not one of "
            f"{', '.join(ELEMENTWISE_KINDS)}"
        )
    return found[1]


def _multiply(op: mlir.Operation) -> MultiplyAdd:
    if "a_transpose" in op.attributes or "b_transpose" in op.attributes:
        raise UnsupportedError(f"{COMPUTE} transposes nothing: load the tile with 'transpose'")
    a, b, acc = (tile_type(v) for v in op.operands)
    shape = (acc.rows, acc.columns, a.columns)
    return MultiplyAdd(a=a.element, b=b.element, acc=acc.element, shape=shape)
