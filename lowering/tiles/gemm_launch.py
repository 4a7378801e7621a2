"""What every single-kernel GPU body shares: the executable, its launch, the host functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dialects.manifest import Launch
from dialects.member import Tile
from dialects.operands import Contraction, Operand

from .host_entry import HostFunction, Tensor, executable
from .interface import constant_names, layout_text
from .kernel_text import Index, KernelText

ENTRY = "gemm"


def gemm_layout(contraction: Contraction) -> str:
    """The pipeline layout: every constant, the operands read, the result written."""
    return layout_text(len(constant_names(contraction)), len(contraction.operands) - 1)


def gemm_launch(
    contraction: Contraction,
    tile: Tile,
    block: tuple[int, ...],
    dynamic_shared_bytes: int = 0,
    *,
    linear: bool = False,
) -> Launch:
    """The launch of the executable; the grid is columns, rows, batch.

    ``linear`` puts all tiles of a matrix along x: see :mod:`.raster`.
    """
    columns = f"ceildiv({contraction.n}, {tile.n})"
    rows = f"ceildiv({contraction.m}, {tile.m})"
    tiles = (f"{columns} * {rows}", "1") if linear else (columns, rows)
    return Launch(
        entry=ENTRY,
        grid=(*tiles, contraction.batch or "1"),
        block=block,
        dynamic_shared_bytes=dynamic_shared_bytes,
        bindings=tuple(o.name for o in contraction.operands),
        constants=constant_names(contraction),
    )


def gemm_executable(
    contraction: Contraction,
    tile: Tile,
    *,
    layout: str,
    block: Sequence[int] | None,
    body: str,
    wave: int | None = None,
    attributes: str = "",
    entry: str = ENTRY,
    split: bool = False,
    linear: bool = False,
) -> str:
    """The executable ``kernel`` with the grid of :func:`gemm_launch`; no ``block`` on the CPU.

    With ``split`` the slices of K follow the sizes in the workload, and multiply the batch.
    """
    batched = contraction.batch is not None

    def grid(ir: KernelText, sizes: list[str]) -> list[Index]:
        sizes, slices = (sizes[:-1], sizes[-1]) if split else (sizes, 1)
        m, n = sizes[-2:]
        columns, rows = ir.ceildiv(n, tile.n), ir.ceildiv(m, tile.m)
        tiles = (ir.mul(columns, rows), 1) if linear else (columns, rows)
        return [*tiles, ir.mul(sizes[0], slices) if batched else slices]

    return executable(
        name=executable_name(entry),
        entry=entry,
        layout=layout,
        workload=2 + batched + split,
        grid=grid,
        block=block,
        body=body,
        wave=wave,
        attributes=attributes,
    )


def executable_name(entry: str) -> str:
    """The executable that holds an entry: ``kernel`` or ``kernel_<what>`` of ``gemm_<what>``."""
    return f"kernel{entry.removeprefix(ENTRY)}"


def gemm_host(kernel: str, contraction: Contraction, *, in_words: Collection[Operand] = ()) -> str:
    """The host functions of a kernel that needs no workspace.

    Buffers of operands that are read ``in_words`` are passed on up to the end of their last word.
    """
    host = HostFunction(contraction)
    reads: list[Tensor] = [
        host.operand(o, whole_words=o in in_words) for o in contraction.operands[:-1]
    ]
    result = host.operand(contraction.c, consume=True)
    sizes = ([contraction.batch] if contraction.batch else []) + [contraction.m, contraction.n]
    done = host.dispatch(
        executable_name(ENTRY),
        ENTRY,
        workload=[host.values[s] for s in sizes],
        constants=host.scalars(),
        reads=reads,
        writes=result,
    )
    return host.finish(kernel, done, repeat=True)
