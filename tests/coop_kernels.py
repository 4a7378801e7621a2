"""Small kernels in cooperative-matrix IR, written for any tile, and their meanings."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.declarations import Declarations
from dialects.operands import Contraction, Operand
from dialects.types import element_type
from lowering.builder import KernelSource, dense, source_text

MATRIX_ELEMENTS = {"i8": "si8", "u8": "ui8"}


@dataclass(frozen=True, kw_only=True)
class Coop:
    """C (+)= A * B by one wave, or several, of m x n x k tiles.

    ``before`` are lines at the start, ``inside`` at the start of the loop, ``between`` lines that
    make %last of %sum; ``{acc}`` in them is the accumulator's type.
    """

    type: str = "f16"
    accumulator: str = "f32"
    m: int = 16
    n: int = 16
    k: int = 16
    waves_m: int = 1
    waves_n: int = 1
    accumulate: bool = False
    transposed_b: bool = False
    batch: bool = False
    before: str = ""
    inside: str = ""
    between: str = ""
    wave: int | None = None

    @property
    def contraction(self) -> Contraction:
        """What it computes."""
        return dense(
            self.type,
            self.accumulator,
            batch=self.batch,
            transposed_b=self.transposed_b,
            accumulate=self.accumulate,
        )

    def matrix(self, rows: int, columns: int, type_: str, use: str) -> str:
        """A tile type."""
        element = MATRIX_ELEMENTS.get(type_, element_type(type_).mlir)
        return f'!gpu.mma_matrix<{rows}x{columns}x{element}, "{use}">'

    @property
    def acc(self) -> str:
        """The accumulator's tile type."""
        return self.matrix(self.m, self.n, self.accumulator, "COp")


def coop_text(coop: Coop, name: str = "coop") -> str:
    """A module with the kernel and its reference."""
    return _reference(coop, f"{name}_reference") + _kernel(coop, name)


def _reference(coop: Coop, name: str) -> str:
    contraction = coop.contraction
    declared = Declarations(dims=contraction.dims)
    text = source_text([KernelSource(name=name, contraction=contraction, declarations=declared)])
    head, _, rest = text.partition("attributes {")
    return head + rest.partition("} {\n")[2].join(["{\n", ""])


def _memref(operand: Operand) -> str:
    return f"memref<{'?x' * len(operand.dims)}{element_type(operand.type).mlir}>"


def _load(result: str, memory: str, at: str, operand: Operand, type_: str, flip: bool) -> str:
    turned = " transpose" if flip else ""
    return (
        f"{result} = gpu.subgroup_mma_load_matrix {memory}[{at}] leadDimension 0{turned}"
        f" : {_memref(operand)} -> {type_}"
    )


def _kernel(coop: Coop, name: str) -> str:
    c, acc = coop.contraction, coop.acc
    a_type = coop.matrix(coop.m, coop.k, coop.type, "AOp")
    b_type = coop.matrix(coop.k, coop.n, coop.type, "BOp")
    lead = "%z, " if coop.batch else ""
    zero = "0.0" if element_type(coop.accumulator).kind == "float" else "0"
    mlir = element_type(coop.accumulator).mlir
    if coop.accumulate:
        start = _load("%start", "%c", f"{lead}%row, %column", c.c, acc, False)
    else:
        start = (
            f"%zero = arith.constant {zero} : {mlir}\n"
            f"  %start = gpu.subgroup_mma_constant_matrix %zero : {acc}"
        )
    b_at = f"{lead}%column, %i" if coop.transposed_b else f"{lead}%i, %column"
    sizes = ", ".join(f"%size_{d}: index" for d in c.dims)
    memrefs = ", ".join(f"%{o.name}: {_memref(o)}" for o in c.operands)
    declared = f", xpu.wave = {{width = {coop.wave}}}" if coop.wave else ""
    dims = ", ".join(f'"{d}"' for d in c.dims)
    last = "%last" if coop.between else "%sum"
    return f"""
func.func @{name}({memrefs}, {sizes}) attributes {{xpu.kernel, xpu.dims = [{dims}],
    xpu.reference = @{name}_reference{declared},
    xpu.instantiate = [{{m = {coop.m * coop.waves_m}, n = {coop.n * coop.waves_n}, k = {coop.k},
                        waves_m = {coop.waves_m}, waves_n = {coop.waves_n}}}]}} {{
  %c0 = arith.constant 0 : index
  %cm = arith.constant {coop.m} : index
  %cn = arith.constant {coop.n} : index
  %ck = arith.constant {coop.k} : index
  %wm = arith.constant {coop.waves_m} : index
  %wn = arith.constant {coop.waves_n} : index
  %x = gpu.block_id x
  %y = gpu.block_id y
  %z = gpu.block_id z
  %wave = gpu.subgroup_id : index
  %wave_m = arith.divui %wave, %wn : index
  %wave_n = arith.remui %wave, %wn : index
  %row0 = arith.muli %y, %wm : index
  %row1 = arith.addi %row0, %wave_m : index
  %row = arith.muli %row1, %cm : index
  %column0 = arith.muli %x, %wn : index
  %column1 = arith.addi %column0, %wave_n : index
  %column = arith.muli %column1, %cn : index
  {coop.before.replace("{acc}", acc)}
  {start}
  %sum = scf.for %i = %c0 to %size_K step %ck iter_args(%acc = %start) -> ({acc}) {{
    {coop.inside.replace("{acc}", acc)}
    {_load("%fa", "%a", f"{lead}%row, %i", c.a, a_type, False)}
    {_load("%fb", "%b", b_at, c.b, b_type, coop.transposed_b)}
    %next = gpu.subgroup_mma_compute %fa, %fb, %acc : {a_type}, {b_type} -> {acc}
    scf.yield %next : {acc}
  }}
  {coop.between.replace("{acc}", acc)}
  gpu.subgroup_mma_store_matrix {last}, %c[{lead}%row, %column] leadDimension 0
      : {acc}, {_memref(c.c)}
  return
}}
"""
