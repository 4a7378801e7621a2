"""The software tile on a device: every type, layout and epilogue, copied narrow and wide, exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from kernel_sources import kernel
from lowering.build import BuildOptions, build
from lowering.builder import dense, source_text
from lowering.compile import CompileOptions
from lowering.pack import write_pack
from lowering.target import parse_target
from problems import candidates_at, q8_0_integers
from runtime import DeviceArray, Session
from runtime.arrays import Layout
from runtime.dtypes import dtype_of
from runtime.reference import decoded, evaluate

TILE = Tile(m=32, n=32, k=8, thread_m=4, thread_n=4)  # 64 lanes, runs of 4 elements
DEEP = replace(TILE, k=16)  # runs of 8
ODD = Tile(m=12, n=10, k=6, thread_m=3, thread_n=2)  # no power of two anywhere, partial copies
BIAS = Operand(name="bias", type="f16", dims=("N",))
SCALE = Operand(name="scale", type="f32", dims=("M",))
CAST = EpilogueStep(op="cast", type="f16")
RELU = EpilogueStep(op="max", constant=0.0)


def transposed_a(contraction: Contraction) -> Contraction:
    """The same with A stored (K, M)."""
    *lead, m, k = contraction.a.dims
    return replace(contraction, a=replace(contraction.a, dims=(*lead, k, m)))


KERNELS: dict[str, tuple[Contraction, Tile]] = {
    "f32_odd": (dense("f32", transposed_b=True), ODD),
    "f32_batch_tt": (transposed_a(dense("f32", batch=True, transposed_b=True)), TILE),
    "f32_added": (dense("f32", accumulate=True), TILE),
    "f16_cast": (
        dense(
            "f16",
            transposed_b=True,
            extras=(BIAS,),
            epilogue=(EpilogueStep(op="add", operand="bias"), RELU, CAST),
            result="f16",
        ),
        DEEP,
    ),
    "bf16_scaled": (
        transposed_a(
            dense(
                "bf16",
                extras=(SCALE,),
                epilogue=(EpilogueStep(op="mul", operand="scale"),),
            )
        ),
        TILE,
    ),
    "i8": (dense("i8", "i32", transposed_b=True, accumulate=True), TILE),
    "u8": (dense("u8", "i32", batch=True), TILE),
    "q8_f32": (dense("f32", transposed_b=True, source_b="q8_0"), TILE),
    "q8_f16": (
        dense(
            "f16",
            batch=True,
            transposed_b=True,
            source_b="q8_0",
            epilogue=(RELU, CAST),
            result="f16",
        ),
        DEEP,
    ),
}
RAGGED = ((1, 1, 1), (37, 15, 7), (33, 70, 35), (5, 6, 0))
ALIGNED = ((8, 16, 8), (40, 72, 24))
BLOCKS = ((1, 1, 32), (37, 15, 96), (5, 6, 0))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory, compile_cache: Path) -> Path:
    """All kernels for any Vulkan device."""
    out = tmp_path_factory.mktemp("software-tile") / "pack"
    text = source_text([kernel(c, tile, name=name) for name, (c, tile) in KERNELS.items()])
    options = BuildOptions(compile=CompileOptions(cache=compile_cache))
    write_pack(build(text, "software.mlir", [parse_target("vulkan")], options), out)
    return out


@pytest.fixture(scope="module")
def session(pack: Path, vulkan_device: str) -> Iterator[Session]:
    """A session with that pack that never times."""
    with Session(pack, vulkan_device, tuning="off") as opened:
        yield opened


def operands_of(contraction: Contraction, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Small integers in each operand's own type."""
    rng = np.random.default_rng(sum(sizes.values()))
    result = {}
    for operand in contraction.operands:
        shape = [sizes[d] for d in operand.dims]
        if operand.source is not None:
            result[operand.name] = q8_0_integers(rng, shape)
            continue
        least = 0 if operand.type == "u8" else -2
        values = rng.integers(least, 3, shape)
        if operand in (contraction.a, contraction.b):
            values *= rng.random(shape) < 0.5
        result[operand.name] = values.astype(dtype_of(operand.type))
    return result


def expected(contraction: Contraction, operands: dict[str, np.ndarray]) -> np.ndarray:
    """The exact result in C's own type."""
    value = evaluate(contraction, decoded(contraction, operands))
    return value.astype(dtype_of(contraction.c.type))


def check(session: Session, name: str, m: int, n: int, k: int) -> set[str]:
    """Run every candidate that can; the bodies that did."""
    contraction = KERNELS[name][0]
    numbers = [3, m, n, k] if contraction.batch else [m, n, k]
    sizes = dict(zip(contraction.dims, numbers, strict=True))
    operands = operands_of(contraction, sizes)
    want = expected(contraction, operands)
    inputs = [operands[o.name] for o in contraction.operands[:-1]]
    ran = candidates_at(session, name, list(sizes.values()))
    assert ran
    for candidate in ran:
        session.override(name, candidate)
        out = np.full(want.shape, 119, want.dtype)
        if contraction.accumulate:
            out[...] = operands["c"]
        assert getattr(session, name)(*inputs, out=out) is out
        np.testing.assert_array_equal(out, want, err_msg=f"{candidate} at {m}x{n}x{k}")
    return {c.partition("/")[2] for c in ran}


@pytest.mark.device("vulkan")
@pytest.mark.parametrize("name", list(KERNELS))
def test_any_size_is_exact(session: Session, name: str) -> None:
    """Narrow copies take every size, wide ones those whose rows are whole runs."""
    quantised = any(o.source for o in KERNELS[name][0].operands)
    ran: set[str] = set()
    for sizes in BLOCKS if quantised else (*RAGGED, *ALIGNED):
        ran |= check(session, name, *sizes)
    assert ran == ({"software"} if name == "f32_odd" else {"software", "software_wide"})


@pytest.mark.device("vulkan")
def test_any_leading_dimension_is_exact(session: Session) -> None:
    """Operands and the result are windows of wider arrays on the device."""
    m, n, k = 21, 24, 32
    for pad in (3, 8):  # 3: no wide copy of such rows, as the rule says
        for name in ("f32_added", "q8_f32"):
            contraction = KERNELS[name][0]
            operands = operands_of(contraction, {"M": m, "N": n, "K": k})
            want = expected(contraction, operands)
            pad_bytes = 2 * pad if name == "q8_f32" else pad
            a = padded(session, operands["a"], pad)
            b = padded(session, operands["b"], pad_bytes)
            for candidate in session.reference(name).entry.members:
                session.override(name, candidate.name)
                c = padded(session, operands["c"], pad)
                if pad == 3 and candidate.identity.body == "software_wide":
                    continue
                getattr(session, name)(a, b, out=c)
                whole = session.device.download(c.buffer, (m, n + pad), want.dtype)
                np.testing.assert_array_equal(whole[:, :n], want, err_msg=candidate.name)
                assert np.all(whole[:-1, n:] == 77), candidate.name


def padded(session: Session, array: np.ndarray, pad: int) -> DeviceArray:
    """A device array whose rows are ``pad`` elements longer than they look."""
    rows, columns = array.shape
    wide = np.full((rows, columns + pad), 77, array.dtype)
    wide[:, :columns] = array
    whole = session.array(wide)
    layout = Layout(type=whole.layout.type, shape=array.shape, strides=(columns + pad,))
    return DeviceArray(session.device, whole.buffer, layout)


def test_the_wide_tile_moves_sixteen_bytes_at_a_time(compile_cache: Path) -> None:
    """Read from the PTX: global and workgroup loads of four words, two barriers, all fused."""
    tile = Tile(m=128, n=128, k=16, thread_m=8, thread_n=8)
    text = source_text([kernel(dense("f32"), tile)])
    options = BuildOptions(body="software_wide", compile=CompileOptions(cache=compile_cache))
    result = build(text, "wide.mlir", [parse_target("cuda:sm_80")], options)
    (record,) = result.manifest.kernels[0].members
    assert record.needs.alignment == {"a.0": 4, "b.0": 4, "K": 4, "N": 4}
    assert record.footprint.dynamic_shared_bytes == 2 * 16 * 256 * 4
    assert record.files is not None
    assert record.files.code_object is not None
    ptx = result.files[record.files.code_object].decode()
    (mine,) = [part for part in ptx.split(".visible .entry ") if part.startswith("gemm(")]
    loads = [line.split()[0] for line in mine.splitlines() if line.split()[:1]]
    shared = [op for op in loads if op.startswith("ld.shared")]
    assert len(shared) == 16 * 4
    assert {op.rpartition(".")[0] for op in shared} == {"ld.shared.v4"}
    assert all(".v4." in op for op in loads if op.startswith("ld.global"))
    assert loads.count("fma.rn.f32") == 16 * 64
    assert loads.count("bar.sync") == 2
