"""A matrix product in Triton, tuned over tile sizes, stages and warps; a peer of benchmarks only.

Imported only where Triton is installed, since its language is Triton's.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from dialects.operands import Contraction

_TYPES = {"f16", "bf16", "i8", "f8e4m3", "f8e5m2"}  # those that Triton has matrix cores for
# Block m, block n, block k, warps, stages.
_SHAPES = (
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 4),
    (256, 128, 64, 8, 3),
    (256, 128, 64, 8, 4),
    (128, 128, 64, 4, 3),
    (128, 128, 64, 4, 4),
    (128, 128, 64, 8, 3),
    (128, 128, 32, 4, 5),
    (128, 128, 128, 8, 3),
    (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4),
    (64, 256, 32, 4, 5),
    (64, 256, 64, 4, 4),
    (256, 64, 32, 4, 4),
    (64, 64, 64, 4, 5),
    (64, 64, 128, 4, 3),
    (64, 32, 64, 4, 5),
    (32, 64, 64, 4, 5),
    (32, 128, 128, 4, 4),
    (16, 64, 128, 4, 5),
    (16, 128, 128, 4, 4),
    (16, 64, 256, 4, 3),
)


def _configurations() -> list[Any]:
    return [
        triton.Config({"BM": m, "BN": n, "BK": k, "GROUP": 8}, num_warps=warps, num_stages=stages)
        for m, n, k, warps, stages in _SHAPES
    ]


@triton.autotune(configs=_configurations(), key=["m", "n", "k", "a_k", "b_n"])
@triton.heuristics({"WHOLE_K": lambda of: of["k"] % of["BK"] == 0})
@triton.jit
def _kernel(
    a, b, c,
    m, n, k,
    a_batch, a_m, a_k,
    b_batch, b_k, b_n,
    c_batch, c_m,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    WHOLE_K: tl.constexpr, ACCUMULATOR: tl.constexpr,
):  # fmt: skip
    """One tile of C a program; programs are grouped by rows so that operands stay in the cache."""
    place = tl.program_id(0)
    batch = tl.program_id(1).to(tl.int64)
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = place // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    row = first + (place % (GROUP * columns)) % height
    column = (place % (GROUP * columns)) // height
    at_m = row * BM + tl.arange(0, BM)
    at_n = column * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    tile_a = a + batch * a_batch + (at_m % m)[:, None] * a_m + at_k[None, :] * a_k
    tile_b = b + batch * b_batch + at_k[:, None] * b_k + (at_n % n)[None, :] * b_n
    total = tl.zeros((BM, BN), dtype=ACCUMULATOR)
    for step in range(0, tl.cdiv(k, BK)):
        if WHOLE_K:
            part_a = tl.load(tile_a)
            part_b = tl.load(tile_b)
        else:
            left = k - step * BK
            part_a = tl.load(tile_a, mask=at_k[None, :] < left, other=0.0)
            part_b = tl.load(tile_b, mask=at_k[:, None] < left, other=0.0)
        total = tl.dot(part_a, part_b, total, out_dtype=ACCUMULATOR)
        tile_a += BK * a_k
        tile_b += BK * b_k
    to = c + batch * c_batch + at_m[:, None] * c_m + at_n[None, :]
    tl.store(to, total.to(c.dtype.element_ty), mask=(at_m[:, None] < m) & (at_n[None, :] < n))


def takes(contraction: Contraction) -> bool:
    """Whether the kernel has the operand types."""
    return contraction.a.type == contraction.b.type and contraction.a.type in _TYPES


def matmul(a: Any, b: Any, out: Any, *, integers: bool) -> Any:
    """``out = a @ b`` on torch's current stream; [M, K] by [K, N] of any strides, or batches."""
    batched = a.dim() == 3
    count = a.shape[0] if batched else 1
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]

    def grid(meta: dict[str, int]) -> tuple[int, int]:
        return triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]), count

    kernel: Any = _kernel
    kernel[grid](
        a, b, out,
        m, n, k,
        a.stride(0) if batched else 0, a.stride(-2), a.stride(-1),
        b.stride(0) if batched else 0, b.stride(-2), b.stride(-1),
        out.stride(0) if batched else 0, out.stride(-2),
        ACCUMULATOR=tl.int32 if integers else tl.float32,
    )  # fmt: skip
    return out
