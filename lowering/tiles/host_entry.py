"""Host functions of a candidate: what IREE exports and the run time calls.

Every buffer is the caller's: operands, result and workspace come in as ``!hal.buffer``, the result
is written in place by a dispatch tied to it, and nothing is allocated or copied. Sizes and strides
come as i32 in the order of :mod:`.interface`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dialects.operands import Contraction, Operand
from dialects.types import element_type

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
    """One exported function in the making; ``split`` says that it is told the slices of K."""

    def __init__(
        self,
        contraction: Contraction,
        *,
        split: bool = False,
        parameters: tuple[str, ...] = (),
    ) -> None:
        """``parameters`` are further i32 arguments, after the sizes and strides."""
        self.ir = KernelText(indent=2)
        self.contraction = contraction
        self.constants = (*constant_names(contraction, split=split), *parameters)
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
            f'hal.tensor.import wait(%wait) => {how}%{name}_buffer "{name}" : !hal.buffer'
            f" -> tensor<?x{element}>{{{size}}}"
        )
        return Tensor(name=tensor, element=element, count=size)

    def operand(
        self, operand: Operand, *, consume: bool = False, whole_words: bool = False
    ) -> Tensor:
        """An operand as a buffer argument of exactly the span that its sizes and strides give.

        ``whole_words`` rounds it up to 32-bit words, of which every device buffer is made.
        """
        count = self.values.span(self.ir, operand)
        per = 4 // element_type(operand.stored_type).bytes
        if whole_words and per > 1:
            count = self.ir.mul(self.ir.ceildiv(count, per), per)
        return self.buffer(operand.name, storage_type(operand.stored_type), count, consume=consume)

    def shaped(self, operand: Operand) -> str:
        """A contiguous operand as a buffer argument in its own shape."""
        self._buffers.append(operand.name)
        return self.ir.value(
            f'hal.tensor.import wait(%wait) => %{operand.name}_buffer "{operand.name}"'
            f" : !hal.buffer -> {self._shape(operand)}"
        )

    def into(self, operand: Operand, value: str) -> Tensor:
        """A computed tensor put into a buffer argument: whoever computes it writes there."""
        self._buffers.append(operand.name)
        shape = self._shape(operand)
        placed = self.ir.value(
            f"hal.tensor.alias wait(%wait) => {value} : {shape} to %{operand.name}_buffer"
            " : !hal.buffer"
        )
        element, _, sizes = shape.removeprefix("tensor<").removesuffix("}").partition(">{")
        return Tensor(name=placed, element=element.removeprefix("?x"), count=sizes)

    def _shape(self, operand: Operand) -> str:
        sizes = ", ".join(self.ir.index(self.values[d]) for d in operand.dims)
        return f"tensor<{'?x' * len(operand.dims)}{storage_type(operand.type)}>{{{sizes}}}"

    def dispatch(
        self,
        executable: str,
        entry: str,
        *,
        workload: Sequence[Index],
        constants: Sequence[str],
        reads: Sequence[Tensor],
        writes: Tensor,
        scratch: Tensor | None = None,
    ) -> Tensor:
        """Launch ``entry`` in place on ``writes``; the result replaces it.

        ``scratch`` is written too; nothing reads it afterwards.
        """
        ir = self.ir
        load = ", ".join(ir.index(w) for w in workload)
        written = [writes, scratch] if scratch else [writes]
        operands = ", ".join([*constants, *(t.name for t in [*reads, *written])])
        types = ", ".join(["i32"] * len(constants) + [t.typed for t in [*reads, *written]])
        results = ", ".join(f"{t.name}{{{t.count}}}" for t in written)
        result = ir.name("v")
        ir.emit(
            f"{result}{f':{len(written)}' if scratch else ''} = "
            f"flow.dispatch @{symbol_of(executable)}::@{entry}[{load}]({operands}) : ({types})"
            f" -> {f'({results})' if scratch else results}"
        )
        first = f"{result}#0" if scratch else result
        return Tensor(name=first, element=writes.element, count=writes.count)

    def scalars(self) -> list[str]:
        """The i32 arguments by SSA name, to pass on to a kernel."""
        return [_scalar(name) for name in self.constants]

    def integer(self, index: Index) -> str:
        """An index as an i32 constant for a kernel."""
        return self.ir.value(f"arith.index_cast {self.ir.index(index)} : index to i32")

    def finish(self, name: str, result: Tensor, *, repeat: bool = False) -> str:
        """``<name>.async``, ``<name>`` and, when asked for, ``<name>.repeat``.

        All return the buffer of ``result``.
        """
        ir = self.ir
        shape = result.typed.partition("{")[0]
        ready = ir.value(
            f"hal.tensor.barrier join({result.name} : {shape}) => %signal : !hal.fence"
        )
        out = ir.value(f'hal.tensor.export {ready} "out" : {result.typed} -> !hal.buffer')
        ir.emit(f"util.return {out} : !hal.buffer")
        text = f"{self._head(f'{name}.async', _FENCES)}{ir.text()}\n}}\n{self._synchronous(name)}"
        return text + (self._repeat(name) if repeat else "")

    def _head(self, name: str, more: Sequence[tuple[str, str]] = ()) -> str:
        signature = ", ".join(f"{n}: {t}" for n, t in [*self._arguments(), *more])
        return f"util.func public @{name}({signature}) -> !hal.buffer {{\n"

    def _arguments(self) -> list[tuple[str, str]]:
        pairs = [(f"%{b}_buffer", "!hal.buffer") for b in self._buffers]
        return pairs + [(_scalar(c), "i32") for c in self.constants]

    def _call(self, name: str, wait: str, signal: str) -> str:
        pairs = [*self._arguments(), (wait, "!hal.fence"), (signal, "!hal.fence")]
        names, types = (", ".join(p[i] for p in pairs) for i in (0, 1))
        return f"util.call @{name}.async({names}) : ({types}) -> !hal.buffer"

    def _synchronous(self, name: str) -> str:
        """``<name>`` returns when the result is there."""
        return (
            f"{self._head(name)}{_SETUP}"
            f"  %fence = {_CREATE}\n"
            f"  %result = {self._call(name, '%none', '%fence')}\n"
            f"{_await('%fence', indent=2)}"
            "  util.return %result : !hal.buffer\n}\n"
        )

    def _repeat(self, name: str) -> str:
        """``<name>.repeat``: ``count`` calls, each after the one before, for a timer.

        Each round is a whole launch of its own, so nothing can be hoisted out of the loop or
        elided. It returns once all are queued; the last one signals. The host waits between
        batches, so that no queue overflows.
        """
        more = [("%count", "i32"), *_FENCES]
        return (
            f"{self._head(f'{name}.repeat', more)}{_SETUP}"
            "  %zero = arith.constant 0 : i32\n"
            "  %one = arith.constant 1 : i32\n"
            f"  %batch = arith.constant {BATCH} : i32\n"
            f"  %end = arith.constant {BATCH - 1} : i32\n"
            "  %final = arith.subi %count, %one : i32\n"
            "  %nothing = arith.cmpi eq, %count, %zero : i32\n"
            "  scf.if %nothing {\n"
            "    hal.fence.signal<%signal : !hal.fence>\n"
            "  }\n"
            "  %last = scf.for %i = %zero to %count step %one iter_args(%before = %wait)"
            " -> (!hal.fence) : i32 {\n"
            "    %is_final = arith.cmpi eq, %i, %final : i32\n"
            "    %fence = scf.if %is_final -> (!hal.fence) {\n"
            "      scf.yield %signal : !hal.fence\n"
            "    } else {\n"
            f"      %between = {_CREATE}\n"
            "      scf.yield %between : !hal.fence\n"
            "    }\n"
            f"    %next = {self._call(name, '%before', '%fence')}\n"
            "    %place = arith.remui %i, %batch : i32\n"
            "    %full = arith.cmpi eq, %place, %end : i32\n"
            "    scf.if %full {\n"
            f"{_await('%fence', indent=6)}"
            "    }\n"
            "    scf.yield %fence : !hal.fence\n"
            "  }\n"
            f"  util.return %{self.contraction.c.name}_buffer : !hal.buffer\n}}\n"
        )


BATCH = 32  # launches in flight at most
_FENCES = (("%wait", "!hal.fence"), ("%signal", "!hal.fence"))
_CREATE = 'hal.fence.create device(%device : !hal.device) flags("None") : !hal.fence'
_SETUP = (
    "  %first = arith.constant 0 : index\n"
    "  %forever = arith.constant -1 : i32\n"
    "  %device = hal.devices.get %first : !hal.device\n"
    "  %none = util.null : !hal.fence\n"
)


def _await(fence: str, *, indent: int) -> str:
    pad = " " * indent
    return (
        f'{pad}%status = hal.fence.await until([{fence}]) timeout_millis(%forever) flags("None")'
        f' : i32\n{pad}util.status.check_ok %status, "a launch failed"\n'
    )


def _scalar(name: str) -> str:
    return f"%{name}_i32"


def symbol_of(executable: str) -> str:
    """The symbol of an executable: no kernel and no host function can be called like it."""
    return f"__{executable}"


def executable(
    *,
    name: str,
    entry: str,
    layout: str,
    workload: int,
    grid: Callable[[KernelText, list[str]], Sequence[Index]],
    block: Sequence[int] | None,
    body: str,
    wave: int | None = None,
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
    hint += f" subgroup_size = {wave}" if wave else ""
    sizes = ", ".join(f"{s} : index" for s in block or ())
    tail = f" <workgroup_size = [{sizes}]>" if block else ""
    info = f"#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline{hint}>"
    return (
        f"hal.executable.source private @{symbol_of(name)} {{\n"
        f"  hal.executable.export public @{entry} ordinal(0) layout({layout})"
        f" count({signature}) -> (index, index, index) {{\n{ir.text()}\n  }}{tail}\n"
        f"  builtin.module {{\n"
        f"    func.func @{entry}() attributes {{translation_info = {info}{attributes}}} {{\n"
        f"{body}\n    }}\n  }}\n}}\n"
    )
