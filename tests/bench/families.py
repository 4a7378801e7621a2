"""The families that the benchmarks in ``benchmarks/`` choose from, built where the compiler is.

PYTHONPATH=.:tests python tests/bench/families.py --target cuda:sm_90a -o packs

A kernel for each pair of types, each with tiles from big to small: the warpgroup bodies for what
fills the device, with clusters that share an operand or the K of a tile; ``mma.sync`` for small and
odd problems; and the body of few rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dialects.declarations import Declarations
from dialects.member import Member, Tile
from dialects.operands import Contraction, EpilogueStep
from lowering.build import BuildOptions, build
from lowering.builder import KernelSource, dense, source_text
from lowering.compile import CompileOptions
from lowering.pack import write_pack
from lowering.target import parse_target

TO_F16 = EpilogueStep(op="cast", type="f16")
TO_BF16 = EpilogueStep(op="cast", type="bf16")


def warps(
    body: str, m: int, n: int, waves: tuple[int, int], stages: int, cluster: int = 0
) -> Member:
    """A member of the warpgroup bodies: 128 bytes of K, here of 16-bit types."""
    tile = Tile(m=m, n=n, k=64, waves_m=waves[0], waves_n=waves[1], stages=stages, cluster=cluster)
    return Member(tile=tile, body=body)


def waves(body: str, m: int, n: int, k: int, waves: tuple[int, int], stages: int) -> Member:
    """A member of the ``mma.sync`` bodies."""
    tile = Tile(m=m, n=n, k=k, waves_m=waves[0], waves_n=waves[1], stages=stages)
    return Member(tile=tile, body=body)


def rows(m: int, n: int, k: int, waves_k: int, stages: int, cluster: int = 0) -> Member:
    """A member of the body of few rows."""
    tile = Tile(m=m, n=n, k=k, waves_n=1, waves_k=waves_k, stages=stages, cluster=cluster)
    return Member(tile=tile, body="mma_rows")


BIG = (
    warps("tma_wgmma", 128, 256, (2, 4), 4),
    warps("tma_wgmma_pair", 128, 256, (2, 4), 4),
    warps("tma_wgmma", 256, 128, (4, 2), 4),
    warps("tma_wgmma_pair", 256, 128, (4, 2), 4),
    warps("tma_wgmma", 128, 192, (2, 4), 4),
    warps("tma_wgmma", 64, 256, (1, 4), 5),
    warps("tma_wgmma", 128, 128, (2, 4), 6),
    warps("tma_wgmma_pair", 128, 128, (2, 4), 6),
)
SMALL = (
    warps("tma_wgmma", 64, 128, (1, 4), 6),
    warps("tma_wgmma_pair", 64, 128, (1, 4), 6),
    warps("tma_wgmma", 128, 64, (2, 4), 8),
    warps("tma_wgmma", 64, 64, (1, 4), 8),
    warps("tma_wgmma_split", 64, 64, (1, 4), 8, 2),
)
ODD = (
    waves("mma_sync", 16, 64, 64, (1, 2), 6),
    waves("mma_sync", 64, 64, 64, (2, 2), 4),
    waves("mma_sync_words", 128, 64, 32, (2, 2), 2),
    waves("mma_sync_words", 64, 64, 64, (2, 2), 2),
    waves("mma_sync_narrow", 128, 128, 32, (2, 4), 2),
    waves("mma_sync_narrow", 64, 64, 64, (2, 2), 2),
    waves("mma_sync_narrow", 64, 64, 32, (2, 2), 2),
    waves("mma_sync_narrow", 32, 64, 64, (1, 2), 2),
)
FEW = (
    rows(8, 64, 64, 4, 4, 2),
    rows(8, 32, 64, 4, 6),
    rows(16, 64, 64, 4, 4, 2),
    rows(16, 32, 64, 4, 6),
    rows(32, 32, 64, 4, 4),
    rows(32, 32, 32, 8, 4),
    rows(32, 64, 32, 8, 3),
)


def kernels() -> Iterator[tuple[str, Contraction, tuple[Member, ...]]]:
    """Names, products and families."""
    odd = ODD[6]  # of any alignment, so that every family runs any size
    half = dense("f16", result="f16", epilogue=(TO_F16,))
    weights = dense("f16", result="f16", epilogue=(TO_F16,), transposed_b=True)
    yield "f16_f16", half, (*BIG, *SMALL, *ODD, *FEW)
    yield "f16_f16_nt", weights, (*SMALL, odd, *FEW)
    yield "f16_f32", dense("f16"), (*BIG[:4], *BIG[5:], odd)
    yield "bf16_bf16", dense("bf16", result="bf16", epilogue=(TO_BF16,)), (*BIG, odd)
    bytes_ = tuple(replace(m, tile=replace(m.tile, k=128)) for m in BIG[:4])
    bytes_ = (*bytes_, waves("mma_sync_narrow", 64, 64, 64, (2, 2), 2))
    f8 = dense("f8e4m3", transposed_b=True, result="bf16", epilogue=(TO_BF16,))
    yield "f8_bf16_nt", f8, bytes_
    yield "i8_i32_nt", dense("i8", "i32", transposed_b=True), bytes_
    batch = dense("f16", result="f16", epilogue=(TO_F16,), batch=True)
    yield "f16_batch", batch, (BIG[6], SMALL[2], SMALL[3], *ODD[1:4], ODD[5])


def main(arguments: list[str]) -> int:
    """Build one pack a kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("-o", dest="folder", type=Path, required=True)
    parser.add_argument("--kernel", action="append", help="only this one; may be given again")
    parser.add_argument(
        "--peer", action="append", default=[], help="as lowering's compile takes it"
    )
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args(arguments)
    options = BuildOptions(compile=CompileOptions(cache=given.cache), peers=tuple(given.peer))
    for name, contraction, members in kernels():
        if given.kernel and name not in given.kernel:
            continue
        declared = Declarations(dims=contraction.dims, members=members)
        source = KernelSource(name=name, contraction=contraction, declarations=declared)
        target = parse_target(given.target)
        made = build(source_text([source]), f"{name}.mlir", [target], options)
        write_pack(made, given.folder / name)
        print(f"{name}: {len(made.files) // 2} candidates", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
