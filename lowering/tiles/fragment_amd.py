"""The native tier of a tile on AMD: the vector that each lane gives to WMMA or MFMA.

The back end has no op on whole matrices, so load, product, store and constant are written by the
instruction's own map of lanes. Elements come straight from memory, any memory, one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dialects.operands import OperandGroup
from dialects.types import element_type

from ..instructions import instruction_named
from ..ir import mlir
from ..matrix_tiles import COMPUTE, CONSTANT, ELEMENTWISE, LOAD, elementwise_kind, tile_type
from .amd_fragments import Fragment, fragment_of
from .fragment_software import elementwise
from .interface import storage_type
from .kernel_text import Index

if TYPE_CHECKING:
    from .fragment_kernel import FragmentKernel


class AmdTiles:
    """Writes the tile ops of native groups; a tile is a vector a lane, or a lone element."""

    def __init__(self, kernel: FragmentKernel) -> None:
        self.kernel = kernel
        self._maps: dict[str, Fragment] = {}

    def waits(self, op: mlir.Operation) -> bool:
        """Loads are written where they stand."""
        return False

    def flush(self) -> None:
        """Nothing waits."""

    def types(self, value: mlir.Value) -> list[str]:
        """One vector, or one element."""
        return [self._kind(value)]

    def write(self, op: mlir.Operation) -> None:
        """One op on tiles."""
        if op.name == LOAD:
            self._load(op)
        elif op.name == CONSTANT:
            self._constant(op)
        elif op.name == COMPUTE:
            self._compute(op)
        elif op.name == ELEMENTWISE:
            self._elementwise(op)
        else:
            self._store(op)

    def _group(self, value: mlir.Value) -> OperandGroup:
        number = self.kernel.source.tiles.group_of(value)
        assert number is not None
        return self.kernel.groups[number]

    def _map(self, value: mlir.Value) -> Fragment:
        name = self._group(value).instruction or ""
        if name not in self._maps:
            self._maps[name] = fragment_of(instruction_named(self.kernel.target, name))
        return self._maps[name]

    def _length(self, value: mlir.Value) -> int:
        """Elements of the vector; a 16-bit sum may take every other one."""
        map_ = self._map(value)
        return map_.sums * map_.step if tile_type(value).use == "COp" else map_.k_run

    def _kind(self, value: mlir.Value) -> str:
        length, element = self._length(value), storage_type(tile_type(value).element)
        return f"vector<{length}x{element}>" if length > 1 else element

    def _places(self, value: mlir.Value) -> Iterator[tuple[int, Index, Index]]:
        """(position in the vector, row, column) of each element that this lane holds."""
        ir, map_, lane = self.kernel.ir, self._map(value), self.kernel.lanes.lane
        use = tile_type(value).use
        if use == "COp":
            across, down = ir.rem(lane, map_.n), ir.mul(ir.div(lane, map_.n), map_.row_step)
            for number in range(map_.sums):
                yield number * map_.step, ir.add(down, map_.row(number)), across
            return
        width = map_.m if use == "AOp" else map_.n
        across = ir.rem(lane, width)
        first = ir.mul(ir.div(lane, width), map_.k_run) if map_.k_lanes > 1 else 0
        for number in range(map_.k_run):
            k = ir.add(first, number)
            yield number, *((across, k) if use == "AOp" else (k, across))

    def _set(self, op: mlir.Operation, name: str) -> None:
        self.kernel.names[op.results[0]] = (name,)

    def _load(self, op: mlir.Operation) -> None:
        ir, tile = self.kernel.ir, op.results[0]
        zero = ir.constant(0, storage_type(tile_type(tile).element))
        elements = [zero] * self._length(tile)
        for position, row, column in self._places(tile):
            elements[position] = self.kernel.read(op, row, column)
        self._set(op, self._vector(tile, elements))

    def _store(self, op: mlir.Operation) -> None:
        ir, tile = self.kernel.ir, op.operands[0]
        name, kind = self.kernel.name(tile), self._kind(tile)
        element = storage_type(tile_type(tile).element)
        for position, row, column in self._places(tile):
            value = name
            if self._length(tile) > 1:
                value = ir.value(f"vector.extract {name}[{position}] : {element} from {kind}")
            self.kernel.write(op, value, row, column, None)

    def _constant(self, op: mlir.Operation) -> None:
        tile = op.results[0]
        self._set(op, self._vector(tile, [self.kernel.name(op.operands[0])] * self._length(tile)))

    def _vector(self, tile: mlir.Value, elements: list[str]) -> str:
        """The elements as one value."""
        if len(elements) == 1:
            return elements[0]
        line = f"vector.from_elements {', '.join(elements)} : {self._kind(tile)}"
        return self.kernel.ir.value(line)

    def _elementwise(self, op: mlir.Operation) -> None:
        names = tuple(self.kernel.name(o) for o in op.operands)
        kind = self._kind(op.results[0])
        self._set(op, elementwise(self.kernel.ir, elementwise_kind(op), names, kind, kind))

    def _compute(self, op: mlir.Operation) -> None:
        a, b, c = op.operands
        map_ = self._map(c)
        name = "amdgpu.mfma" if map_.wave == 64 else "amdgpu.wmma"
        unsigned = element_type(tile_type(a).element).kind == "unsigned"
        flags = " unsignedA unsignedB" if unsigned else ""
        x, y, old = (self.kernel.name(v) for v in (a, b, c))
        self._set(
            op,
            self.kernel.ir.value(
                f"{name} {map_.m}x{map_.n}x{map_.k} {x} * {y} + {old}{flags}"
                f" : {self._kind(a)}, {self._kind(b)}, {self._kind(c)}"
            ),
        )
