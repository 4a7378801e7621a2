"""The portable software tile: one emitter for every GPU backend, no matrix instruction, no shuffle.

A workgroup computes an m x n tile of C. It stages m x k of A and k x n of B in workgroup memory in
the accumulator's type, and each lane keeps thread_m x thread_n accumulators (seed section 1, the
software tile; design section 3). Edges are predicated: an address outside is clamped and its value
dropped, so any M, N, K runs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from dialects.expressions import ceildiv
from dialects.manifest import Footprint, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Operand, Tier
from dialects.types import element_type

from ..target import Target
from .body import Emitted, contraction_group, refused_types
from .gemm_launch import gemm_executable, gemm_host, gemm_launch, gemm_layout
from .kernel_text import MAX_UNROLLED
from .operand_source import DECODED
from .software_kernel import SoftwareKernel, SoftwareShape
from .split_k import split_executables, split_host, split_launch, split_layout

UNROLLED, UNROLLED_LATE, UNROLLED_INTEGERS = 1024, 256, 128
LEAST_LANES = 64  # smaller tiles are for problems that no copy keeps busy: one candidate is enough
STORAGE_FEATURES = {8: "b8", 16: "b16", 64: "b64"}  # storage widths a device may lack


@dataclass(frozen=True, kw_only=True)
class SoftwareBody:
    """Workgroup-memory staged tile with a register tile a lane, copied element by element."""

    name: ClassVar[str] = "software"
    wide: ClassVar[bool] = False
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
        shape = self._shape(contraction, tile, target)
        staged = ceildiv(tile.k * max(tile.m, tile.n), shape.threads)
        if staged > MAX_UNROLLED:
            return f"each of {shape.threads} lanes would stage {staged} > {MAX_UNROLLED} elements"
        refused = refused_types(contraction, self.name, DECODED)
        return refused or next((s.refusal for s in shape.staging if s.refusal), None)

    def _shape(self, contraction: Contraction, tile: Tile, target: Target) -> SoftwareShape:
        vulkan = target.backend == "vulkan"
        return SoftwareShape(
            contraction=contraction,
            tile=tile,
            wide=self.wide,
            words=vulkan,  # a part may lack narrow loads
            vectors=not vulkan,
            unrolled=_unrolled(contraction, target),
        )

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        shape = self._shape(contraction, tile, target)
        layout = gemm_layout(contraction)
        block = (shape.threads, 1, 1)
        # ptxas holds a 256-thread kernel to 128 registers unless told that one block will do
        attributes = ", nvvm.minctasm = 1 : i32" if target.backend == "cuda" else ""
        code = gemm_executable(
            contraction,
            tile,
            layout=layout,
            block=block,
            body=SoftwareKernel(shape, layout).text(),
            attributes=attributes,
        )
        slices = SoftwareKernel(shape, split_layout(contraction), split=True)
        code += split_executables(
            contraction, tile, block=block, body=slices.text(), attributes=attributes
        )
        shared = shape.shared_bytes
        dynamic = target.backend == "cuda"  # NVPTX puts workgroup memory in the dynamic block
        return Emitted(
            text=code
            + gemm_host(kernel, contraction, in_words=shape.in_words)
            + split_host(kernel, contraction, in_words=shape.in_words),
            launch=gemm_launch(contraction, tile, block, shared if dynamic else 0),
            split=split_launch(contraction, tile, block, shared if dynamic else 0),
            workspace=None,
            prepared=None,
            needs=Needs(
                features=storage_needs(contraction, target, in_words=shape.in_words),
                alignment=copied_alignment(shape),
            ),
            footprint=Footprint(
                static_shared_bytes=0 if dynamic else shared,
                dynamic_shared_bytes=shared if dynamic else 0,
                threads_per_group=shape.threads,
            ),
            groups=(contraction_group(contraction, "software tile"),),
        )


def _unrolled(contraction: Contraction, target: Target) -> int:
    """Multiply-accumulates of a lane that are written out.

    Fewer where a driver compiles while a program waits, and where the AMDGPU back end, given all
    of a 64x64x16 tile of i8 products on gfx1100, spills 252 B of 256 registers (128: 77 registers).
    """
    if target.backend == "rocm" and element_type(contraction.accumulator).kind != "float":
        return UNROLLED_INTEGERS
    return UNROLLED_LATE if target.backend == "vulkan" else UNROLLED


@dataclass(frozen=True, kw_only=True)
class SoftwareWideBody(SoftwareBody):
    """The same copied up to 16 bytes at a time, for rows that are aligned to it."""

    name: ClassVar[str] = "software_wide"
    wide: ClassVar[bool] = True

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs a dense operand, runs of at least four elements a lane, and enough lanes."""
        if all(o.source is not None for o in (contraction.a, contraction.b)):
            return "software_wide needs a dense operand, blocks are copied in one way"
        refused = super().refusal(contraction, tile, target)
        if refused is not None:
            return refused
        lanes = self._shape(contraction, tile, target).threads
        return (
            f"software_wide needs {LEAST_LANES} lanes, found {lanes}"
            if lanes < LEAST_LANES
            else None
        )


def copied_alignment(shape: SoftwareShape) -> dict[str, int] | None:
    """Strides and contiguous sizes of A and B that must be multiples, in stored elements."""
    needs: dict[str, int] = {}
    for staging in shape.staging:
        for name, multiple in staging.alignment.items():
            needs[name] = max(multiple, needs.get(name, 1))  # powers of two
    return needs or None


def storage_needs(
    contraction: Contraction, target: Target, *, in_words: Collection[Operand] = ()
) -> tuple[str, ...]:
    """Names of the storage widths and arithmetic the kernel uses and a Vulkan device may lack.

    Operands read ``in_words`` need 32-bit storage and integers alone, which every device has.
    """
    if target.backend != "vulkan":
        return ()
    stored = [element_type(o.type) for o in contraction.operands if o not in in_words]
    types = [*stored, element_type(contraction.accumulator)]
    needs = {STORAGE_FEATURES[t.bits] for t in types if t.bits in STORAGE_FEATURES}
    needs |= {"int8" for t in types if t.bits == 8}
    needs |= {"int16" for t in types if t.name == "bf16"}  # what the compiler makes of it
    types += [element_type(o.type) for o in contraction.operands]
    needs |= {"fp64" for t in types if t.name == "f64"}
    scaled = any(o.source is not None for o in contraction.operands)  # by an f16
    if scaled or any(t.name == "f16" for t in types):
        needs.add("fp16")
    return tuple(sorted(needs - {"b64"}))
