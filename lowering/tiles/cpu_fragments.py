"""The fragment body of a CPU: tiles of a kernel in cooperative-matrix IR as a worker's vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dialects.manifest import Footprint, Launch, Needs
from dialects.member import Tile
from dialects.operands import OperandGroup
from dialects.types import element_type

from ..coop_source import CoopSource
from ..ir import operations
from ..matrix_tiles import PREFIX
from ..target import Target
from .body import Emitted
from .fragment_cpu import CpuFragmentKernel, waits
from .fragment_rows import private_arrays
from .fragments import FragmentsSoftwareBody, author_bytes, tile_types
from .gemm_launch import ENTRY, gemm_executable, gemm_host, gemm_layout
from .interface import constant_names
from .kernel_text import MAX_UNROLLED

MOST_STACK = 32768  # bytes of arrays that one call puts there, as the compiler's own kernels
IDS = (
    *("gpu.block_id", "gpu.block_dim", "gpu.grid_dim", "gpu.thread_id", "gpu.lane_id"),
    *("gpu.subgroup_id", "gpu.subgroup_size", "gpu.num_subgroups", "gpu.barrier"),
)
LANES = ("gpu.thread_id", "gpu.lane_id", "gpu.subgroup_size", "gpu.block_dim")


@dataclass(frozen=True, kw_only=True)
class CpuFragmentsBody(FragmentsSoftwareBody):
    """Every tile in the vectors of the worker that runs the workgroup."""

    name: ClassVar[str] = "cpu_fragments"
    backends: ClassVar[tuple[str, ...]] = ("cpu",)

    def refusal(
        self, source: CoopSource, groups: Sequence[OperandGroup], tile: Tile, target: Target
    ) -> str | None:
        """Needs waves that need no lanes of their own, and arrays that fit on the stack."""
        if not tile.waves_m or not tile.waves_n:
            return f"{self.name} needs waves_m and waves_n"
        names = [op.name for op in operations(source.function)]
        for name in names:
            if name.startswith("gpu.") and name not in IDS and not name.startswith(PREFIX):
                return (
                    f"'{name}' is between the lanes of a wave, of which a CPU has one: exchange "
                    "through workgroup memory and gpu.barrier"
                )
        lanes = next((name for name in names if name in LANES), None)
        if source.wave is not None and lanes is not None:
            return (
                f"'{lanes}' assumes waves of {source.wave} lanes, a CPU's have one: leave xpu.wave "
                "out and take strides from gpu.block_dim"
            )
        rows = max(t.rows for t in tile_types(source))
        waves = tile.waves_m * tile.waves_n if waits(source) else 1
        if waves * rows > MAX_UNROLLED:
            return (
                f"{waves} waves with barriers hold {waves * rows} > {MAX_UNROLLED} rows of a tile"
            )
        stack = author_bytes(source) + _private_bytes(source)
        if stack > MOST_STACK:
            return f"{stack} B of workgroup memory and tiles > {MOST_STACK} B of the stack"
        return None

    def emit(
        self,
        kernel: str,
        source: CoopSource,
        groups: Sequence[OperandGroup],
        tile: Tile,
        target: Target,
    ) -> Emitted:
        """See :meth:`.fragments.FragmentsBody.emit`."""
        contraction = source.contraction
        layout = gemm_layout(contraction)
        body = CpuFragmentKernel(source, waves=tile.waves_m * tile.waves_n, layout=layout)
        code = gemm_executable(contraction, tile, layout=layout, block=None, body=body.text())
        return Emitted(
            text=code + gemm_host(kernel, contraction),
            launch=Launch(
                entry=ENTRY,
                grid=None,
                block=None,
                dynamic_shared_bytes=0,
                bindings=tuple(o.name for o in contraction.operands),
                constants=constant_names(contraction),
            ),
            workspace=None,
            prepared=None,
            needs=Needs(features=target.needs),
            footprint=Footprint(),
            groups=tuple(self._groups(groups)),
        )


def _private_bytes(source: CoopSource) -> int:
    arrays = private_arrays(source).items()
    return sum(element_type(element).bytes * count for (_, element), count in arrays)
