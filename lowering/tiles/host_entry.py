"""Host functions of a candidate: what IREE exports and the run time calls.

Every buffer is the caller's: operands, result and workspace come in as ``!hal.buffer``, the result
is written in place by a dispatch tied to it, and nothing is allocated or copied. Sizes and strides
come as i32 in the order of :mod:`.interface`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dialects.operands import Contraction, Operand

from .interface import KernelValues, constant_names, storage_type
from .kernel_text import Index, KernelText


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A flat tensor on the host: its SSA name, element type and element count."""

    name: str
    element: str
    count: str

    @property
    def typed(self) -> str:
        """``tensor<?xf32>{%count}``."""
        return f"tensor<?x{self.element}>{{{self.count}}}"


class HostFunction:
    """One exported function in the making."""

    def __init__(self, contraction: Contraction) -> None:
        self.ir = KernelText(indent=2)
        self.contraction = contraction
        self.constants = constant_names(contraction)
        self.values = KernelValues(
            values={
                name: self.ir.value(f"arith.index_castui {_scalar(name)} : i32 to index")
                for name in self.constants
            }
        )
        self._buffers: list[str] = []

    def buffer(self, name: str, element: str, count: Index, *, consume: bool = False) -> Tensor:
        """A buffer argument as a flat tensor; ``consume`` where it is written in place."""
        self._buffers.append(name)
        size = self.ir.index(count)
        how = "consume " if consume else ""
        tensor = self.ir.value(
            f'hal.tensor.import {how}%{name}_buffer "{name}" : !hal.buffer'
            f" -> tensor<?x{element}>{{{size}}}"
        )
        return Tensor(name=tensor, element=element, count=size)

    def operand(self, operand: Operand, *, consume: bool = False) -> Tensor:
        """An operand as a buffer argument of exactly the span that its sizes and strides give."""
        count = self.values.span(self.ir, operand)
        return self.buffer(operand.name, storage_type(operand.type), count, consume=consume)

    def dispatch(
        self,
        kernel: str,
        *,
        workload: Sequence[Index],
        constants: Sequence[str],
        reads: Sequence[Tensor],
        writes: Tensor,
    ) -> Tensor:
        """Launch ``@executable::@entry`` in place on ``writes``; the result replaces it."""
        ir = self.ir
        load = ", ".join(ir.index(w) for w in workload)
        operands = ", ".join([*constants, *(t.name for t in [*reads, writes])])
        types = ", ".join(["i32"] * len(constants) + [t.typed for t in [*reads, writes]])
        result = ir.value(
            f"flow.dispatch {kernel}[{load}]({operands}) : ({types})"
            f" -> {writes.name}{{{writes.count}}}"
        )
        return Tensor(name=result, element=writes.element, count=writes.count)

    def scalars(self) -> list[str]:
        """The i32 arguments by SSA name, to pass on to a kernel."""
        return [_scalar(name) for name in self.constants]

    def integer(self, index: Index) -> str:
        """An index as an i32 constant for a kernel."""
        return self.ir.value(f"arith.index_cast {self.ir.index(index)} : index to i32")

    def finish(self, name: str, result: Tensor) -> str:
        """The function's text; it returns the buffer of ``result``."""
        ir = self.ir
        out = ir.value(f'hal.tensor.export {result.name} "out" : {result.typed} -> !hal.buffer')
        ir.emit(f"util.return {out} : !hal.buffer")
        arguments = _arguments(self._buffers, self.constants)
        signature = ", ".join(f"{n}: {t}" for n, t in arguments)
        return f"util.func public @{name}({signature}) -> !hal.buffer {{\n{ir.text()}\n}}\n"

    def repeat(self, name: str, result: str) -> str:
        """``<name>.repeat``: the same call ``count`` times, for a timer that takes the slope.

        Each round is a whole call, so nothing can be hoisted out of the loop or elided.
        """
        arguments = _arguments(self._buffers, self.constants)
        names = ", ".join("%x" if n == f"%{result}_buffer" else n for n, _ in arguments)
        types = ", ".join(t for _, t in arguments)
        signature = ", ".join(f"{n}: {t}" for n, t in [*arguments, ("%count", "i32")])
        return (
            f"util.func public @{name}.repeat({signature}) -> !hal.buffer {{\n"
            "  %zero = arith.constant 0 : i32\n"
            "  %one = arith.constant 1 : i32\n"
            f"  %last = scf.for %i = %zero to %count step %one"
            f" iter_args(%x = %{result}_buffer) -> (!hal.buffer) : i32 {{\n"
            f"    %next = util.call @{name}({names}) : ({types}) -> !hal.buffer\n"
            "    scf.yield %next : !hal.buffer\n"
            "  }\n"
            "  util.return %last : !hal.buffer\n"
            "}\n"
        )


def _scalar(name: str) -> str:
    return f"%{name.replace('.', '_')}_i32"


def _arguments(buffers: Sequence[str], constants: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [(f"%{b}_buffer", "!hal.buffer") for b in buffers]
    return pairs + [(_scalar(c), "i32") for c in constants]


def executable(
    *,
    name: str,
    entry: str,
    layout: str,
    workload: int,
    grid: Callable[[KernelText, list[str]], Sequence[Index]],
    block: Sequence[int] | None,
    body: str,
    attributes: str = "",
) -> str:
    """A ``hal.executable.source`` with one export whose grid is computed from the workload.

    ``block`` None is for the CPU, where a workgroup is one call.
    """
    ir = KernelText(indent=4)
    names = [f"%w{i}" for i in range(workload)]
    counts = [ir.index(c) for c in grid(ir, names)]
    ir.emit(f"hal.return {', '.join(counts)} : index, index, index")
    signature = ", ".join(["%device: !hal.device", *(f"{n}: index" for n in names)])
    size = list(block) if block else None
    hint = f" workgroup_size = {size}" if size else ""
    sizes = ", ".join(f"{s} : index" for s in block or ())
    tail = f" <workgroup_size = [{sizes}]>" if block else ""
    info = f"#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline{hint}>"
    return (
        f"hal.executable.source private @{name} {{\n"
        f"  hal.executable.export public @{entry} ordinal(0) layout({layout})"
        f" count({signature}) -> (index, index, index) {{\n{ir.text()}\n  }}{tail}\n"
        f"  builtin.module {{\n"
        f"    func.func @{entry}() attributes {{translation_info = {info}{attributes}}} {{\n"
        f"{body}\n    }}\n  }}\n}}\n"
    )
