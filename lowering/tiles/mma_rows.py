"""The CUDA body of few rows: B streams from global memory through registers into ``mma.sync``.

With few rows of A the time is that of reading B once. Nothing is staged: each wave loads fragments
of B itself, 16 bytes a lane and several loads ahead, waves and the workgroups of a cluster take
turns along K so that the whole device reads, and what they have summed is added at the end in a
fixed order (seed section 1; PTX ISA, sections 9.7.14, 9.7.13.4 and on clusters).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from dialects.manifest import Footprint, Launch, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Tier
from dialects.types import element_type

from ..instructions import native_instruction
from ..target import Target
from . import clusters
from .body import Emitted, contraction_group, refused_types
from .gemm_launch import ENTRY, executable_name, gemm_host, gemm_layout
from .host_entry import executable
from .interface import constant_names
from .kernel_text import Index, KernelText
from .mma_shape import MMA_TYPES, WAVE
from .mma_sync import HELD, MOST_THREADS, PTX, PTX_F8
from .overlap import PTX_VERSION as PTX_OVERLAP
from .overlap import can_overlap
from .rows_kernel import RowsKernel
from .rows_shape import CHUNK, RowsShape, rows_shape
from .staged_gemm import copied_alignment

MOST_ROWS = 64  # more are better served by tiles that are staged
STORED = ("f16", "bf16", "f32", "i32")


@dataclass(frozen=True, kw_only=True)
class MmaRowsBody:
    """Rows of A and B start on multiples of what a lane reads at a time."""

    name: ClassVar[str] = "mma_rows"
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("cuda",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs waves along K, few rows, A with K contiguous, and an instruction for the types."""
        c = contraction
        if not tile.waves_n or not tile.waves_k or tile.stages < 2:
            return f"{self.name} needs waves_n, waves_k, and stages of at least 2"
        if tile.waves_m > 1:
            return f"{self.name} has no waves along M, found {tile.waves_m}"
        instruction = native_instruction(target, c.a.type, c.b.type, c.accumulator)
        if c.a.type not in MMA_TYPES or instruction is None:
            return f"{self.name}: {target.name} has no mma.sync for {c.signature}"
        if c.c.type not in STORED:
            return f"{self.name} stores {', '.join(STORED)}, not {c.c.type}"
        if c.transposed_a:
            return f"{self.name} takes A with k contiguous, (M, K)"
        if element_type(c.b.type).bits != 16 and not c.transposed_b:
            return f"{self.name} takes 8-bit B with k contiguous, (N, K)"
        plain = replace(c, a=replace(c.a, type="f16"), b=replace(c.b, type="f16"))
        refused = refused_types(plain, self.name)  # 8-bit floats are multiplied, no more
        return refused or self._cut_refusal(c, tile, target)

    def _cut_refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        shape = rows_shape(contraction, tile)
        if tile.m > MOST_ROWS:
            return f"{self.name}: m = {tile.m} > {MOST_ROWS}"
        if shape.threads > MOST_THREADS:
            return f"{self.name}: {shape.threads} threads > {MOST_THREADS} of a workgroup"
        refused = shape.cut_refusal()
        if refused is not None:
            return f"{self.name}: {refused}"
        if shape.held > HELD:
            return f"{self.name}: a lane would hold {shape.held} > {HELD} sums and fragments"
        if shape.cluster > clusters.MOST:
            return f"{self.name}: a cluster of {shape.cluster} > {clusters.MOST} workgroups"
        if shape.cluster > 1 and (target.compute_capability or 0) < clusters.SINCE:
            return f"{self.name}: {target.name} has no clusters, found cluster = {shape.cluster}"
        return None

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        shape = rows_shape(contraction, tile)
        block = (shape.threads, 1, 1)
        layout = gemm_layout(contraction)
        overlaps = can_overlap(target)
        body = RowsKernel(contraction, shape, layout, overlaps=overlaps)
        code = _executable(contraction, shape, layout, block, body.text())
        columns = f"ceildiv({contraction.n}, {tile.n}) * {shape.cluster}"
        rows = f"ceildiv({contraction.m}, {tile.m})"
        return Emitted(
            text=code + gemm_host(kernel, contraction),
            launch=Launch(
                entry=ENTRY,
                grid=(columns, rows, contraction.batch or "1"),
                block=block,
                dynamic_shared_bytes=shape.shared_bytes,
                bindings=tuple(o.name for o in contraction.operands),
                constants=constant_names(contraction),
                overlaps=overlaps,
            ),
            workspace=None,
            prepared=None,
            needs=Needs(
                wave_width=WAVE, alignment=copied_alignment(contraction, CHUNK // shape.bytes)
            ),
            footprint=Footprint(
                static_shared_bytes=0,
                dynamic_shared_bytes=shape.shared_bytes,
                threads_per_group=shape.threads,
                wave_width=WAVE,
            ),
            groups=(
                contraction_group(
                    contraction,
                    f"the target lists {shape.mma.name}",
                    instruction=shape.mma.name,
                    shape=(16, 8, shape.mma.depth),
                ),
            ),
            aligned=dict(body.ir.aligned),
            ptx_version=_ptx_version(contraction, shape, overlaps=overlaps),
        )


def _ptx_version(contraction: Contraction, shape: RowsShape, *, overlaps: bool) -> tuple[int, int]:
    if contraction.a.type.startswith("f8"):
        return PTX_F8
    if shape.cluster > 1:
        return clusters.PTX_VERSION
    return PTX_OVERLAP if overlaps else PTX


def _executable(
    contraction: Contraction, shape: RowsShape, layout: str, block: tuple[int, ...], body: str
) -> str:
    tile, batched = shape.tile, contraction.batch is not None

    def grid(ir: KernelText, sizes: list[str]) -> list[Index]:
        m, n = sizes[-2:]
        columns = ir.mul(ir.ceildiv(n, tile.n), shape.cluster)
        return [columns, ir.ceildiv(m, tile.m), sizes[0] if batched else 1]

    attributes = ", nvvm.minctasm = 1 : i32" + clusters.attributes(shape.cluster)
    return executable(
        name=executable_name(ENTRY),
        entry=ENTRY,
        layout=layout,
        workload=2 + batched,
        grid=grid,
        block=block,
        body=body,
        wave=WAVE,
        attributes=attributes,
    )
