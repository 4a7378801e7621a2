"""Split-K for every GPU body: the slice of K that a workgroup takes, and how partial sums add up.

A problem with fewer tiles than the device has multiprocessors leaves some of them idle (rule R5).
Its K is then cut into slices that separate workgroups multiply. Each stores its partial sums in a
workspace of the caller's, and a second kernel adds them in the order of the slices, so that a
result is the same every time, and applies the epilogue. No atomics: Vulkan has none on floats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dialects.expressions import ceildiv
from dialects.manifest import SPLITS, Launch, SplitK, Step
from dialects.member import Tile
from dialects.operands import Contraction, Operand
from dialects.types import element_type

from .epilogue import add, compute_type, convert
from .gemm_launch import executable_name, gemm_executable, gemm_launch
from .gemm_store import store_element
from .host_entry import HostFunction, executable
from .interface import (
    STORAGE,
    KernelValues,
    bind_buffer,
    constant_names,
    layout_text,
    load_constants,
)
from .kernel_text import Index, KernelText

ENTRY = "gemm_split"
REDUCE = "reduce"
REDUCE_LANES = 256
LEAST_K = 256  # a shorter slice would cost more in partial sums than it gains (origin, section 8)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The part of one workgroup: its batch, K from ``begin`` to ``end``, its place in order."""

    batch: Index
    begin: Index
    end: Index
    place: str


def k_block(tile: Tile) -> int:
    """What a slice is a multiple of: whole tiles, and enough of them."""
    return ceildiv(LEAST_K, tile.k) * tile.k


def k_slice(
    ir: KernelText, values: KernelValues, contraction: Contraction, tile: Tile, z: str
) -> Slice:
    """The slice of workgroup ``z`` of batch * splits; the last one of a batch takes the rest too.

    Every slice but the last ends with a whole tile of K.
    """
    splits, size, block = values[SPLITS], values[contraction.k], k_block(tile)
    number = ir.index(ir.rem(z, splits))
    length = ir.mul(ir.div(ir.div(size, block), splits), block)
    begin = ir.mul(number, length)
    last = ir.value(f"arith.cmpi eq, {number}, {ir.index(ir.sub(splits, 1))} : index", "last")
    end = ir.select(last, size, ir.index(ir.add(begin, length)), "index")
    return Slice(batch=ir.div(z, splits), begin=begin, end=end, place=z)


def split_layout(contraction: Contraction) -> str:
    """The pipeline layout of the kernel that multiplies: A and B read, the workspace written."""
    return layout_text(len(constant_names(contraction, split=True)), 2)


def bind_partial(
    ir: KernelText,
    contraction: Contraction,
    values: KernelValues,
    layout: str,
    *,
    binding: int,
    read_only: bool = False,
) -> str:
    """The workspace as partial sums [batch * splits][M][N]."""
    return bind_buffer(
        ir,
        layout=layout,
        binding=binding,
        type_name=compute_type(contraction),
        count=_partial_count(ir, contraction, values),
        read_only=read_only,
    )


def _partial_count(ir: KernelText, contraction: Contraction, values: KernelValues) -> Index:
    count: Index = ir.mul(values[contraction.m], values[contraction.n])
    if contraction.batch:
        count = ir.mul(values[contraction.batch], count)
    return ir.greatest(ir.mul(values[SPLITS], count), 1)


def store_partial(
    ir: KernelText,
    contraction: Contraction,
    value: str,
    values: KernelValues,
    buffer: str,
    part: Slice,
    where: dict[str, Index],
    *,
    current: str,
) -> None:
    """Store one sum of type ``current``; ``where`` is the index along M and N by name."""
    c, type_ = contraction, compute_type(contraction)
    row = ir.add(ir.mul(part.place, values[c.m]), where[c.m])
    at = ir.index(ir.add(ir.mul(row, values[c.n]), where[c.n]))
    value = convert(ir, value, current, type_)
    mlir = element_type(type_).mlir
    ir.emit(f"memref.store {value}, {buffer}[{at}] : memref<?x{mlir}, {STORAGE}>")


def split_executables(
    contraction: Contraction,
    tile: Tile,
    *,
    block: tuple[int, ...],
    body: str,
    wave: int | None = None,
    attributes: str = "",
) -> str:
    """The kernel that multiplies slices, whose function ``body`` is given, and the reduction."""
    multiply = gemm_executable(
        contraction,
        tile,
        layout=split_layout(contraction),
        block=block,
        body=body,
        wave=wave,
        attributes=attributes,
        entry=ENTRY,
        split=True,
    )
    return multiply + _reduce(contraction)


def split_launch(
    contraction: Contraction, tile: Tile, block: tuple[int, ...], dynamic_shared_bytes: int = 0
) -> SplitK:
    """What the manifest says of :func:`split_executables`."""
    c = contraction
    constants = constant_names(c, split=True)
    nbytes = element_type(compute_type(c)).bytes
    batch = [c.batch] if c.batch else []
    reduce = Step(
        entry=REDUCE,
        grid=(f"ceildiv({c.m} * {c.n}, {REDUCE_LANES})", "1", c.batch or "1"),
        block=(REDUCE_LANES, 1, 1),
        dynamic_shared_bytes=0,
        bindings=("workspace", *(o.name for o in c.extras), c.c.name),
        constants=constants,
    )
    multiply = gemm_launch(c, tile, block, dynamic_shared_bytes)
    return SplitK(
        k_block=k_block(tile),
        workspace=" * ".join([f"{nbytes}", *batch, c.m, c.n, SPLITS]),
        launch=Launch(
            entry=ENTRY,
            grid=(*(multiply.grid or ())[:2], " * ".join([*batch, SPLITS])),
            block=block,
            dynamic_shared_bytes=dynamic_shared_bytes,
            bindings=(c.a.name, c.b.name, "workspace"),
            constants=constants,
            then=(reduce,),
        ),
    )


def split_host(kernel: str, contraction: Contraction, *, in_words: Collection[Operand] = ()) -> str:
    """``<kernel>.split``, its ``.async`` and ``.repeat``; the workspace follows the result.

    ``in_words`` as :func:`.gemm_launch.gemm_host` takes them.
    """
    c = contraction
    host = HostFunction(c, split=True)
    ir, values = host.ir, host.values
    a, b, *extras = (host.operand(o, whole_words=o in in_words) for o in c.operands[:-1])
    result = host.operand(c.c, consume=True)
    mlir = element_type(compute_type(c)).mlir
    space = host.buffer("workspace", mlir, _partial_count(ir, c, values), consume=True)
    sizes = [values[s] for s in ([c.batch] if c.batch else []) + [c.m, c.n]]
    partial = host.dispatch(
        executable_name(ENTRY),
        ENTRY,
        workload=[*sizes, values[SPLITS]],
        constants=host.scalars(),
        reads=[a, b],
        writes=space,
    )
    done = host.dispatch(
        REDUCE,
        REDUCE,
        workload=sizes,
        constants=host.scalars(),
        reads=[partial, *extras],
        writes=result,
    )
    return host.finish(f"{kernel}.split", done, repeat=True)


def _reduce(contraction: Contraction) -> str:
    """One lane an element of C, along N, so that a wave reads and writes whole lines."""
    c = contraction
    layout = layout_text(len(constant_names(c, split=True)), 1 + len(c.extras))
    ir = KernelText()
    values = load_constants(ir, constant_names(c, split=True), layout)
    buffers = {
        o.name: bind_buffer(
            ir,
            layout=layout,
            binding=1 + place,
            type_name=o.type,
            count=values.span(ir, o),
            read_only=o is not c.c,
        )
        for place, o in enumerate((*c.extras, c.c))
    }
    partial = bind_partial(ir, c, values, layout, binding=0, read_only=True)
    block, batch = (
        ir.value(f"hal.interface.workgroup.id[{axis}] : index", "wg") for axis in (0, 2)
    )
    lane = ir.value("gpu.thread_id x", "lane")
    element = ir.add(ir.mul(block, REDUCE_LANES), lane)
    area = ir.mul(values[c.m], values[c.n])
    with ir.when(ir.less(element, area)):
        total = _sum(ir, c, values, partial, batch, element, area)
        n = values[c.n]
        where = {c.m: ir.div(element, n), c.n: ir.rem(element, n)}
        if c.batch:
            where[c.batch] = batch
        store_element(ir, c, total, values, buffers, where, current=compute_type(c))
    ir.emit("return")
    batched = c.batch is not None

    def grid(ir: KernelText, sizes: list[str]) -> list[Index]:
        area = ir.mul(sizes[-2], sizes[-1])
        return [ir.ceildiv(area, REDUCE_LANES), 1, sizes[0] if batched else 1]

    return executable(
        name=REDUCE,
        entry=REDUCE,
        layout=layout,
        workload=3 if batched else 2,
        grid=grid,
        block=(REDUCE_LANES, 1, 1),
        body=ir.text(),
    )


def _sum(
    ir: KernelText,
    contraction: Contraction,
    values: KernelValues,
    partial: str,
    batch: str,
    element: Index,
    area: Index,
) -> str:
    """The partial sums of one element, added in the order of the slices."""
    type_ = compute_type(contraction)
    mlir = element_type(type_).mlir
    splits = values[SPLITS]
    first = ir.mul(batch, splits) if contraction.batch else 0

    def one(number: str, carried: list[str]) -> list[str]:
        at = ir.index(ir.add(ir.mul(ir.add(first, number), area), element))
        part = ir.value(f"memref.load {partial}[{at}] : memref<?x{mlir}, {STORAGE}>")
        return [add(ir, carried[0], part, type_)]

    (total,) = ir.carried_loop(0, splits, 1, [ir.constant(0, mlir)], mlir, one)
    return total
