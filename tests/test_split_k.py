"""Split-K: what R5 records is what the launch uses, and the result is exact and always the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dialects.facts import DeviceFacts
from dialects.manifest import SPLITS
from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand
from kernel_sources import built, code_of, records, source
from lowering.builder import dense
from lowering.pack import write_pack
from lowering.tiles.split_k import k_block
from runtime.facts import read_facts
from runtime.session import Session

TILE = Tile(m=16, n=16, k=16, thread_m=4, thread_n=4)
BLOCK = k_block(TILE)
ADD = (EpilogueStep(op="add", operand="d"), EpilogueStep(op="max", constant=0.0))
BIASED = dense("f32", extras=(Operand(name="d", type="f32", dims=("N",)),), epilogue=ADD)
NARROW = replace(
    dense("f16", result="f16"), accumulator="f32", epilogue=(EpilogueStep(op="cast", type="f16"),)
)


def pack_of(contraction: Contraction, folder: Path, cache: Path) -> Path:
    """A pack of one software member for Vulkan."""
    write_pack(built(source(contraction, TILE), "vulkan", cache), folder / "pack")
    return folder / "pack"


def idle_device(multiprocessors: int) -> DeviceFacts:
    """The Vulkan device that is here, if it had so many multiprocessors."""
    return replace(read_facts("vulkan"), multiprocessors=multiprocessors)


def integers(shape: tuple[int, ...], dtype: type, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def test_blocks_of_k_are_whole_tiles_and_enough_of_them() -> None:
    assert BLOCK == 256
    assert k_block(replace(TILE, k=24)) == 264
    assert k_block(replace(TILE, k=512)) == 512


def test_the_record_says_how_it_is_split(compile_cache: Path) -> None:
    result = built(source(BIASED, TILE), "vulkan", compile_cache)
    (record,) = records(result)
    split = record.split
    assert split is not None
    assert (split.k_block, split.max_splits) == (256, 16)
    assert split.workspace == "4 * M * N * splits"
    assert record.workspace is None
    assert record.workspace_bytes({"M": 3, "N": 5, "K": 512}, 2) == 120
    assert record.workspace_bytes({"M": 3, "N": 5, "K": 512}) == 0
    multiply, reduce = split.launch.steps
    assert (multiply.entry, reduce.entry) == ("gemm_split", "reduce")
    assert multiply.grid == ("ceildiv(N, 16)", "ceildiv(M, 16)", "splits")
    assert multiply.bindings == ("a", "b", "workspace")
    assert reduce.grid == ("ceildiv(M * N, 256)", "1", "1")
    assert reduce.bindings == ("workspace", "d", "c")
    assert record.launch is not None
    assert multiply.constants == reduce.constants == (*record.launch.constants, SPLITS)
    assert record.files is not None
    named = [multiply.code_object, reduce.code_object, record.files.code_object]
    assert len(set(named)) == 3
    assert set(named) < set(record.files.sha256)
    assert record.launch.code_object is None


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx1100"])
def test_one_code_object_holds_every_entry(target: str, compile_cache: Path) -> None:
    result = built(source(BIASED, TILE), target, compile_cache)
    (record,) = records(result)
    assert record.split is not None
    assert record.launch is not None
    assert [s.code_object for s in (*record.split.launch.steps, record.launch)] == [None] * 3
    code = code_of(result, record)
    for step in (*record.split.launch.steps, record.launch):
        assert step.entry.encode() in code
    assert record.footprint.threads_per_group == 16  # of the kernel that multiplies


def check(session: Session, contraction: Contraction, sizes: tuple[int, ...], splits: int) -> None:
    """One problem, twice, on a poisoned output, against numpy."""
    *batch, m, n, k = sizes
    dtype = np.float16 if contraction.a.type == "f16" else np.float32
    result = np.float16 if contraction.c.type == "f16" else np.float32
    a, b = integers((*batch, m, k), dtype, 1), integers((*batch, k, n), dtype, 2)
    start = integers((*batch, m, n), result, 3)
    bias = integers((n,), result, 4)
    extras = [session.array(bias)] if contraction.extras else []
    expected = a.astype(np.float64) @ b.astype(np.float64)
    if contraction.extras:
        expected = np.maximum(expected + bias, 0)
    expected = expected + start if contraction.accumulate else expected
    operands = [session.array(a), session.array(b), *extras]
    found = []
    for _ in range(2):
        out = session.array(start)
        if not contraction.accumulate:
            session.device.poison(out.buffer)
        session.gemm(*operands, out=out)
        found.append(out.numpy())
    (verdict,) = session.explain("gemm", *sizes).verdicts
    assert verdict.splits == splits
    assert session.choose("gemm", *sizes).splits == splits
    np.testing.assert_array_equal(found[0], expected.astype(result))
    assert found[1].tobytes() == found[0].tobytes()


@pytest.mark.device("vulkan")
@pytest.mark.parametrize(
    "contraction",
    [dense("f32"), BIASED, NARROW, dense("f32", accumulate=True)],
    ids=["plain", "bias and relu", "narrow", "accumulate"],
)
def test_slices_add_up(contraction: Contraction, tmp_path: Path, compile_cache: Path) -> None:
    """Of sizes that divide and that do not; few enough that they split, or so many that not."""
    pack = pack_of(contraction, tmp_path, compile_cache)
    with Session(pack, device="vulkan", facts=idle_device(4)) as session:
        check(session, contraction, (16, 16, 4 * BLOCK), 4)
        check(session, contraction, (15, 7, 4 * BLOCK + 13), 4)
        check(session, contraction, (1, 37, 2 * BLOCK + 1), 2)
        check(session, contraction, (16, 16, 2 * BLOCK - 1), 1)
        check(session, contraction, (37, 18, 2 * BLOCK), 1)
        check(session, contraction, (16, 16, 3 * BLOCK + 130), 3)


@pytest.mark.device("vulkan")
def test_slices_of_a_batch_stay_apart(tmp_path: Path, compile_cache: Path) -> None:
    contraction = dense("f32", batch=True)
    pack = pack_of(contraction, tmp_path, compile_cache)
    with Session(pack, device="vulkan", facts=idle_device(12)) as session:
        check(session, contraction, (3, 5, 9, 4 * BLOCK + 3), 4)
        check(session, contraction, (2, 17, 9, 3 * BLOCK), 3)


@pytest.mark.device("vulkan")
def test_the_caller_owns_the_workspace(tmp_path: Path, compile_cache: Path) -> None:
    """It is as large as the splits need, and the partial sums are in it afterwards."""
    pack = pack_of(dense("f32"), tmp_path, compile_cache)
    with Session(pack, device="vulkan", facts=idle_device(2)) as session:
        sizes = (3, 5, 2 * BLOCK)
        assert session.workspace_bytes("gemm", *sizes) == 4 * 3 * 5 * 2
        assert session.workspace_bytes("gemm", 64, 64, 2 * BLOCK) == 0
        a, b = integers((3, 512), np.float32, 1), integers((512, 5), np.float32, 2)
        space = session.empty((2, 3, 5), "f32")
        c = session.gemm(session.array(a), session.array(b), workspace=space)
        np.testing.assert_array_equal(c.numpy(), a @ b)
        halves = np.stack([a[:, :256] @ b[:256], a[:, 256:] @ b[256:]])
        np.testing.assert_array_equal(space.numpy(), halves)


@pytest.mark.device("vulkan")
def test_a_split_candidate_is_proven_and_timed_as_it_is_launched(
    tmp_path: Path, compile_cache: Path
) -> None:
    tiles = (TILE, replace(TILE, m=8, n=8))
    pack = tmp_path / "pack"
    write_pack(built(source(dense("f32"), *tiles), "vulkan", compile_cache), pack)
    facts = idle_device(4)
    with Session(pack, device="vulkan", facts=facts, tuning="first_use", budget_ms=6e5) as session:
        choice = session.choose("gemm", 16, 16, 4 * BLOCK)
        assert choice.source == "timed"
        assert choice.failures == {}
        assert len(choice.medians) == 2
        splits = {v.record.tile: v.splits for v in choice.verdicts}
        assert splits == {tiles[0]: 4, tiles[1]: 1}
