"""Copies a kernel in cooperative-matrix IR op by op: its loops stay, memory and ids become ours.

Every op of the author's is copied as it is, with these exceptions: arguments become flat views of
the bindings, ids of the launch become the back end's, and ops on tiles go to a writer of tiles.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Protocol

from ..coop_source import BARRIER, CoopSource
from ..ir import mlir
from ..matrix_tiles import STORE, TILE_OPS, matrix_type
from .fragment_memory import KernelMemory
from .fragment_share import allocation
from .kernel_text import Index

_AXES = {"x": 0, "y": 1, "z": 2}


class TileWriter(Protocol):
    """Writes ops on tiles; a tile is several values."""

    def types(self, value: mlir.Value) -> list[str]:
        """The MLIR types of a tile's values."""
        ...

    def write(self, op: mlir.Operation) -> None:
        """One op on tiles."""
        ...


class AuthorKernel(KernelMemory, ABC):
    """Emits a device function of ``waves`` waves of ``wave`` lanes."""

    def __init__(self, source: CoopSource, *, waves: int, wave: int, layout: str) -> None:
        super().__init__(source, layout)
        self._handlers: dict[str, Callable[[mlir.Operation], None]] = {
            "memref.load": self._load,
            "memref.store": self._store,
            "memref.dim": self._dim,
            "memref.alloc": self._alloc,
            "gpu.block_id": lambda op: self._launch(op, "hal.interface.workgroup.id"),
            "gpu.grid_dim": lambda op: self._launch(op, "hal.interface.workgroup.count"),
            "gpu.block_dim": lambda op: self._along_x(op, waves * wave, 1),
            "gpu.thread_id": lambda op: self._along_x(op, self.thread, 0),
            "gpu.lane_id": lambda op: self._set_index(op, self.lane),
            "gpu.subgroup_id": lambda op: self._set_index(op, self.subgroup),
            "gpu.subgroup_size": lambda op: self._set_index(op, wave),
            "gpu.num_subgroups": lambda op: self._set_index(op, waves),
            "scf.for": self._for,
            "scf.if": self._if,
            "scf.yield": self._yield,
            "func.return": lambda op: self.finish(),
            BARRIER: lambda op: self.barrier(),
        }

    @property
    @abstractmethod
    def thread(self) -> Index:
        """The number of this lane in its workgroup."""

    @property
    @abstractmethod
    def lane(self) -> Index:
        """The number of this lane in its wave."""

    @property
    @abstractmethod
    def subgroup(self) -> Index:
        """The number of this wave in its workgroup."""

    @abstractmethod
    def barrier(self) -> None:
        """All lanes of the workgroup."""

    @abstractmethod
    def writer(self, tile: mlir.Value) -> TileWriter:
        """What writes the ops of a tile."""

    def finish(self) -> None:
        """The end of the author's function."""
        self.ir.emit("return")

    def text(self) -> str:
        """The whole body."""
        self._block(self.body)
        return self.ir.text()

    @property
    def body(self) -> mlir.Block:
        """The author's block."""
        return self.source.function.regions[0].blocks[0]

    # The author's ops.

    def _block(self, block: mlir.Block) -> None:
        for item in block.operations:
            self._op(item.operation)

    def _op(self, op: mlir.Operation) -> None:
        if op.name in TILE_OPS:
            tile = op.operands[0] if op.name == STORE else op.results[0]
            self.writer(tile).write(op)
        elif op.name in self._handlers:
            self._handlers[op.name](op)
        else:
            self.copy(op)

    def _set_index(self, op: mlir.Operation, value: Index) -> None:
        self.names[op.results[0]] = (self.ir.index(value),)

    def _along_x(self, op: mlir.Operation, value: Index, otherwise: int) -> None:
        """Blocks have lanes along x alone."""
        self._set_index(op, value if _axis(op) == 0 else otherwise)

    def _launch(self, op: mlir.Operation, name: str) -> None:
        self.names[op.results[0]] = (self.ir.value(f"{name}[{_axis(op)}] : index", "wg"),)

    def _dim(self, op: mlir.Operation) -> None:
        memory, axis = op.operands
        operand = self.source.buffers.get(memory)
        if operand is None:
            self.copy(op)
            return
        number = mlir.IntegerAttr(axis.owner.attributes["value"]).value
        self.names[op.results[0]] = (self.values[operand.dims[number]],)

    def _alloc(self, op: mlir.Operation) -> None:
        """The author's array where matrix loads may read it."""
        result = op.results[0]
        self.names[result] = (self.ir.value(allocation(str(result.type)), "shared"),)

    # Control flow, with tiles that are several values, of every wave that is written out.

    def _types(self, value: mlir.Value) -> list[str]:
        if matrix_type(value.type) is None:
            return [self.spelled(str(value.type))]
        return self.writer(value).types(value)

    def _spread(self, values: Iterable[mlir.Value]) -> tuple[list[str], list[str]]:
        """Names and types of values in all contexts."""
        wanted = list(values)
        names = [n for context in self.contexts for v in wanted for n in context[v]]
        return names, [t for _ in self.contexts for v in wanted for t in self._types(v)]

    def _name_all(self, values: Iterable[mlir.Value], names: Iterable[str]) -> None:
        """Give values their names in all contexts, in the order of :meth:`_spread`."""
        given, wanted = iter(names), list(values)
        for context in self.contexts:
            for value in wanted:
                context[value] = tuple(next(given) for _ in self._types(value))

    def _results(self, op: mlir.Operation) -> tuple[str, list[str]]:
        """``%r:3 = `` with the types, after the results have got their names."""
        types = [t for _ in self.contexts for r in op.results for t in self._types(r)]
        if not types:
            return "", types
        name = self.ir.name("r")
        self._name_all(op.results, (f"{name}#{i}" for i in range(len(types))))
        return f"{name}:{len(types)} = ", types

    def _for(self, op: mlir.Operation) -> None:
        ir, block = self.ir, op.regions[0].blocks[0]
        begin, end, step, *initial = op.operands
        induction, *carried = block.arguments
        starts, _ = self._spread(initial)
        number = ir.name("i")
        self._name_all([induction], [number] * len(self.contexts))
        inner = [ir.name("a") for _ in starts]
        self._name_all(carried, inner)
        head, types = self._results(op)
        pairs = ", ".join(f"{c} = {i}" for c, i in zip(inner, starts, strict=True))
        args = f" iter_args({pairs}) -> ({', '.join(types)})" if types else ""
        bounds = f"{self.name(begin)} to {self.name(end)} step {self.name(step)}"
        kind = "" if str(induction.type) == "index" else f" : {induction.type}"
        with ir.block(f"{head}scf.for {number} = {bounds}{args}{kind} {{"):
            self._block(block)

    def _if(self, op: mlir.Operation) -> None:
        ir = self.ir
        head, types = self._results(op)
        arrow = f" -> ({', '.join(types)})" if types else ""
        then, *otherwise = [list(r.blocks) for r in op.regions]
        with ir.block(f"{head}scf.if {self.name(op.operands[0])}{arrow} {{"):
            self._block(then[0])
            if otherwise and otherwise[0]:
                ir.otherwise()
                self._block(otherwise[0][0])

    def _yield(self, op: mlir.Operation) -> None:
        names, types = self._spread(op.operands)
        if names:
            self.ir.emit(f"scf.yield {', '.join(names)} : {', '.join(types)}")


def _axis(op: mlir.Operation) -> int:
    found = re.fullmatch(r"#gpu<dim (\w)>|#gpu\.dim<(\w)>", str(op.attributes["dimension"]))
    assert found is not None
    return _AXES[found[1] or found[2]]
