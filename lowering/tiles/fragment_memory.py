"""Memory of a kernel in cooperative-matrix IR: arguments as flat views, tiles by their elements.

Elements of a tile that lie outside of an argument are zero when loaded and dropped when stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dialects.operands import Operand

from ..coop_source import CoopSource, access_of
from ..ir import mlir
from .interface import STORAGE, bind_buffer, constant_names, load_constants, storage_type
from .kernel_text import Index, KernelText

Names = dict[mlir.Value, tuple[str, ...]]  # of the author's values in our text; a tile has several

_GENERIC = re.compile(r'^(?:%.* = )?"[\w.]+"\([^)]*\)(.*)$', re.S)


class KernelMemory:
    """A device function with its arguments bound.

    ``contexts`` are the names of values, once for each wave that the text writes out by itself:
    lanes that run the same text share one.
    """

    def __init__(self, source: CoopSource, layout: str) -> None:
        self.ir, self.source = KernelText(), source
        ir, contraction = self.ir, source.contraction
        self.values = load_constants(ir, constant_names(contraction), layout)
        self.contexts: list[Names] = [{}]
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

    @property
    def names(self) -> Names:
        """The names in the wave that is being written."""
        return self.contexts[0]

    def spelled(self, text: str) -> str:
        """A type or an op of the author's as the back end spells it."""
        return text

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
        at = self.place(op, row, column)
        inside = self.within(op, at)
        return *self.spot(op, at), inside

    def place(self, op: mlir.Operation, row: Index, column: Index) -> list[Index]:
        """The indices of a tile's element in the memory that an op loads or stores."""
        ir = self.ir
        _, _, indices, transposed = access_of(op)
        if transposed:
            row, column = column, row
        at: list[Index] = [self.name(i) for i in indices]
        if len(at) == 1:
            lead = mlir.IntegerAttr(op.attributes["leadDimension"]).value
            return [ir.add(at[0], ir.add(ir.mul(row, lead), column))]
        return [*at[:-2], ir.add(at[-2], row), ir.add(at[-1], column)]

    def spot(self, op: mlir.Operation, at: Sequence[Index]) -> tuple[str, str]:
        """(indices, memory type) as an op on that memory is written."""
        memory = access_of(op)[1]
        operand = self.source.buffers.get(memory)
        if operand is None:
            return ", ".join(self.ir.index(i) for i in at), self.spelled(str(memory.type))
        return self._flat(operand, at), _view(operand)

    def within(self, op: mlir.Operation, at: Sequence[Index]) -> str | None:
        """Whether indices lie within an argument; None for memory of the author's."""
        operand = self.source.buffers.get(access_of(op)[1])
        if operand is None:
            return None
        pairs = zip(at[-2:], operand.dims[-2:], strict=True)
        return self.ir.both(*(self.ir.less(i, self.values[d]) for i, d in pairs))

    def _flat(self, operand: Operand, at: Sequence[Index]) -> str:
        return self.ir.index(self.values.offset(self.ir, operand, at))

    def copy(self, op: mlir.Operation) -> None:
        """The op as it is, on our names."""
        found = _GENERIC.match(op.get_asm(print_generic_op_form=True, use_local_scope=True))
        assert found is not None
        operands = ", ".join(n for o in op.operands for n in self.names[o])
        results = list(op.results)
        line = self.spelled(f'"{op.name}"({operands}){found[1]}')
        if not results:
            self.ir.emit(line)
        elif len(results) == 1:
            self.names[results[0]] = (self.ir.value(line),)
        else:
            name = self.ir.name()
            self.ir.emit(f"{name}:{len(results)} = {line}")
            self.names.update({r: (f"{name}#{i}",) for i, r in enumerate(results)})

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


def _view(operand: Operand) -> str:
    return f"memref<?x{storage_type(operand.type)}, {STORAGE}>"
