"""The body for tensors that the copy engine can address: TMA + wgmma, warp-specialised.

Warpgroup matrix instructions read both operands from workgroup memory, where the tensor copy engine
(TMA) puts them; it checks bounds itself, zero-filling loads and clipping stores, so that any M, N
and K runs at the same speed. Rows must be multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.manifest import Footprint, Launch, Needs
from dialects.member import Tile
from dialects.operands import Contraction, OperandGroup, Tier
from dialects.types import element_type

from ..target import Target
from .body import Emitted
from .gemm_launch import ENTRY
from .host_entry import HostFunction, Tensor, executable
from .interface import constant_names, layout_text
from .kernel_text import Index, KernelText
from .tensor_map import ROW_BYTES
from .tma_kernel import WORKGROUP_BYTES, TmaKernel, TmaShape
from .wgmma import ROWS

ISA = "sm_90a"  # later parts have other warpgroup instructions (PTX ISA, wgmma: target notes)
PTX_FEATURES = "+ptx83"  # tensormap.replace
SHARED_LIMIT = 232448  # of one block on that ISA (CUDA programming guide, compute capability 9.0)
COPY_BYTES = 16  # rows and addresses that the copy engine takes are multiples of it
MULTIPROCESSORS = "multiprocessors"
_PRODUCTS = ({"f16"}, {"bf16"}, {"f8e4m3", "f8e5m2"}, {"i8", "u8"})
_STORED = {"f16", "bf16", "f32", "i32"}
_MAX_COLUMNS = {1: 256, 2: 256, 3: 192}  # by consumer warpgroups: accumulators stay in registers


@dataclass(frozen=True, kw_only=True)
class TmaWgmmaBody:
    """Persistent and warp-specialised: one producer thread, 64 rows of C a consumer warpgroup."""

    name: ClassVar[str] = "tma_wgmma"
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("cuda",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs 128 bytes of k, 64 rows a warpgroup, and operands in an order that wgmma takes."""
        if target.isa != ISA:
            return f"{self.name} is for {ISA}, the target is {target.isa}"
        return self._types(contraction) or self._tile(contraction, tile)

    def _types(self, c: Contraction) -> str | None:
        if not any({c.a.type, c.b.type} <= pair for pair in _PRODUCTS):
            return f"{self.name} has no {c.signature}"
        accumulator = element_type(c.accumulator)
        wanted = "float" if element_type(c.a.type).kind == "float" else "signed"
        if accumulator.kind != wanted or accumulator.bits > 32:
            return f"{self.name} has no {c.signature}"
        if c.c.type not in _STORED:
            return f"{self.name} stores {', '.join(sorted(_STORED))}, not {c.c.type}"
        if element_type(c.a.type).bits == 8 and (c.transposed_a or not c.transposed_b):
            return f"{self.name} takes 8-bit operands with k contiguous, (M, K) and (N, K)"
        return None

    def _tile(self, c: Contraction, tile: Tile) -> str | None:
        k = ROW_BYTES // element_type(c.a.type).bytes
        consumers = tile.m // ROWS
        if tile.k != k:
            return f"{self.name} takes k = {k} of {c.a.type}, found {tile.k}"
        if tile.m % ROWS or consumers not in _MAX_COLUMNS:
            return f"{self.name} takes m = 64, 128 or 192, found {tile.m}"
        if tile.waves_m * tile.waves_n * 16 != tile.m:
            waves = f"{tile.waves_m}x{tile.waves_n}"
            return f"{self.name} has a wave each 16 rows, found {waves} waves for m = {tile.m}"
        step = max(ROW_BYTES // element_type(c.c.type).bytes, 0 if c.transposed_b else k)
        if tile.n % step or tile.n > _MAX_COLUMNS[consumers]:
            most = _MAX_COLUMNS[consumers]
            return f"{self.name} takes n as a multiple of {step} up to {most}, found {tile.n}"
        if tile.stages < 2:
            return f"{self.name} needs stages >= 2"
        shared = TmaShape(contraction=c, tile=tile).shared_bytes
        if shared > SHARED_LIMIT:
            return f"{self.name} would take {shared} B > {SHARED_LIMIT} B of workgroup memory"
        return None

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        shape = TmaShape(contraction=contraction, tile=tile)
        constants = (*constant_names(contraction), MULTIPROCESSORS)
        layout = layout_text(len(constants), len(contraction.operands) - 1, writes=2)
        block = (shape.threads, 1, 1)
        body = TmaKernel(contraction, shape, layout, constants).text()
        text = executable(
            name="kernel",
            entry=ENTRY,
            layout=layout,
            workload=len(contraction.dims),
            grid=lambda ir, w: [_workgroups(ir, contraction, tile, w), 1, 1],
            block=block,
            body=body,
            wave=32,
            attributes=", nvvm.minctasm = 1 : i32",  # what makes setmaxnreg legal
        )
        groups = _count(contraction, tile)
        return Emitted(
            text=text + _host(kernel, contraction, tile),
            launch=Launch(
                entry=ENTRY,
                grid=(groups, "1", "1"),
                block=block,
                dynamic_shared_bytes=shape.shared_bytes,
                bindings=(*(o.name for o in contraction.operands), "workspace"),
                constants=constants,
            ),
            workspace=f"{WORKGROUP_BYTES} * {groups}",
            prepared=None,
            needs=Needs(wave_width=32, alignment=copy_alignment(contraction)),
            footprint=Footprint(
                static_shared_bytes=0,
                dynamic_shared_bytes=shape.shared_bytes,
                threads_per_group=shape.threads,
            ),
            groups=(
                OperandGroup(
                    a=contraction.a.type,
                    b=contraction.b.type,
                    acc=contraction.accumulator,
                    shape=(ROWS, tile.n, shape.wgmma.instruction_k),
                    tier="native",
                    instruction=shape.wgmma.instruction,
                    reason=f"{ISA} has it",
                ),
            ),
            target_features=PTX_FEATURES,
        )


def copy_alignment(contraction: Contraction) -> dict[str, int]:
    """Elements that each stride must be a multiple of, for rows of whole 16 bytes."""
    return {
        stride: COPY_BYTES // element_type(o.type).bytes
        for o in (contraction.a, contraction.b, contraction.c)
        for stride in o.strides
    }


def _count(contraction: Contraction, tile: Tile) -> str:
    tiles = f"ceildiv({contraction.n}, {tile.n}) * ceildiv({contraction.m}, {tile.m})"
    tiles += f" * {contraction.batch}" if contraction.batch else ""
    return f"min({tiles}, {MULTIPROCESSORS})"


def _workgroups(ir: KernelText, contraction: Contraction, tile: Tile, sizes: list[str]) -> Index:
    """:func:`_count` of the batch, m, n and the multiprocessors."""
    *batch, m, n, most = sizes
    tiles = ir.mul(ir.ceildiv(n, tile.n), ir.ceildiv(m, tile.m))
    return ir.least(ir.mul(tiles, batch[0]) if batch else tiles, most)


def _host(kernel: str, contraction: Contraction, tile: Tile) -> str:
    host = HostFunction(contraction, parameters=(MULTIPROCESSORS,))
    reads: list[Tensor] = [host.operand(o) for o in contraction.operands[:-1]]
    result = host.operand(contraction.c, consume=True)
    sizes = [
        host.values[s]
        for s in (*([contraction.batch] if contraction.batch else []), contraction.m, contraction.n)
    ]
    workload = [*sizes, host.values[MULTIPROCESSORS]]
    groups = _workgroups(host.ir, contraction, tile, workload)
    space = host.buffer("workspace", "i8", host.ir.mul(groups, WORKGROUP_BYTES), consume=True)
    done = host.dispatch(
        "kernel",
        ENTRY,
        workload=workload,
        constants=host.scalars(),
        reads=reads,
        writes=result,
        scratch=space,
    )
    return host.finish(kernel, done, repeat=True)
