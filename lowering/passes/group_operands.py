"""The pass ``group-operands``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.declarations import Declarations
from dialects.errors import DeclarationError, Error
from dialects.grouping import TileGroup
from dialects.operands import Contraction

from .. import attributes
from ..contractions import linalg_groups, read_contraction
from ..coop_source import is_coop, read_coop_source
from ..ir import functions, location, mlir, symbol
from ..pipeline import Report


@dataclass(frozen=True, kw_only=True)
class GroupOperands:
    """Read which operands meet in the multiply-accumulate of each kernel.

    ``func.func @f(...) attributes {xpu.kernel, xpu.dims = ["M", "N", "K"]}`` gains
    ``xpu.contraction = {a = {name = "a", type = "f16", dims = ["M", "K"]}, b = ..., ...}``.
    and ``xpu.tile_groups = [{multiplies = [{a = "f16", b = "f16", acc = "f32"}]}]``. A kernel in
    cooperative-matrix IR gets the first from its ``xpu.reference = @g`` and a tile group, with
    shapes, for each set of tiles that meet in products.
    Named ops must have been generalized (``func.func(linalg-generalize-named-ops)``).
    """

    name: ClassVar[str] = "group-operands"

    def run(self, module: mlir.Operation, report: Report) -> None:
        for function in functions(module):
            if not attributes.is_kernel(function):
                continue
            where = location(function, report.source)
            try:
                contraction, groups = _read(function, module, where)
            except Error as error:
                report.fail(error)
                continue
            attributes.put(function, "contraction", contraction)
            attributes.put(function, "tile_groups", groups)


def _read(
    function: mlir.Operation, module: mlir.Operation, where: str
) -> tuple[Contraction, tuple[TileGroup, ...]]:
    declared = attributes.declarations(function, where=where)
    try:
        if not is_coop(function):
            return _read_linalg(function, declared)
        meaning = _reference(module, declared.reference)
        contraction = read_contraction(meaning, declared.dims)
        source = read_coop_source(function, contraction, declared.wave_width)
        _check_member(declared)
        return contraction, source.tiles.groups
    except Error as error:
        raise type(error)(f"kernel '{symbol(function)}': {error.message}", where=where) from None


def _read_linalg(
    function: mlir.Operation, declared: Declarations
) -> tuple[Contraction, tuple[TileGroup, ...]]:
    """Each product is a group of its own: the body cuts it into tiles."""
    if declared.reference is not None:
        raise DeclarationError("xpu.reference is for a kernel in cooperative-matrix IR")
    contraction = read_contraction(function, declared.dims)
    return contraction, linalg_groups(contraction)


def _reference(module: mlir.Operation, name: str | None) -> mlir.Operation:
    """The function that says what a kernel computes."""
    if name is None:
        raise DeclarationError(
            "a kernel in cooperative-matrix IR says what it computes by xpu.reference = @name, "
            "a function of linalg ops in the same module"
        )
    for function in functions(module):
        if symbol(function) == name and not is_coop(function):
            return function
    raise DeclarationError(f"xpu.reference @{name} is no function of linalg ops in this module")


def _check_member(declared: Declarations) -> None:
    """The author has cut the tiles for one shape."""
    if len({m.tile for m in declared.members}) > 1:
        raise DeclarationError(
            "a kernel in cooperative-matrix IR is written for one tile, "
            f"xpu.instantiate lists {', '.join(m.name for m in declared.members)}"
        )
