"""Launches of emitted mma.sync kernels, executed on the host and compared with the exact result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of
from typing import Any

import ml_dtypes
import numpy as np

from dialects.block_formats import stored_sizes
from dialects.expressions import Expression
from dialects.member import Tile
from dialects.operands import Contraction, Operand, contiguous_strides, operand_span
from emulated_wave import Fault, Workgroup
from kernel_sources import tile_body
from lowering.builder import dense
from lowering.target import parse_target
from lowering.tiles import TileBody
from lowering.tiles.gemm_launch import gemm_layout
from lowering.tiles.interface import constant_names
from lowering.tiles.mma_kernel import MmaKernel
from lowering.tiles.mma_rows import MmaRowsBody
from lowering.tiles.mma_shape import MmaShape
from lowering.tiles.mma_sync import MmaSyncBody
from lowering.tiles.rows_kernel import RowsKernel
from lowering.tiles.rows_shape import rows_shape
from problems import q8_0_integers
from ptx_emulator import execute, parse
from runtime.reference import decoded

TARGET = parse_target("cuda:sm_90a")
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "i8": np.int8,
    "u8": np.uint8,
    "i32": np.int32,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}
SMALL = Tile(m=32, n=32, k=32, waves_m=1, waves_n=2, stages=2)


def product(
    type_: str, accumulator: str = "f32", *, flip_a: bool = False, **more: Any
) -> Contraction:
    """A matrix product; ``flip_a`` stores A as (K, M)."""
    c = dense(type_, accumulator, **more)
    if not flip_a:
        return c
    return replace(c, a=replace(c.a, dims=(*c.a.dims[:-2], c.k, c.m)))


@dataclass
class Case:
    """One launch: the kernel's text, operands in memory, and where every C element lies."""

    contraction: Contraction
    tile: Tile
    body: str
    sizes: dict[str, int]
    pad: int = 0  # added to every stride, in elements

    def __post_init__(self) -> None:
        body = tile_body(self.body)
        refusal = body.refusal(self.contraction, self.tile, TARGET)
        assert refusal is None, refusal
        self.text = _kernel_text(body, self.contraction, self.tile)
        self.emitted = body.emit("gemm", self.contraction, self.tile, TARGET)
        rng = np.random.default_rng(7)
        self.strides: dict[str, int] = {}
        self.arrays, self.raw = {}, []
        for operand in self.contraction.operands:
            sizes = [self.sizes[d] for d in operand.dims]
            shape = stored_sizes(sizes, operand.source)
            padded = [*shape[:-1], shape[-1] + (self.pad if len(shape) > 1 else 0)]
            strides = contiguous_strides(padded)
            self.strides |= dict(zip(operand.strides, strides, strict=True))
            dtype = np.dtype(DTYPES[operand.stored_type])
            raw = np.full(operand_span(shape, strides) * dtype.itemsize, 0xFF, np.uint8)
            plain = raw.view(f"u{dtype.itemsize}")  # some types have no strided views of their own
            steps = [s * dtype.itemsize for s in (*strides, 1)]
            view = np.lib.stride_tricks.as_strided(plain, shape, steps).view(dtype)
            view[...] = self.made(operand, sizes, rng)
            self.arrays[operand.name] = view
            self.raw.append(raw)

    def made(self, operand: Operand, sizes: Sequence[int], rng: np.random.Generator) -> np.ndarray:
        """Small integers as they are stored."""
        if operand.source is not None:
            return q8_0_integers(rng, sizes)
        low = 0 if operand.type == "u8" else -3
        return rng.integers(low, 4, sizes).astype(DTYPES[operand.type])

    def expected(self) -> np.ndarray:
        """The product and its epilogue, exact: every value is a small integer."""
        c = self.contraction
        read = decoded(c, self.arrays)
        a, b = (read[o.name].astype(np.float64) for o in (c.a, c.b))
        a = a.swapaxes(-1, -2) if c.transposed_a else a
        b = b.swapaxes(-1, -2) if c.transposed_b else b
        result = a @ b
        if c.accumulate:
            result = result + self.arrays["c"].astype(np.float64)
        for step in c.epilogue:
            if step.op == "cast":
                continue
            extra = self.arrays[step.operand] if step.operand else step.constant or 0.0
            other = np.asarray(extra, np.float64)
            if step.operand == "column":
                other = other[:, None]
            result = result + other if step.op == "add" else np.maximum(result, other)
        return result.astype(DTYPES[c.c.type])

    def run(self, text: str | None = None, *, eager: bool = True, reverse: bool = False) -> int:
        """Launch the whole grid; returns bank conflicts. C is compared, and what surrounds it."""
        c = self.contraction
        expected, before = self.expected(), self.raw[-1].copy()
        buffers = [*self.raw[:-1], self.raw[-1].copy()]
        if not c.accumulate:
            buffers[-1][:] = 0xFF
            before[:] = 0xFF
        names = {**self.sizes, **self.strides}
        launch = self.emitted.launch
        assert launch.grid is not None
        assert launch.block is not None
        grid = [Expression(g).evaluate(self.sizes) for g in launch.grid]
        assert launch.constants == constant_names(c)
        ops, conflicts = parse(text or self.text), 0
        stores = np.zeros(len(buffers[-1]), np.int64)
        cluster = max(self.tile.cluster, 1)
        for x, y, z in product_of(range(0, grid[0], cluster), range(grid[1]), range(grid[2])):
            groups = [
                Workgroup(
                    constants=[names[n] for n in launch.constants],
                    buffers=buffers,
                    number=(x + rank, y, z),
                    eager=eager,
                    stores=stores,
                )
                for rank in range(cluster)
            ]
            execute(groups, ops, launch.block[0], reverse=reverse)
            assert {len(g.shared) for g in groups} == {launch.dynamic_shared_bytes}
            conflicts += sum(g.conflicts for g in groups)
        self._compare(buffers[-1], before, stores, expected)
        return conflicts

    def _compare(
        self, raw: np.ndarray, before: np.ndarray, stores: np.ndarray, expected: np.ndarray
    ) -> None:
        dtype = expected.dtype
        strides = [self.strides[s] * dtype.itemsize for s in self.contraction.c.strides]
        at = np.zeros(expected.shape, np.int64)
        for axis, stride in enumerate([*strides, dtype.itemsize]):
            index = np.arange(expected.shape[axis]) * stride
            at += index.reshape([-1 if i == axis else 1 for i in range(at.ndim)])
        places = at[..., None] + np.arange(dtype.itemsize)
        wanted = np.zeros(len(raw), np.int64)
        wanted[places] = 1
        if not (stores == wanted).all():
            raise Fault("an element is not stored exactly once")
        got = np.ascontiguousarray(raw[places]).view(dtype)[..., 0]
        if not np.array_equal(got.astype(np.float64), expected.astype(np.float64)):
            raise Fault("a wrong result")
        assert (raw[wanted == 0] == before[wanted == 0]).all()


def _kernel_text(body: TileBody, contraction: Contraction, tile: Tile) -> str:
    layout = gemm_layout(contraction)
    if isinstance(body, MmaRowsBody):
        return RowsKernel(contraction, rows_shape(contraction, tile), layout).text()
    assert isinstance(body, MmaSyncBody)
    shape = MmaShape(tile=tile, type=contraction.a.type, copy_bytes=body.copy_bytes)
    return MmaKernel(contraction, shape, layout).text()


def sizes(m: int, n: int, k: int, batch: int | None = None) -> dict[str, int]:
    """Sizes by name."""
    return {**({"B": batch} if batch else {}), "M": m, "N": n, "K": k}
