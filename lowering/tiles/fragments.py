"""Fragment bodies: a kernel in cooperative-matrix IR keeps its loops, its tiles get their tiers.

``fragments`` keeps the matrix instructions of every native group and spreads the tiles of the
others over the wave; ``fragments_software`` spreads all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from dialects.manifest import Footprint, Needs
from dialects.member import Tile
from dialects.operands import OperandGroup, Tier

from ..coop_source import CoopSource
from ..ir import mlir, operations
from ..matrix_tiles import MatrixType, matrix_type
from ..target import Target
from .body import Emitted
from .fragment_kernel import FragmentKernel
from .fragment_share import aligned_bytes, slot_bytes
from .gemm_launch import gemm_executable, gemm_host, gemm_launch, gemm_layout
from .kernel_text import MAX_UNROLLED
from .software import storage_needs


@dataclass(frozen=True, kw_only=True)
class FragmentsBody:
    """Matrix instructions where a group is native, the spread form elsewhere."""

    name: ClassVar[str] = "fragments"
    tier: ClassVar[Tier] = "native"
    backends: ClassVar[tuple[str, ...]] = ("cuda", "rocm", "vulkan")

    def refusal(
        self, source: CoopSource, groups: Sequence[OperandGroup], tile: Tile, target: Target
    ) -> str | None:
        """Needs waves, a wave width that the kernel can live with, and a native group."""
        if not tile.waves_m or not tile.waves_n:
            return f"{self.name} needs waves_m and waves_n"
        offered = target.facts.wave_widths
        if source.wave is not None and offered is not None and source.wave not in offered:
            return f"the kernel assumes waves of {source.wave}, the device has {list(offered)}"
        held = max(-(-t.count // _wave(source, target)) for t in tile_types(source))
        if held > MAX_UNROLLED:
            return f"each lane would hold {held} > {MAX_UNROLLED} elements of a tile"
        if self.tier == "native" and all(g.tier == "software" for g in groups):
            return f"no operand group is native: {groups[0].reason}"
        return None

    def emit(
        self,
        kernel: str,
        source: CoopSource,
        groups: Sequence[OperandGroup],
        tile: Tile,
        target: Target,
    ) -> Emitted:
        """The candidate's module text; call only when :meth:`refusal` is None."""
        groups = self._groups(groups)
        contraction, wave = source.contraction, _wave(source, target)
        waves = tile.waves_m * tile.waves_n
        layout = gemm_layout(contraction)
        chosen = _by_group(source, groups)

        def written(sizes: dict[str, int]) -> FragmentKernel:
            return FragmentKernel(
                source,
                chosen,
                target=target,
                waves=waves,
                wave=wave,
                layout=layout,
                sizes=sizes,
            )

        first = written({})
        body = first.text()
        sizes = first.slots.needed
        if sizes:  # written again, now that it is known how much room tiles need
            body = written(sizes).text()
        native = any(g.tier == "native" for g in groups)
        code = gemm_executable(
            contraction,
            tile,
            layout=layout,
            block=(waves * wave, 1, 1),
            body=body,
            wave=wave if native or source.wave is not None else None,
            attributes=", nvvm.minctasm = 1 : i32" if target.backend == "cuda" else "",
        )
        shared = slot_bytes(sizes) + author_bytes(source)
        dynamic = target.backend == "cuda"  # NVPTX puts workgroup memory in the dynamic block
        return Emitted(
            text=code + gemm_host(kernel, contraction),
            launch=gemm_launch(contraction, tile, (waves * wave, 1, 1), shared if dynamic else 0),
            workspace=None,
            prepared=None,
            needs=Needs(
                features=storage_needs(contraction, target),
                wave_width=wave if native or source.wave is not None else None,
            ),
            footprint=Footprint(
                static_shared_bytes=0 if dynamic else shared,
                dynamic_shared_bytes=shared if dynamic else 0,
                threads_per_group=waves * wave,
                wave_width=wave if native else None,
            ),
            groups=tuple(groups),
        )

    def _groups(self, groups: Sequence[OperandGroup]) -> list[OperandGroup]:
        """The groups' records as this body builds them."""
        return list(groups)


@dataclass(frozen=True, kw_only=True)
class FragmentsSoftwareBody(FragmentsBody):
    """Every tile spread over the wave."""

    name: ClassVar[str] = "fragments_software"
    tier: ClassVar[Tier] = "software"

    def _groups(self, groups: Sequence[OperandGroup]) -> list[OperandGroup]:
        return [
            g
            if g.tier == "software"
            else replace(g, tier="software", instruction=None, reason="software tile")
            for g in groups
        ]


def _wave(source: CoopSource, target: Target) -> int:
    """Lanes of a wave in block arithmetic: what the author assumes, or the device's."""
    return source.wave or target.wave


def _by_group(source: CoopSource, groups: Sequence[OperandGroup]) -> list[OperandGroup]:
    """A record of each group; its records, one a distinct product, stand in a row."""
    rows = iter(groups)
    return [[next(rows) for _ in g.multiplies].pop() for g in source.tiles.groups]


def tile_types(source: CoopSource) -> list[MatrixType]:
    """The type of each tile that an op of the kernel makes."""
    types = (matrix_type(v.type) for op in operations(source.function) for v in op.results)
    return [t for t in types if t is not None]


def author_bytes(source: CoopSource) -> int:
    """Workgroup memory of the kernel's own."""
    total = 0
    for op in operations(source.function):
        if op.name == "memref.alloc":
            type_ = mlir.MemRefType(op.results[0].type)
            width = getattr(type_.element_type, "width", 32) // 8
            total += aligned_bytes(prod(type_.shape) * max(width, 1))
    return total
