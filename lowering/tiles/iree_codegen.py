"""The compiler's own kernel with a forced configuration: the body ``iree``, built on request alone.

For what no template covers. The host entry has one ``linalg`` operation with
``compilation_info`` instead of a dispatch of ours; its result goes into the caller's buffer through
``hal.tensor.alias``, which makes one dispatch, no allocation and no copy out of it with dynamic
sizes too. The compiler knows dense tensors only and orders the kernel's arguments its own way, so
operands must be contiguous and the code object is launched by the compiler's run time alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.manifest import Footprint, Launch, Needs
from dialects.member import Tile
from dialects.operands import Contraction, Operand, Tier
from dialects.types import element_type

from ..target import Target
from .body import Emitted, contraction_group, refused_types
from .epilogue import convert
from .host_entry import HostFunction
from .interface import constant_names, storage_type
from .kernel_text import KernelText
from .software import storage_needs

MOST_VECTOR = 1024  # elements of one lane's or call's tile: the back end unrolls all of them
MOST_CPU_K = 64


@dataclass(frozen=True, kw_only=True)
class IreeCodegenBody:
    """A plain contraction, tiled by the compiler as the member says.

    Not on ROCm, where dynamic sizes need padding and IREE 3.13 does not compile that beside the
    entry for timing; not on CUDA, where the code object is launched by our own run time.
    """

    name: ClassVar[str] = "iree"
    tier: ClassVar[Tier] = "software"
    backends: ClassVar[tuple[str, ...]] = ("cpu", "vulkan")

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs a plain contraction, and thread_m and thread_n that divide the tile."""
        if contraction.epilogue or contraction.extras:
            return "iree serves no epilogue: the bodies of ours do"
        if contraction.accumulate:
            return "iree serves no C += A B: it would copy C"
        if contraction.c.type != contraction.accumulator:
            return f"iree stores the accumulator's {contraction.accumulator} only"
        if not tile.thread_m or not tile.thread_n:
            return "iree needs thread_m and thread_n"
        if tile.m % tile.thread_m or tile.n % tile.thread_n:
            return f"thread tile {tile.thread_m}x{tile.thread_n} does not divide {tile.m}x{tile.n}"
        if tile.thread_m * tile.thread_n > MOST_VECTOR:
            return f"thread tile {tile.thread_m}x{tile.thread_n} > {MOST_VECTOR} elements"
        if target.backend == "cpu" and tile.k > MOST_CPU_K:
            return f"iree unrolls k on the CPU: {tile.k} > {MOST_CPU_K}"
        return refused_types(contraction, self.name)

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        info = compilation_info(contraction, tile, target)
        features = target.needs or storage_needs(contraction, target)
        return Emitted(
            text=_host(kernel, contraction, info),
            launch=Launch(
                entry=kernel,
                grid=None,
                block=None,
                dynamic_shared_bytes=0,
                bindings=tuple(o.name for o in contraction.operands),
                constants=constant_names(contraction),
            ),
            workspace=None,
            prepared=None,
            needs=Needs(features=features, contiguous=True),
            footprint=Footprint(),
            groups=(
                contraction_group(contraction, "the compiler's own kernel, asked for by name"),
            ),
            compilation_info=info,
        )


def compilation_info(contraction: Contraction, tile: Tile, target: Target) -> str:
    """The configuration of a member as the compiler spells it; loops are batch, M, N, K.

    Both back ends predicate their edges, so that any size runs.
    """
    batch = [1] if contraction.batch else []
    none = [0] if contraction.batch else []
    m, n = tile.m, tile.n
    if target.backend == "cpu":
        config = (
            f"#iree_cpu.lowering_config<distribution = {[*batch, m, n, 0]}, "
            f"vector_common_parallel = {[*batch, tile.thread_m, tile.thread_n, 0]}, "
            f"vector_reduction = {[*none, 0, 0, tile.k]}>"
        )
        return _info(config, "#iree_cpu.pipeline<DoubleTilingExpert>")
    across, down = n // tile.thread_n, m // tile.thread_m
    sizes = [[*batch, m, n], [*batch, tile.thread_m, tile.thread_n], [*none, 0, 0, tile.k]]
    config = f"#iree_codegen.lowering_config<tile_sizes = {sizes}>"
    pipeline = "#iree_gpu.spirv_pipeline<BaseVectorize>"
    return _info(config, f"{pipeline} workgroup_size = {[across, down, 1]}")


def _info(config: str, translation: str) -> str:
    return (
        f"#iree_codegen.compilation_info<lowering_config = {config}, "
        f"translation_info = #iree_codegen.translation_info<pipeline = {translation}>>"
    )


def _host(kernel: str, contraction: Contraction, info: str) -> str:
    """``kernel``, ``kernel.async`` and ``kernel.repeat`` around one linalg operation."""
    host = HostFunction(contraction)
    ir, c = host.ir, contraction.c
    reads = [host.shaped(o) for o in (contraction.a, contraction.b)]
    element = storage_type(c.type)
    sizes = ", ".join(ir.index(host.values[d]) for d in c.dims)
    shape = _tensor(c)
    empty = ir.value(f"tensor.empty({sizes}) : {shape}")
    zero = ir.constant(0, element)
    start = ir.value(f"linalg.fill ins({zero} : {element}) outs({empty} : {shape}) -> {shape}")
    maps = ", ".join(contraction.indexing_map(o) for o in (contraction.a, contraction.b, c))
    kinds = ["parallel"] * (len(contraction.dims) - 1) + ["reduction"]
    iterators = ", ".join(f'"{k}"' for k in kinds)
    types = ", ".join(_tensor(o) for o in (contraction.a, contraction.b))
    result = ir.name("r")
    with ir.block(
        f"{result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} "
        f"ins({', '.join(reads)} : {types}) outs({start} : {shape}) "
        f"attrs = {{compilation_info = {info}}} {{",
        f"}} -> {shape}",
    ):
        _multiply(ir, contraction)
    return host.finish(kernel, host.into(c, result), repeat=True)


def _multiply(ir: KernelText, contraction: Contraction) -> None:
    a, b, acc = (
        storage_type(t) for t in (contraction.a.type, contraction.b.type, contraction.accumulator)
    )
    ir.emit(f"^bb0(%x: {a}, %y: {b}, %sum: {acc}):")
    wide = element_type(contraction.accumulator)
    x = convert(ir, "%x", contraction.a.type, wide.name)
    y = convert(ir, "%y", contraction.b.type, wide.name)
    kind = "f" if wide.kind == "float" else "i"
    product = ir.value(f"arith.mul{kind} {x}, {y} : {acc}")
    total = ir.value(f"arith.add{kind} %sum, {product} : {acc}")
    ir.emit(f"linalg.yield {total} : {acc}")


def _tensor(operand: Operand) -> str:
    return f"tensor<{'?x' * len(operand.dims)}{storage_type(operand.type)}>"
