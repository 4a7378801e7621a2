"""Builds the packs that ``--packs`` takes, where there is a compiler, to be carried to a device.

python tests/build_device_packs.py --target cuda:sm_90a -o packs
python tests/build_device_packs.py --target tests/fixtures/facts/vulkan-h200.json -o packs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dialects.declarations import Declarations
from dialects.errors import UnsupportedError
from dialects.member import Member, Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from lowering.build import Build, BuildOptions, build
from lowering.builder import KernelSource, dense, source_text
from lowering.compile import CompileOptions
from lowering.gates import GateError
from lowering.pack import write_pack
from lowering.target import Target, parse_target
from windows import FILE, windows_module

# Tiles that the bodies of the GPU back ends take between them.
WARPGROUPS = Tile(m=128, n=128, k=64, waves_m=2, waves_n=4, stages=3)
TALL = Tile(m=256, n=128, k=64, waves_m=4, waves_n=2, stages=4)
WAVES = Tile(m=64, n=64, k=32, waves_m=2, waves_n=2, stages=2)
SHARED_K = Tile(m=64, n=128, k=64, waves_m=1, waves_n=4, stages=6, cluster=2)
TURNS = Tile(m=16, n=64, k=64, waves_n=1, waves_k=4, stages=3)
TURNS_IN_PAIRS = replace(TURNS, m=32, k=32, cluster=2)
FLAT = Tile(m=16, n=64, k=64, waves_m=1, waves_n=4, stages=4)
SQUARE = Tile(m=128, n=128, k=32, waves_m=2, waves_n=2, stages=2)
LANES = Tile(m=64, n=64, k=16, thread_m=4, thread_n=4)
BIAS = Operand(name="bias", type="f32", dims=("N",))
ROWS = Operand(name="rows", type="f16", dims=("M",))
RESIDUAL = Operand(name="residual", type="f16", dims=("M", "N"))
TO_F16 = EpilogueStep(op="cast", type="f16")
TO_F32 = EpilogueStep(op="cast", type="f32")
RELU = EpilogueStep(op="max", constant=0.0)


def transposed(contraction: Contraction) -> Contraction:
    """The same with A stored (K, M)."""
    a = contraction.a
    return replace(contraction, a=replace(a, dims=(*a.dims[:-2], a.dims[-1], a.dims[-2])))


def kernels() -> Iterator[tuple[str, Contraction, tuple[Tile, ...]]]:
    """Types, orders of A and B, batches and epilogues, each with tiles for every body."""
    half = (WARPGROUPS, SHARED_K, TURNS, TURNS_IN_PAIRS, WAVES, LANES)
    wide = (replace(WARPGROUPS, k=128), replace(SHARED_K, k=128), replace(TURNS, k=128))
    eighth = (*wide, replace(WAVES, k=64), LANES)
    f16 = dense("f16")
    yield "f16_f32_nn", f16, (*half, TALL, SQUARE)
    yield "f16_f32_nt", dense("f16", transposed_b=True), half
    yield "f16_f32_tn", transposed(f16), half
    yield "f16_f32_tt", transposed(dense("f16", transposed_b=True)), (*half, TALL, SQUARE)
    yield "f16_f16_nn", dense("f16", result="f16", epilogue=(TO_F16,)), half
    yield "f16_sums_f16", dense("f16", "f16"), half
    cast = (EpilogueStep(op="cast", type="bf16"),)
    yield "bf16_bf16_nt", dense("bf16", result="bf16", epilogue=cast, transposed_b=True), half
    yield "f16_batch", dense("f16", batch=True), half
    batch = transposed(
        dense("f16", batch=True, transposed_b=True, result="f16", epilogue=(TO_F16,))
    )
    yield "f16_batch_tt", batch, half
    finish = (EpilogueStep(op="add", operand="bias"), RELU, TO_F16)
    yield "f16_bias_relu", dense("f16", result="f16", extras=(BIAS,), epilogue=finish), half
    rows = (TO_F16, EpilogueStep(op="mul", operand="rows"))
    yield "f16_row_scale", dense("f16", result="f16", extras=(ROWS,), epilogue=rows), half
    more = (
        EpilogueStep(op="mul", constant=2.0),
        TO_F16,
        EpilogueStep(op="add", operand="residual"),
    )
    yield "f16_residual", dense("f16", result="f16", extras=(RESIDUAL,), epilogue=more), half
    yield "f16_accumulate", dense("f16", accumulate=True), half
    yield "i8_i32_nt", dense("i8", "i32", transposed_b=True), eighth
    yield "i8_i32_nn", dense("i8", "i32"), eighth
    scaled = (TO_F32, EpilogueStep(op="mul", constant=0.5))
    yield "u8_f32_nt", dense("u8", "i32", result="f32", epilogue=scaled, transposed_b=True), eighth
    yield "f8e4m3_f32_nt", dense("f8e4m3", transposed_b=True), eighth[:-1]
    yield "f32_nn", dense("f32"), (LANES, Tile(m=128, n=128, k=16, thread_m=8, thread_n=8))
    yield "f32_tt", transposed(dense("f32", transposed_b=True)), (LANES,)
    blocks = dense("f16", transposed_b=True, source_b="q8_0")
    yield "q8_0", blocks, (*half, FLAT)
    quantised = dense("f16", batch=True, transposed_b=True, source_b="q8_0", result="f16")
    yield "q8_0_batch", replace(quantised, extras=(BIAS,), epilogue=finish), half


def built(
    name: str,
    contraction: Contraction,
    tiles: tuple[Tile, ...],
    targets: list[Target],
    options: BuildOptions,
) -> Build | None:
    """A pack of one kernel for the first of the targets that has code for it; None where none has.

    What each of them refuses is said.
    """
    declared = Declarations(
        dims=contraction.dims, members=tuple(Member(tile=tile) for tile in tiles)
    )
    source = KernelSource(name=name, contraction=contraction, declarations=declared)
    for target in targets:
        try:
            return build(source_text([source]), f"{name}.mlir", [target], options)
        except (GateError, UnsupportedError) as error:
            if not any(text in error.message for text in ("no device code", "no member can be")):
                raise
            print(f"{name}: {error.message}", file=sys.stderr)
    return None


def main(arguments: list[str]) -> int:
    """Build one pack a kernel. What facts of Vulkan lack is left to the driver to refuse."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("-o", dest="folder", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args(arguments)
    targets = [parse_target(given.target)]
    if targets[0].backend == "vulkan":
        targets.append(parse_target("vulkan"))
    options = BuildOptions(compile=CompileOptions(cache=given.cache))
    given.folder.mkdir(parents=True, exist_ok=True)
    (given.folder / FILE).write_bytes(windows_module())
    for name, contraction, tiles in kernels():
        made = built(name, contraction, tiles, targets, options)
        if made is not None:
            write_pack(made, given.folder / name)
            print(f"{name}: {len(made.files) // 2} candidates", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
