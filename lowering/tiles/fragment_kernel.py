"""Rewrites a kernel in cooperative-matrix IR for one target: its loops stay, its tiles become ours.

Every op of the author's is copied as it is, with these exceptions: arguments become flat views of
the bindings, ids of the launch become the back end's, and loads, products, stores, constants and
elementwise ops of tiles are written by the tier of their operand group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from dialects.operands import Operand, OperandGroup

from ..coop_source import BARRIER, CoopSource, access_of
from ..ir import mlir, operations
from ..matrix_tiles import STORE, TILE_OPS, matrix_type
from ..target import Target
from .fragment_amd import AmdTiles
from .fragment_native import NativeTiles
from .fragment_share import Lanes, Slots, allocation
from .fragment_software import SoftwareTiles
from .interface import STORAGE, bind_buffer, constant_names, load_constants, storage_type
from .kernel_text import Index, KernelText

_PURE = ("arith.", "memref.dim", "gpu.block", "gpu.thread_id", "gpu.grid_dim")
_AXES = {"x": 0, "y": 1, "z": 2}
_GENERIC = re.compile(r'^(?:%.* = )?"[\w.]+"\([^)]*\)(.*)$', re.S)


class FragmentKernel:
    """Emits the device function; ``groups`` says how each group's tiles are made.

    ``sizes`` are those of the slots.
    """

    def __init__(
        self,
        source: CoopSource,
        groups: Sequence[OperandGroup],
        *,
        target: Target,
        waves: int,
        wave: int,
        layout: str,
        sizes: Mapping[str, int],
    ) -> None:
        self.ir = KernelText()
        self.source, self.groups, self.target = source, groups, target
        ir, contraction = self.ir, source.contraction
        self.values = load_constants(ir, constant_names(contraction), layout)
        self.names: dict[mlir.Value, tuple[str, ...]] = {}
        for number, (argument, operand) in enumerate(source.buffers.items()):
            view = bind_buffer(
                ir,
                layout=layout,
                binding=number,
                type_name=operand.type,
                count=self.values.span(ir, operand),
                read_only=operand is not contraction.c,
            )
            self.names[argument] = (view,)
        for argument, size in source.sizes.items():
            self.names[argument] = (self.values[size],)
        types = (matrix_type(v.type) for op in operations(source.function) for v in op.results)
        self.lanes = Lanes(ir, waves, wave, (t.columns for t in types if t is not None))
        self.slots = Slots(ir, waves, sizes)
        self.software = SoftwareTiles(self)
        self.native = AmdTiles(self) if target.backend == "rocm" else NativeTiles(self)
        self._handlers: dict[str, Callable[[mlir.Operation], None]] = {
            "memref.load": self._load,
            "memref.store": self._store,
            "memref.dim": self._dim,
            "memref.alloc": self._alloc,
            "gpu.block_id": lambda op: self._launch(op, "hal.interface.workgroup.id"),
            "gpu.grid_dim": lambda op: self._launch(op, "hal.interface.workgroup.count"),
            "gpu.block_dim": lambda op: self._along_x(op, waves * wave, 1),
            "gpu.thread_id": lambda op: self._along_x(op, self.lanes.thread, 0),
            "gpu.lane_id": lambda op: self._set_index(op, self.lanes.lane),
            "gpu.subgroup_id": lambda op: self._set_index(op, self.lanes.index),
            "gpu.subgroup_size": lambda op: self._set_index(op, wave),
            "gpu.num_subgroups": lambda op: self._set_index(op, waves),
            "scf.for": self._for,
            "scf.if": self._if,
            "scf.yield": self._yield,
            "func.return": lambda op: ir.emit("return"),
            BARRIER: lambda op: self.barrier(),
        }

    def text(self) -> str:
        """The whole body."""
        self._block(self.source.function.regions[0].blocks[0])
        return self.ir.text()

    def barrier(self) -> None:
        """All lanes of the workgroup."""
        self.ir.emit("gpu.barrier")

    # What the tiers' writers use: names of values, and elements in memory.

    def name(self, value: mlir.Value) -> str:
        """The one name of a value that is no spread tile."""
        (name,) = self.names[value]
        return name

    def read(self, op: mlir.Operation, row: Index, column: Index) -> str:
        """One element of the tile that an op loads; zero outside of an argument."""
        ir = self.ir
        type_, memory, _, _ = access_of(op)
        stored = storage_type(type_.element)
        place, kind, within = self._element(op, row, column)
        line = f"memref.load {self.name(memory)}"
        if within is None:
            return ir.value(f"{line}[{place}] : {kind}")
        safe = ir.select(within, place, ir.index(0), "index")
        value = ir.value(f"{line}[{safe}] : {kind}")
        return ir.select(within, value, ir.constant(0, stored), stored)

    def write(
        self, op: mlir.Operation, value: str, row: Index, column: Index, inside: str | None
    ) -> None:
        """One element of the tile that an op stores; dropped outside."""
        place, kind, within = self._element(op, row, column)
        conditions = [c for c in (inside, within) if c is not None]
        line = f"memref.store {value}, {self.name(access_of(op)[1])}[{place}] : {kind}"
        if not conditions:
            self.ir.emit(line)
            return
        both = conditions[0] if len(conditions) == 1 else self.ir.both(*conditions)
        with self.ir.when(both):
            self.ir.emit(line)

    def _element(
        self, op: mlir.Operation, row: Index, column: Index
    ) -> tuple[str, str, str | None]:
        """(indices, memory type, whether inside the argument) of one element of a tile."""
        ir = self.ir
        _, memory, indices, transposed = access_of(op)
        if transposed:
            row, column = column, row
        at: list[Index] = [self.name(i) for i in indices]
        operand = self.source.buffers.get(memory)
        if operand is None:
            lead = mlir.IntegerAttr(op.attributes["leadDimension"]).value
            if len(at) == 1:
                at = [ir.add(at[0], ir.add(ir.mul(row, lead), column))]
            else:
                at[-2:] = [ir.add(at[-2], row), ir.add(at[-1], column)]
            return ", ".join(ir.index(i) for i in at), str(memory.type), None
        at[-2:] = [ir.add(at[-2], row), ir.add(at[-1], column)]
        inside = ir.both(
            *(ir.less(i, self.values[d]) for i, d in zip(at[-2:], operand.dims[-2:], strict=True))
        )
        return self._flat(operand, at), _view(operand), inside

    def _flat(self, operand: Operand, at: Sequence[Index]) -> str:
        return self.ir.index(self.values.offset(self.ir, operand, at))

    # The author's ops.

    def _block(self, block: mlir.Block) -> None:
        for item in block.operations:
            op = item.operation
            if not self.native.waits(op) and not op.name.startswith(_PURE):
                self.native.flush()
            self._op(op)

    def _op(self, op: mlir.Operation) -> None:
        if op.name in TILE_OPS:
            tile = op.operands[0] if op.name == STORE else op.results[0]
            self._writer(tile).write(op)
        elif op.name in self._handlers:
            self._handlers[op.name](op)
        else:
            self.copy(op)

    def copy(self, op: mlir.Operation) -> None:
        """The op as it is, on our names."""
        found = _GENERIC.match(op.get_asm(print_generic_op_form=True, use_local_scope=True))
        assert found is not None
        operands = ", ".join(n for o in op.operands for n in self.names[o])
        results = list(op.results)
        line = f'"{op.name}"({operands}){found[1]}'
        if not results:
            self.ir.emit(line)
        elif len(results) == 1:
            self.names[results[0]] = (self.ir.value(line),)
        else:
            name = self.ir.name()
            self.ir.emit(f"{name}:{len(results)} = {line}")
            self.names.update({r: (f"{name}#{i}",) for i, r in enumerate(results)})

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

    def _load(self, op: mlir.Operation) -> None:
        memory, *indices = op.operands
        operand = self.source.buffers.get(memory)
        if operand is None:
            self.copy(op)
            return
        at = self._flat(operand, [self.name(i) for i in indices])
        line = f"memref.load {self.name(memory)}[{at}] : {_view(operand)}"
        self.names[op.results[0]] = (self.ir.value(line),)

    def _store(self, op: mlir.Operation) -> None:
        value, memory, *indices = op.operands
        operand = self.source.buffers.get(memory)
        if operand is None:
            self.copy(op)
            return
        at = self._flat(operand, [self.name(i) for i in indices])
        self.ir.emit(
            f"memref.store {self.name(value)}, {self.name(memory)}[{at}] : {_view(operand)}"
        )

    # Control flow, with tiles that are several values.

    def _types(self, value: mlir.Value) -> list[str]:
        if matrix_type(value.type) is None:
            return [str(value.type)]
        return self._writer(value).types(value)

    def _writer(self, tile: mlir.Value) -> SoftwareTiles | NativeTiles | AmdTiles:
        return self.native if self.is_native(tile) else self.software

    def is_native(self, value: mlir.Value) -> bool:
        """Whether a tile's group keeps its matrix instructions."""
        group = self.source.tiles.group_of(value)
        return group is not None and self.groups[group].tier == "native"

    def _results(self, op: mlir.Operation) -> tuple[str, list[str]]:
        """``%r:3 = `` with the types, after the results have got their names."""
        types = [t for r in op.results for t in self._types(r)]
        if not types:
            return "", types
        name, next_ = self.ir.name("r"), 0
        for result in op.results:
            count = len(self._types(result))
            self.names[result] = tuple(f"{name}#{next_ + i}" for i in range(count))
            next_ += count
        return f"{name}:{len(types)} = ", types

    def _for(self, op: mlir.Operation) -> None:
        ir, block = self.ir, op.regions[0].blocks[0]
        begin, end, step, *initial = op.operands
        induction, *carried = block.arguments
        starts = [n for value in initial for n in self.names[value]]
        self.names[induction] = (ir.name("i"),)
        for value in carried:
            self.names[value] = tuple(ir.name("a") for _ in self._types(value))
        head, types = self._results(op)
        inner = [n for value in carried for n in self.names[value]]
        pairs = ", ".join(f"{c} = {i}" for c, i in zip(inner, starts, strict=True))
        args = f" iter_args({pairs}) -> ({', '.join(types)})" if types else ""
        bounds = f"{self.name(begin)} to {self.name(end)} step {self.name(step)}"
        kind = "" if str(induction.type) == "index" else f" : {induction.type}"
        with ir.block(f"{head}scf.for {self.name(induction)} = {bounds}{args}{kind} {{"):
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
        names = [n for value in op.operands for n in self.names[value]]
        types = [t for value in op.operands for t in self._types(value)]
        if names:
            self.ir.emit(f"scf.yield {', '.join(names)} : {', '.join(types)}")


def _axis(op: mlir.Operation) -> int:
    found = re.fullmatch(r"#gpu<dim (\w)>|#gpu\.dim<(\w)>", str(op.attributes["dimension"]))
    assert found is not None
    return _AXES[found[1] or found[2]]


def _view(operand: Operand) -> str:
    return f"memref<?x{storage_type(operand.type)}, {STORAGE}>"
