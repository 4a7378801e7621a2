"""The CPU body: pack, then mmt4d with the unpack and the epilogue fused into its stores.

The layouts are those of ``linalg.pack`` and ``linalg.mmt4d`` with inner tiles thread_m x thread_n x
1, in the caller's workspace. The loops are ours because the compiler's own schedule for
``linalg.mmt4d`` reached 0.75 of the vendor BLAS on one core of a 512-bit machine where this one
reaches 0.97, and because it cannot unpack into a caller's result when sizes are dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dialects.manifest import Footprint, Launch, Needs, Prepared
from dialects.member import Tile
from dialects.operands import Contraction, Tier
from dialects.types import element_type

from ..target import Target
from .body import Emitted, contraction_group, refused_types
from .cpu_kernels import Multiply, Panels
from .cpu_pack import PanelCopy
from .epilogue import compute_type
from .host_entry import HostFunction, Tensor, executable
from .interface import (
    bind_buffer,
    constant_names,
    layout_text,
    load_constants,
)
from .kernel_text import KernelText
from .operand_source import DECODED

MAX_ACCUMULATORS = 1024  # elements of one register tile


@dataclass(frozen=True, kw_only=True)
class CpuMmt4dBody:
    """Packed panels, a register tile of thread_m x thread_n, K in blocks of ``k``."""

    name: ClassVar[str] = "cpu_mmt4d"
    tier: ClassVar[Tier] = "software"
    backends: ClassVar[tuple[str, ...]] = ("cpu",)

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Needs an inner tile that divides m x n and fits registers."""
        if not tile.thread_m or not tile.thread_n:
            return "cpu_mmt4d needs thread_m and thread_n, its inner tile"
        if tile.m % tile.thread_m or tile.n % tile.thread_n:
            return f"inner tile {tile.thread_m}x{tile.thread_n} does not divide {tile.m}x{tile.n}"
        if tile.thread_m * tile.thread_n > MAX_ACCUMULATORS:
            return f"inner tile {tile.thread_m}x{tile.thread_n} > {MAX_ACCUMULATORS} elements"
        for operand in contraction.extras:
            if contraction.n in operand.dims[:-1]:
                return f"cpu_mmt4d reads rows, {contraction.n} must be the last of {operand.dims}"
        return refused_types(contraction, self.name, DECODED)

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """See :class:`.body.TileBody`."""
        body = _Candidate(contraction, tile)
        element = element_type(compute_type(contraction)).bytes
        packed_a, packed_b = (body.panels.expression(s) for s in "ab")
        text = body.pack("a") + body.pack("b") + body.multiply()
        return Emitted(
            text=text + body.host(kernel),
            launch=Launch(
                entry=kernel,
                grid=None,
                block=None,
                dynamic_shared_bytes=0,
                bindings=(*(o.name for o in contraction.operands), "workspace"),
                constants=constant_names(contraction),
            ),
            workspace=f"{element} * max({packed_a} + {packed_b}, 1)",
            prepared=Prepared(operand=contraction.b.name, bytes=f"{element} * max({packed_b}, 1)"),
            needs=Needs(features=target.needs),
            footprint=Footprint(),
            groups=(contraction_group(contraction, "no matrix instruction on this backend"),),
        )


class _Candidate:
    """The executables and host functions of one member."""

    def __init__(self, contraction: Contraction, tile: Tile) -> None:
        self.contraction, self.tile = contraction, tile
        self.panels = Panels(contraction=contraction, tile=tile)
        self.type, self.mlir = self.panels.type, self.panels.mlir
        self.constants = constant_names(contraction)

    def pack(self, side: str) -> str:
        """One workgroup packs one panel: [K][tile], zero beyond the edge."""
        operand, outer, tile = self.panels.side(side)
        names = (*self.constants, "offset")
        layout = layout_text(len(names), 1)
        ir = KernelText()
        values = load_constants(ir, names, layout)
        k_size = values[self.contraction.k]
        source = bind_buffer(
            ir,
            layout=layout,
            binding=0,
            type_name=operand.stored_type,
            count=values.span(ir, operand),
            read_only=True,
        )
        panel = ir.value("hal.interface.workgroup.id[0] : index")
        batch = ir.value("hal.interface.workgroup.id[1] : index")
        elements = self.panels.count(ir, values, side)
        start = ir.add(values["offset"], ir.mul(batch, elements))
        base = ir.add(start, ir.mul(panel, ir.mul(k_size, tile)))
        total = ir.add(base, ir.mul(k_size, tile))
        packed = bind_buffer(
            ir,
            layout=layout,
            binding=1,
            type_name=self.type,
            count=ir.greatest(total, 1),
            read_only=False,
        )
        origin = ir.mul(panel, tile)
        left = ir.sub(values[outer], origin)
        copy = PanelCopy(self.panels, ir, values, operand, tile, batch, origin, source, packed)
        with ir.when(ir.less(left, tile)):
            copy.edge(k_size, base, left)
            ir.otherwise()
            copy.full(k_size, base)
        ir.emit("return")
        return executable(
            name=f"pack_{side}",
            entry=f"pack_{side}",
            layout=layout,
            workload=2,
            grid=lambda _, sizes: [*sizes, 1],
            block=None,
            body=ir.text(),
        )

    def multiply(self) -> str:
        """One workgroup computes an m x n block of C from packed panels."""
        c, tile = self.contraction, self.tile
        names = (*self.constants, "offset")
        layout = layout_text(len(names), 2 + len(c.extras))
        ir = KernelText()
        values = load_constants(ir, names, layout)
        body = Multiply(self.panels, ir, values, layout).text()
        return executable(
            name="mmt4d",
            entry="mmt4d",
            layout=layout,
            workload=3,
            # rows first: neighbours share a block of B, which then stays in the L2 cache
            grid=lambda ir, w: [ir.ceildiv(w[1], tile.m), ir.ceildiv(w[2], tile.n), w[0]],
            block=None,
            body=body,
        )

    def host(self, kernel: str) -> str:
        """``kernel``, ``kernel.repeat``, ``kernel.prepare.b`` and ``kernel.prepared.b``."""
        b = self.contraction.b.name
        return (
            self._entry(kernel, prepared=False)
            + self._prepare(f"{kernel}.prepare.{b}")
            + self._entry(f"{kernel}.prepared.{b}", prepared=True)
        )

    def _entry(self, name: str, *, prepared: bool) -> str:
        c = self.contraction
        host = HostFunction(c)
        ir, values = host.ir, host.values
        a = host.operand(c.a)
        batch = values[c.batch] if c.batch else 1
        count_a = ir.mul(batch, self.panels.count(ir, values, "a"))
        count_b = ir.mul(batch, self.panels.count(ir, values, "b"))
        if prepared:
            b = host.buffer(c.b.name, self.mlir, ir.greatest(count_b, 1))
        else:
            b = host.operand(c.b)
        extras = [host.operand(o) for o in c.extras]
        result = host.operand(c.c, consume=True)
        size = count_a if prepared else ir.add(count_a, count_b)
        space = host.buffer("workspace", self.mlir, ir.greatest(size, 1), consume=True)
        zero = ir.constant(0, "i32")
        space = self._pack_on(host, "a", a, space, zero)
        offset = zero
        if not prepared:
            offset = host.integer(count_a)
            space = b = self._pack_on(host, "b", b, space, offset)
        done = host.dispatch(
            "mmt4d",
            "mmt4d",
            workload=[batch, values[c.m], values[c.n]],
            constants=[*host.scalars(), offset],
            reads=[space, b, *extras],
            writes=result,
        )
        return host.finish(name, done, repeat=not prepared)

    def _prepare(self, name: str) -> str:
        c = self.contraction
        host = HostFunction(c)
        ir, values = host.ir, host.values
        b = host.operand(c.b)
        batch = values[c.batch] if c.batch else 1
        count = ir.mul(batch, self.panels.count(ir, values, "b"))
        packed = host.buffer("packed", self.mlir, ir.greatest(count, 1), consume=True)
        return host.finish(name, self._pack_on(host, "b", b, packed, ir.constant(0, "i32")))

    def _pack_on(
        self, host: HostFunction, side: str, source: Tensor, space: Tensor, offset: str
    ) -> Tensor:
        _, outer, tile = self.panels.side(side)
        batch = self.contraction.batch
        return host.dispatch(
            f"pack_{side}",
            f"pack_{side}",
            workload=[
                host.ir.ceildiv(host.values[outer], tile),
                host.values[batch] if batch else 1,
            ],
            constants=[*host.scalars(), offset],
            reads=[source],
            writes=space,
        )
