"""What every single-kernel GPU body shares: the executable's grid and the host functions."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.member import Tile
from dialects.operands import Contraction

from .host_entry import HostFunction, Tensor, executable
from .kernel_text import Index, KernelText


def gemm_grid(contraction: Contraction, tile: Tile) -> tuple[str, str, str]:
    """The grid as expressions: columns, rows, batch."""
    return (
        f"ceildiv({contraction.n}, {tile.n})",
        f"ceildiv({contraction.m}, {tile.m})",
        contraction.batch or "1",
    )


def gemm_executable(
    contraction: Contraction,
    tile: Tile,
    *,
    entry: str,
    layout: str,
    block: Sequence[int],
    body: str,
    wave: int | None = None,
    attributes: str = "",
) -> str:
    """The executable ``kernel`` with the grid of :func:`gemm_grid`."""
    batched = contraction.batch is not None

    def grid(ir: KernelText, sizes: list[str]) -> list[Index]:
        m, n = sizes[-2:]
        return [ir.ceildiv(n, tile.n), ir.ceildiv(m, tile.m), sizes[0] if batched else 1]

    return executable(
        name="kernel",
        entry=entry,
        layout=layout,
        workload=3 if batched else 2,
        grid=grid,
        block=block,
        body=body,
        wave=wave,
        attributes=attributes,
    )


def gemm_host(kernel: str, contraction: Contraction, entry: str) -> str:
    """The host functions of a kernel that needs no workspace."""
    host = HostFunction(contraction)
    reads: list[Tensor] = [host.operand(o) for o in contraction.operands[:-1]]
    result = host.operand(contraction.c, consume=True)
    sizes = ([contraction.batch] if contraction.batch else []) + [contraction.m, contraction.n]
    done = host.dispatch(
        "kernel",
        entry,
        workload=[host.values[s] for s in sizes],
        constants=host.scalars(),
        reads=reads,
        writes=result,
    )
    return host.finish(kernel, done, repeat=True)
