"""What the wgmma bodies have in common: which members they take, launch, host functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.manifest import MULTIPROCESSORS, Footprint, Launch, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Tier
from dialects.types import element_type

from ..target import Target
from . import clusters
from .body import Emitted, contraction_group, refused_sources
from .gemm_launch import ENTRY
from .host_entry import HostFunction, Tensor, executable
from .interface import constant_names, layout_text
from .kernel_text import Index, KernelText
from .tensor_map import ROW_BYTES
from .warpgroup_mma import ROWS
from .wgmma_kernel import WORKGROUP_BYTES, WgmmaKernel
from .wgmma_shape import WARPS, WgmmaShape

ISA = "sm_90a"  # later parts have other warpgroup instructions (PTX ISA, wgmma: target notes)
PTX_VERSION = (8, 3)  # that has tensormap.replace
SHARED_LIMIT = 232448  # of one block on that ISA (CUDA programming guide, compute capability 9.0)
_PRODUCTS = ({"f16"}, {"bf16"}, {"f8e4m3", "f8e5m2"}, {"i8", "u8"})
_STORED = {"f16", "bf16", "f32", "i32"}
MIN_STAGES = 3  # one in use, one that has arrived, one under way
MAX_COLUMNS = 256  # of one instruction
_ACCUMULATORS = {1: 128, 2: 128, 3: 96}  # of a thread, by consumer warpgroups: registers they have


@dataclass(frozen=True, kw_only=True)
class WgmmaBodyBase:
    """Persistent and warp-specialised: a producer warpgroup, and consumers of 64 rows or more."""

    name: ClassVar[str]
    kernel: ClassVar[type[WgmmaKernel]]
    copy_bytes: ClassVar[int]  # that rows and addresses of A and B must be multiples of
    store_bytes: ClassVar[int]  # likewise of C
    cluster: ClassVar[int] = 1  # workgroups that share B
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("cuda",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs 128 bytes of k, 64 rows a warpgroup, and operands in an order that wgmma takes."""
        if target.isa != ISA:
            return f"{self.name} is for {ISA}, the target is {target.isa}"
        refused = refused_sources(contraction, self.name) or self._types(contraction)
        return refused or self._tile(contraction, tile)

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
        if tile.k != k:
            return f"{self.name} takes k = {k} of {c.a.type}, found {tile.k}"
        waves = tile.waves_m * tile.waves_n
        consumers = waves // WARPS
        if waves % WARPS or consumers not in _ACCUMULATORS:
            return f"{self.name} takes 4, 8 or 12 waves, found {tile.waves_m}x{tile.waves_n}"
        if tile.m % (ROWS * consumers):
            return f"{self.name} takes m in {ROWS} rows for each 4 of {waves} waves, found {tile.m}"
        step = self._column_step(c)
        if tile.n % step or tile.n > MAX_COLUMNS:
            return (
                f"{self.name} takes n as a multiple of {step} up to {MAX_COLUMNS}, found {tile.n}"
            )
        held = tile.m * tile.n // (waves * 32)
        if held > _ACCUMULATORS[consumers]:
            return f"{self.name} would hold {held} > {_ACCUMULATORS[consumers]} sums a lane"
        if tile.stages < MIN_STAGES:
            return f"{self.name} needs stages >= {MIN_STAGES}, found {tile.stages}"
        if tile.n % (step * self.cluster):
            return f"{self.name} splits n among {self.cluster} workgroups, found {tile.n}"
        shared = self._shape(c, tile).shared_bytes
        if shared > SHARED_LIMIT:
            return f"{self.name} would take {shared} B > {SHARED_LIMIT} B of workgroup memory"
        return None

    def _column_step(self, c: Contraction) -> int:
        """Columns of a chunk that is stored, and of a slab of B."""
        stored = ROW_BYTES // element_type(c.c.type).bytes
        return stored if c.transposed_b else max(stored, ROW_BYTES // element_type(c.b.type).bytes)

    def _shape(self, contraction: Contraction, tile: Tile) -> WgmmaShape:
        return WgmmaShape(contraction=contraction, tile=tile, cluster=self.cluster)

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        shape = self._shape(contraction, tile)
        constants = (*constant_names(contraction), MULTIPROCESSORS)
        layout = layout_text(len(constants), len(contraction.operands) - 1, writes=2)
        block = (shape.threads, 1, 1)
        kernel_text = self.kernel(contraction, shape, layout, constants)
        body = kernel_text.text()
        text = executable(
            name="kernel",
            entry=ENTRY,
            layout=layout,
            workload=len(contraction.dims),
            grid=lambda ir, w: [_workgroups(ir, shape, w), 1, 1],
            block=block,
            body=body,
            wave=32,
            attributes=_attributes(shape),
        )
        groups = _count(shape)
        return Emitted(
            text=text + _host(kernel, shape),
            launch=Launch(
                entry=ENTRY,
                grid=(groups, "1", "1"),
                block=block,
                dynamic_shared_bytes=shape.shared_bytes,
                bindings=(*(o.name for o in contraction.operands), "workspace"),
                constants=constants,
                overlaps=True,
            ),
            # of a workgroup each tile
            workspace=f"{WORKGROUP_BYTES * shape.workgroups} * {_tiles(shape)}",
            prepared=None,
            needs=Needs(wave_width=32, alignment=self._alignment(contraction)),
            footprint=Footprint(
                static_shared_bytes=0,
                dynamic_shared_bytes=shape.shared_bytes,
                threads_per_group=shape.threads,
            ),
            groups=(
                contraction_group(
                    contraction,
                    f"{ISA} has it",
                    instruction=shape.wgmma.instruction,
                    shape=(ROWS, tile.n, shape.wgmma.instruction_k),
                ),
            ),
            aligned=dict(kernel_text.ir.aligned),
            ptx_version=PTX_VERSION,
        )

    def _alignment(self, contraction: Contraction) -> dict[str, int]:
        """Elements that each stride, and each row that is stored in chunks, is a multiple of."""
        c = contraction
        needs = {
            stride: nbytes // element_type(o.type).bytes
            for o, nbytes in (
                (c.a, self.copy_bytes),
                (c.b, self.copy_bytes),
                (c.c, self.store_bytes),
            )
            for stride in o.strides
        }
        needs[c.n] = self.store_bytes // element_type(c.c.type).bytes
        return {name: need for name, need in needs.items() if need > 1}


def _attributes(shape: WgmmaShape) -> str:
    """A bound of one workgroup a multiprocessor is what makes setmaxnreg legal."""
    return ", nvvm.minctasm = 1 : i32" + clusters.attributes(shape.workgroups)


def _count(shape: WgmmaShape) -> str:
    """Workgroups to launch: whole clusters, no more than there are tiles or multiprocessors.

    Where workgroups share the K of a tile, each takes one tile.
    """
    size = shape.workgroups
    if shape.splits > 1:
        return f"{size} * {_tiles(shape)}"
    if size == 1:
        return f"min({_tiles(shape)}, {MULTIPROCESSORS})"
    return f"{size} * min({_tiles(shape)}, max({MULTIPROCESSORS} // {size}, 1))"


def _tiles(shape: WgmmaShape) -> str:
    """Tiles of C, or pairs of them."""
    c, tile = shape.contraction, shape.tile
    tiles = f"ceildiv({c.n}, {tile.n}) * ceildiv({c.m}, {tile.m * shape.cluster})"
    return tiles + (f" * {c.batch}" if c.batch else "")


def _workgroups(ir: KernelText, shape: WgmmaShape, sizes: list[str]) -> Index:
    """:func:`_count` of the batch, m, n and the multiprocessors."""
    *batch, m, n, most = sizes
    tile, size = shape.tile, shape.workgroups
    tiles = ir.mul(ir.ceildiv(n, tile.n), ir.ceildiv(m, tile.m * shape.cluster))
    tiles = ir.mul(tiles, batch[0]) if batch else tiles
    if shape.splits > 1:
        return ir.mul(tiles, size)
    if size == 1:
        return ir.least(tiles, most)
    return ir.mul(ir.least(tiles, ir.greatest(ir.div(most, size), 1)), size)


def _host(kernel: str, shape: WgmmaShape) -> str:
    contraction = shape.contraction
    host = HostFunction(contraction, parameters=(MULTIPROCESSORS,))
    reads: list[Tensor] = [host.operand(o) for o in contraction.operands[:-1]]
    result = host.operand(contraction.c, consume=True)
    sizes = [
        host.values[s]
        for s in (*([contraction.batch] if contraction.batch else []), contraction.m, contraction.n)
    ]
    workload = [*sizes, host.values[MULTIPROCESSORS]]
    groups = _workgroups(host.ir, shape, workload)
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
