"""The portable software tile: one emitter for every GPU backend, no matrix instruction, no shuffle.

A workgroup computes an m x n tile of C. It stages m x k of A and k x n of B in workgroup memory in
the accumulator's type, and each lane keeps thread_m x thread_n accumulators (seed section 1, the
software tile; design section 3). Edges are predicated: an address outside is clamped and its value
dropped, so any M, N, K runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.expressions import ceildiv
from dialects.manifest import Footprint, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Operand, OperandGroup, Tier
from dialects.types import element_type

from ..target import Target
from .body import Emitted, refused_types
from .epilogue import compute_type, convert
from .gemm_launch import gemm_executable, gemm_host, gemm_launch, gemm_layout
from .gemm_store import store_element
from .interface import (
    SHARED,
    STORAGE,
    KernelValues,
    bind_buffer,
    constant_names,
    load_constants,
    storage_type,
)
from .kernel_text import MAX_UNROLLED, Index, KernelText
from .split_k import (
    Slice,
    bind_partial,
    k_slice,
    split_executables,
    split_host,
    split_launch,
    split_layout,
    store_partial,
)

STORAGE_FEATURES = {8: "b8", 16: "b16", 64: "b64"}  # storage widths a device may lack


@dataclass(frozen=True, kw_only=True)
class SoftwareBody:
    """Workgroup-memory staged tile with a register tile a lane."""

    name: ClassVar[str] = "software"
    tier: ClassVar[Tier] = "software"
    backends: ClassVar[tuple[str, ...]] = ("cuda", "rocm", "vulkan")

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs thread_m and thread_n that divide the tile."""
        if not tile.thread_m or not tile.thread_n:
            return "the software tile needs thread_m and thread_n"
        if tile.m % tile.thread_m or tile.n % tile.thread_n:
            return f"thread tile {tile.thread_m}x{tile.thread_n} does not divide {tile.m}x{tile.n}"
        if tile.thread_m * tile.thread_n > MAX_UNROLLED:
            return f"thread tile {tile.thread_m}x{tile.thread_n} > {MAX_UNROLLED} elements"
        threads = (tile.m // tile.thread_m) * (tile.n // tile.thread_n)
        staged = ceildiv(tile.k * max(tile.m, tile.n), threads)
        if staged > MAX_UNROLLED:
            return f"each of {threads} lanes would stage {staged} > {MAX_UNROLLED} elements"
        return refused_types(contraction, self.name)

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        threads = (tile.m // tile.thread_m) * (tile.n // tile.thread_n)
        layout = gemm_layout(contraction)
        block = (threads, 1, 1)
        # ptxas holds a 256-thread kernel to 128 registers unless told that one block will do
        attributes = ", nvvm.minctasm = 1 : i32" if target.backend == "cuda" else ""
        code = gemm_executable(
            contraction,
            tile,
            layout=layout,
            block=block,
            body=_Kernel(contraction, tile, threads, layout).emit(),
            attributes=attributes,
        )
        slices = _Kernel(contraction, tile, threads, split_layout(contraction), split=True)
        code += split_executables(
            contraction, tile, block=block, body=slices.emit(), attributes=attributes
        )
        shared = tile.k * (tile.m + tile.n) * element_type(compute_type(contraction)).bytes
        dynamic = target.backend == "cuda"  # NVPTX puts workgroup memory in the dynamic block
        return Emitted(
            text=code + gemm_host(kernel, contraction) + split_host(kernel, contraction),
            launch=gemm_launch(contraction, tile, block, shared if dynamic else 0),
            split=split_launch(contraction, tile, block, shared if dynamic else 0),
            workspace=None,
            prepared=None,
            needs=Needs(features=storage_needs(contraction, target)),
            footprint=Footprint(
                static_shared_bytes=0 if dynamic else shared,
                dynamic_shared_bytes=shared if dynamic else 0,
                threads_per_group=threads,
            ),
            groups=(software_group(contraction, "software tile"),),
        )


def software_group(contraction: Contraction, reason: str) -> OperandGroup:
    """The one operand group of a contraction on the software tier."""
    return OperandGroup(
        a=contraction.a.type,
        b=contraction.b.type,
        acc=contraction.accumulator,
        tier="software",
        reason=reason,
    )


def storage_needs(contraction: Contraction, target: Target) -> tuple[str, ...]:
    """Names of the storage widths and arithmetic the kernel uses and a Vulkan device may lack."""
    if target.backend != "vulkan":
        return ()
    types = [element_type(o.type) for o in contraction.operands]
    types.append(element_type(contraction.accumulator))
    needs = {STORAGE_FEATURES[t.bits] for t in types if t.bits in STORAGE_FEATURES}
    needs |= {"fp16" for t in types if t.name == "f16"}
    needs |= {"fp64" for t in types if t.name == "f64"}
    needs |= {"int8" for t in types if t.bits == 8}
    return tuple(sorted(needs - {"b64"}))


class _Kernel:
    """Emits the device function of one tile; with ``split``, of one slice of its K."""

    def __init__(
        self,
        contraction: Contraction,
        tile: Tile,
        threads: int,
        layout: str,
        *,
        split: bool = False,
    ) -> None:
        self.ir = KernelText()
        self.contraction, self.tile, self.threads, self.layout = contraction, tile, threads, layout
        self.type = compute_type(contraction)
        self.mlir = element_type(self.type).mlir
        self.values: KernelValues = load_constants(
            self.ir, constant_names(contraction, split=split), layout
        )
        self.buffers = {
            o.name: bind_buffer(
                self.ir,
                layout=layout,
                binding=i,
                type_name=o.type,
                count=self.values.span(self.ir, o),
                read_only=i < len(contraction.operands) - 1,
            )
            for i, o in enumerate(contraction.operands[: 2 if split else None])
        }
        column, row, batch = (
            self.ir.value(f"hal.interface.workgroup.id[{axis}] : index", "wg") for axis in range(3)
        )
        self.batch: Index = batch
        self.begin: Index = 0
        self.end: Index = self.values[contraction.k]
        self.part: Slice | None = None
        if split:
            self.part = k_slice(self.ir, self.values, contraction, tile, batch)
            self.batch, self.begin, self.end = self.part.batch, self.part.begin, self.part.end
            self.partial = bind_partial(self.ir, contraction, self.values, layout, binding=2)
        self.row0, self.col0 = self.ir.mul(row, tile.m), self.ir.mul(column, tile.n)
        self.lane = self.ir.value("gpu.thread_id x", "lane")
        across = tile.n // tile.thread_n
        self.lane_n, self.lane_m = self.ir.rem(self.lane, across), self.ir.div(self.lane, across)
        self.shared_a = self._shared(tile.k * tile.m)
        self.shared_b = self._shared(tile.k * tile.n)

    def emit(self) -> str:
        self._store(self._main_loop())
        self.ir.emit("return")
        return self.ir.text()

    def _shared(self, count: int) -> str:
        return self.ir.value(f"memref.alloc() : memref<{count}x{self.mlir}, {SHARED}>", "shared")

    def _main_loop(self) -> list[str]:
        ir, tile = self.ir, self.tile
        zero = ir.constant(0, self.mlir)

        def k_tile(k0: str, accumulators: list[str]) -> list[str]:
            self._stage(k0)
            ir.emit("gpu.barrier")
            result = ir.carried_loop(0, tile.k, 1, accumulators, self.mlir, self._multiply)
            ir.emit("gpu.barrier")
            return result

        count = tile.thread_m * tile.thread_n
        return ir.carried_loop(self.begin, self.end, tile.k, [zero] * count, self.mlir, k_tile)

    def _stage(self, k0: str) -> None:
        """Copy A[row0:, k0:] and B[k0:, col0:] to workgroup memory, zero outside.

        Lanes run along the contiguous axis of each operand, so that a wave reads whole lines.
        """
        c = self.contraction
        self._stage_operand(
            c.a, self.shared_a, self.tile.m, self.row0, self.values[c.m], k0, c.transposed_a
        )
        self._stage_operand(
            c.b, self.shared_b, self.tile.n, self.col0, self.values[c.n], k0, not c.transposed_b
        )

    def _stage_operand(
        self,
        operand: Operand,
        shared: str,
        width: int,
        outer0: Index,
        outer_size: str,
        k0: str,
        outer_contiguous: bool,
    ) -> None:
        """``width`` is the tile's extent along M or N; workgroup memory is [k][width]."""
        ir, tile = self.ir, self.tile
        total = width * tile.k
        for start in range(0, total, self.threads):
            element = ir.add(self.lane, start)
            if outer_contiguous:
                k, outer = ir.div(element, width), ir.rem(element, width)
            else:
                outer, k = ir.div(element, tile.k), ir.rem(element, tile.k)
            where = (ir.add(outer0, outer), ir.add(k0, k))

            def copy(
                where: tuple[Index, Index] = where, k: Index = k, outer: Index = outer
            ) -> None:
                inside = ir.both(
                    ir.less(where[0], outer_size),
                    ir.less(where[1], self.values[self.contraction.k]),
                )
                indices = [where[1], where[0]] if outer_contiguous else [where[0], where[1]]
                value = self._load(operand, indices, inside)
                slot = ir.index(ir.add(ir.mul(k, width), outer))
                ir.emit(
                    f"memref.store {value}, {shared}[{slot}]"
                    f" : memref<{total}x{self.mlir}, {SHARED}>"
                )

            if start + self.threads > total:  # the last pass may be partial
                with ir.when(ir.less(element, total)):
                    copy()
            else:
                copy()

    def _load(self, operand: Operand, indices: list[Index], inside: str) -> str:
        """One element in the compute type, or zero when not ``inside``."""
        ir = self.ir
        if len(operand.dims) == 3:
            indices = [self.batch, *indices]
        position = ir.index(self.values.offset(ir, operand, indices))
        safe = ir.select(inside, position, ir.index(0), "index")
        stored = storage_type(operand.type)
        raw = ir.value(
            f"memref.load {self.buffers[operand.name]}[{safe}] : memref<?x{stored}, {STORAGE}>"
        )
        value = convert(ir, raw, operand.type, self.type)
        return ir.select(inside, value, ir.constant(0, self.mlir), self.mlir)

    def _column(self, j: int) -> Index:
        """Tile column of a lane's j-th accumulator: strided over lanes, so stores coalesce."""
        return self.ir.add(self.lane_n, j * (self.tile.n // self.tile.thread_n))

    def _row(self, i: int) -> Index:
        return self.ir.add(self.ir.mul(self.lane_m, self.tile.thread_m), i)

    def _multiply(self, k: str, accumulators: list[str]) -> list[str]:
        ir, tile = self.ir, self.tile
        a = self._fetch(self.shared_a, tile.m, k, [self._row(i) for i in range(tile.thread_m)])
        b = self._fetch(self.shared_b, tile.n, k, [self._column(j) for j in range(tile.thread_n)])
        result = []
        for i in range(tile.thread_m):
            for j in range(tile.thread_n):
                old = accumulators[i * tile.thread_n + j]
                result.append(multiply_add(ir, a[i], b[j], old, self.type))
        return result

    def _fetch(self, shared: str, width: int, k: str, columns: list[Index]) -> list[str]:
        ir = self.ir
        row = ir.mul(k, width)
        kind = f"memref<{width * self.tile.k}x{self.mlir}, {SHARED}>"
        return [
            ir.value(f"memref.load {shared}[{ir.index(ir.add(row, c))}] : {kind}") for c in columns
        ]

    def _store(self, accumulators: list[str]) -> None:
        ir, c = self.ir, self.contraction
        for i in range(self.tile.thread_m):
            row = ir.add(self.row0, self._row(i))
            row_inside = ir.less(row, self.values[c.m])
            for j in range(self.tile.thread_n):
                column = ir.add(self.col0, self._column(j))
                inside = ir.both(row_inside, ir.less(column, self.values[c.n]))
                with ir.when(inside):
                    value = accumulators[i * self.tile.thread_n + j]
                    self._store_one(value, {c.m: row, c.n: column})

    def _store_one(self, value: str, where: dict[str, Index]) -> None:
        ir, c = self.ir, self.contraction
        if self.part is not None:
            store_partial(
                ir, c, value, self.values, self.partial, self.part, where, current=self.type
            )
            return
        where |= {c.batch: self.batch} if c.batch else {}
        store_element(ir, c, value, self.values, self.buffers, where, current=self.type)


def multiply_add(ir: KernelText, a: str, b: str, c: str, type_name: str) -> str:
    """a * b + c, fused for floats: without an explicit fma the back ends emit none."""
    element = element_type(type_name)
    if element.kind == "float":
        return ir.value(f"math.fma {a}, {b}, {c} : {element.mlir}")
    product = ir.value(f"arith.muli {a}, {b} : {element.mlir}")
    return ir.value(f"arith.addi {c}, {product} : {element.mlir}")
