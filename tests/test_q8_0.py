"""Products with q8_0 weights: exact wherever they run, and refused by name where they cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from dialects.errors import DeviceError, LaunchRefused, OperandError
from dialects.manifest import KernelEntry
from packs import build_pack, with_few_members
from problems import DEVICES, candidates_at, entry_of, q8_0_integers
from runtime import Session
from runtime.blocks import decode_blocks

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples" / "07_matmul_q8_0.mlir"
SHAPES = ((1, 1, 32), (37, 15, 64), (15, 130, 96), (130, 67, 608), (0, 8, 32), (4, 5, 0))


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory, compile_cache: Path) -> Path:
    """The sample with few members, for this processor and Vulkan."""
    folder = tmp_path_factory.mktemp("q8_0")
    kept = {'backends = ["cpu"]': 2, "": 1}
    (folder / SAMPLE.name).write_text(with_few_members(SAMPLE.read_text(), kept))
    build_pack(folder / SAMPLE.name, folder / "pack", compile_cache)
    return folder / "pack"


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, pack: Path) -> Iterator[Session]:
    """A session with that pack that never times."""
    with Session(pack, device=request.param, tuning="off") as opened:
        yield opened


def _operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, raw B, and the exact product."""
    rng = np.random.default_rng(m + n + k)
    a = rng.integers(-3, 4, (m, k)).astype(np.float32)
    raw = q8_0_integers(rng, (n, k))
    return a, raw, a @ decode_blocks(raw, "q8_0").T


def test_every_candidate_is_exact(session: Session) -> None:
    """On an output full of NaN; no tile divides these sizes."""
    for m, n, k in SHAPES:
        a, raw, expected = _operands(m, n, k)
        for name in candidates_at(session, "matmul_q8_0", (m, n, k)):
            session.override("matmul_q8_0", name)
            out = np.full((m, n), np.float32(np.nan))
            session.matmul_q8_0(a, raw, out=out)
            np.testing.assert_array_equal(out, expected, err_msg=f"{name} at {m}x{n}x{k}")


def test_prepared_weights_give_the_same(session: Session) -> None:
    """Decoded and packed once on the CPU, uploaded once elsewhere; signed bytes too."""
    a, raw, expected = _operands(37, 70, 96)
    for name in candidates_at(session, "matmul_q8_0", (37, 70, 96)):
        session.override("matmul_q8_0", name)
        for given in (raw, raw.view(np.int8)):
            weights = session.prepare("matmul_q8_0", b=given)
            for rows in (37, 1):
                got = session.matmul_q8_0(a[:rows], weights)
                np.testing.assert_array_equal(got, expected[:rows], err_msg=name)


def test_bytes_may_lie_anywhere(session: Session) -> None:
    """At an odd address, and in rows further apart than their blocks."""
    a, raw, expected = _operands(5, 7, 64)
    odd = np.zeros(raw.size + 1, np.uint8)
    odd[1:] = raw.reshape(-1)
    wide = np.full((7, raw.shape[1] + 3), 255, np.uint8)
    wide[:, : raw.shape[1]] = raw
    for given in (odd[1:].reshape(raw.shape), wide[:, : raw.shape[1]]):
        for name in candidates_at(session, "matmul_q8_0", (5, 7, 64)):
            session.override("matmul_q8_0", name)
            np.testing.assert_array_equal(session.matmul_q8_0(a, given), expected, err_msg=name)


def test_weights_of_the_reference(session: Session, gguf: ModuleType) -> None:
    """Quantised by the gguf package, multiplied here."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((33, 128), np.float32)
    raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    a = rng.standard_normal((5, 128), np.float32)
    exact = a.astype(np.float64) @ gguf.quants.dequantize(
        raw, gguf.GGMLQuantizationType.Q8_0
    ).T.astype(np.float64)
    np.testing.assert_allclose(session.matmul_q8_0(a, raw), exact, rtol=1e-4, atol=1e-4)


def test_bad_weights_are_refused(session: Session) -> None:
    a = np.ones((3, 64), np.float32)
    where = "kernel 'matmul_q8_0' operand 'b': "
    for bad, message in (
        (
            np.ones((5, 64), np.float32),
            r"type f32, the kernel takes raw bytes \(u8 or i8\) of q8_0",
        ),
        (np.zeros((5, 67), np.uint8), "rows of 67 B are no whole q8_0 blocks of 34 B"),
        (np.zeros(68, np.uint8), r"rank 1, the kernel takes 2 \(NxK\)"),
    ):
        with pytest.raises(OperandError, match=where + message):
            session.matmul_q8_0(a, bad)
        with pytest.raises(OperandError, match=where + message):
            session.prepare("matmul_q8_0", b=bad)
    whole = r"size K is 32 in whole q8_0 blocks, operand 'a' has "
    for k in (64, 33):
        with pytest.raises(OperandError, match=whole + str(k)):
            session.matmul_q8_0(np.ones((3, k), np.float32), np.zeros((5, 34), np.uint8))


def test_k_must_be_whole_blocks(session: Session) -> None:
    session.override("matmul_q8_0", candidates_at(session, "matmul_q8_0", (1, 1, 32))[0])
    with pytest.raises(DeviceError, match="K = 33 is no multiple of 32, 'b' holds whole q8_0"):
        session.choose("matmul_q8_0", 3, 5, 33)
    session.override("matmul_q8_0", None)
    with pytest.raises(LaunchRefused, match=r"K = 33 is no multiple of 32 \(alignment\)"):
        session.choose("matmul_q8_0", 3, 5, 33)
    verdicts = session.explain("matmul_q8_0", 3, 5, 33).verdicts
    here = [v for v in verdicts if v.refusal and v.refusal.rule == "alignment"]
    assert here
    assert {(v.refusal.need, v.refusal.limit) for v in here if v.refusal} == {(32, 33)}


def test_the_manifest_says_what_is_passed(session: Session) -> None:
    entry: KernelEntry = entry_of(session, "matmul_q8_0")
    b = entry.args[1]
    assert (b.type, b.dims, b.source) == ("u8", ("N", "K"), "q8_0")
    assert b.stored_shape({"N": 5, "K": 64}) == (5, 68)
    assert (entry.contraction.b.type, entry.contraction.b.source) == ("f32", "q8_0")
    assert entry.args[0].source is None


def test_candidates_are_proven_and_timed(pack: Path) -> None:
    """Small and at length: the proof makes blocks of its own."""
    with Session(pack, "local-task", tuning="first_use", budget_ms=2e4) as session:
        choice = session.choose("matmul_q8_0", 37, 33, 160)
        assert (choice.source, choice.failures) == ("timed", {})
        assert len(choice.medians) == 3


def test_the_sample_runs() -> None:
    """Compiled, chosen, checked and compared from the command line."""
    command = [sys.executable, "-m", "lowering", "run", str(SAMPLE), "--shape", "37x64x128"]
    done = subprocess.run(
        [*command, "--json", "--budget-ms", "500"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kernel"] == "matmul_q8_0"
    assert report["error"]["relative"] < 1e-5
    assert report["peers"]["numpy"] > 0
