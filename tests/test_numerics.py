"""Every candidate of every sample computes exactly what it should, on every device that is here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from packs import SAMPLES, Packs
from problems import DEVICES, answer, call, candidates, candidates_at, integers, sizes_of
from runtime import DeviceArray, Session

EDGES = (1, 2, 15, 37, 130, 514)
PRIMES = ((7, 13, 31), (97, 89, 101), (257, 263, 269), (1, 509, 3), (503, 1, 5))
ZEROS = ((0, 8, 8), (8, 0, 8), (0, 0, 8), (0, 0, 0))
FEW = (
    *((1, 1, 1), (2, 2, 2), (37, 15, 7), (15, 37, 130), (129, 65, 33), (130, 514, 500)),
    *((1, 514, 2), (514, 1, 15), (97, 89, 101), *ZEROS),
)
WHOLE = ((16, 16, 16), (48, 80, 48), (144, 528, 32), (1, 16, 144))  # what wide copies take
POISON = np.float32(np.nan)


@pytest.fixture(scope="module", params=DEVICES)
def session(request: pytest.FixtureRequest, packs: Packs) -> Iterator[Session]:
    """A session with all samples that never times."""
    with Session(packs.paths, device=request.param, tuning="off") as opened:
        yield opened


@pytest.fixture(params=list(SAMPLES))
def kernel(request: pytest.FixtureRequest) -> str:
    """Each sample's kernel."""
    return request.param


def shapes(session: Session) -> Sequence[tuple[int, int, int]]:
    """M, N, K that divide no tile; all on one driver, fewer where it is only another driver."""
    if session.device.uri == "local-sync":
        return (*itertools.product(EDGES, EDGES, EDGES), *PRIMES, *ZEROS)
    return (*FEW, *PRIMES) if session.device.backend == "cpu" else FEW


def check(session: Session, kernel: str, m: int, n: int, k: int, batch: int = 2) -> None:
    """Exact equality for every candidate, on an output full of NaN."""
    sizes = sizes_of(session, kernel, m, n, k, batch)
    operands = integers(session, kernel, sizes)
    expected = answer(kernel, operands)
    for name in candidates_at(session, kernel, sizes):
        session.override(kernel, name)
        out = np.full(expected.shape, POISON)
        assert call(session, kernel, *operands, out=out) is out
        np.testing.assert_array_equal(out, expected, err_msg=f"{name} at {m}x{n}x{k}")


def test_sizes_that_divide_nothing(session: Session, kernel: str) -> None:
    """Edges of every tile, alone and in every combination."""
    for m, n, k in shapes(session):
        check(session, kernel, m, n, k)


def test_sizes_of_whole_copies(session: Session, kernel: str) -> None:
    """Candidates that copy several elements at a time run too: none is left out for its needs."""
    for m, n, k in WHOLE:
        sizes = sizes_of(session, kernel, m, n, k)
        refusals = [v.refusal for v in session.explain(kernel, *sizes).verdicts]
        assert "alignment" not in {r.rule for r in refusals if r}
        check(session, kernel, m, n, k)


def test_no_sum_at_all(session: Session, kernel: str) -> None:
    """K = 0 leaves the epilogue of zero: the bias, clipped, and zeros elsewhere."""
    for m, n in ((8, 8), (1, 1), (130, 37)):
        check(session, kernel, m, n, 0)


def test_one_long_side(session: Session, kernel: str) -> None:
    """Many tiles or blocks and a remainder, in each direction."""
    length = 70001 if session.device.backend == "cpu" else 7001
    for sizes in ((3, 5, length), (length, 3, 2), (3, length, 2)):
        check(session, kernel, *sizes, batch=1)


def test_batches(session: Session) -> None:
    """None, one and several."""
    for batch in (0, 1, 5):
        check(session, "batch_matmul", 37, 15, 7, batch)


def test_a_workspace_of_the_callers(session: Session, kernel: str) -> None:
    """Nothing of what lies in a workspace reaches the result."""
    sizes = sizes_of(session, kernel, 37, 15, 130)
    operands = integers(session, kernel, sizes)
    space = session.empty((max(1, session.workspace_bytes(kernel, *sizes)),), "u8")
    for name in candidates(session, kernel):
        session.override(kernel, name)
        session.device.poison(space.buffer)
        out = call(session, kernel, *operands, workspace=space)
        np.testing.assert_array_equal(out, answer(kernel, operands), err_msg=name)


def test_nothing_beside_the_result_is_written(session: Session, kernel: str) -> None:
    """The result is a window of a larger array, whose other elements stay."""
    operands = integers(session, kernel, sizes_of(session, kernel, 37, 15, 7))
    expected = answer(kernel, operands)
    for name in candidates(session, kernel):
        session.override(kernel, name)
        whole = np.full([size + 9 for size in expected.shape], np.float32(77))
        inner = tuple(slice(4, -5) for _ in expected.shape)
        call(session, kernel, *operands, out=whole[inner])
        np.testing.assert_array_equal(whole[inner], expected, err_msg=name)
        whole[inner] = 77
        assert np.all(whole == 77), name


def test_nothing_behind_a_device_result_is_written(session: Session, kernel: str) -> None:
    """The buffer is longer than the result, and its end keeps its bytes."""
    operands = integers(session, kernel, sizes_of(session, kernel, 37, 15, 7))
    expected = answer(kernel, operands).astype(np.float32)
    layout = session.empty(expected.shape, "f32").layout
    inputs = [session.array(o) for o in operands]
    for name in candidates(session, kernel):
        session.override(kernel, name)
        buffer = session.device.allocate(expected.nbytes + 4096)
        session.device.poison(buffer)
        out = DeviceArray(session.device, buffer, layout)
        call(session, kernel, *inputs, out=out)
        everything = session.device.download(buffer, (expected.nbytes + 4096,), np.dtype("u1"))
        assert everything[: expected.nbytes].tobytes() == expected.tobytes(), name
        assert np.all(everything[expected.nbytes :] == 0xFF), name


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_row_spoils_no_other(session: Session, kernel: str, value: float) -> None:
    """NaN or infinity in one row of A, or one column of B, stays in that row or column."""
    operands = integers(session, kernel, sizes_of(session, kernel, 37, 45, 19))
    expected = answer(kernel, operands)
    a, b = (o.copy() for o in operands[:2])
    a[..., 17, 3] = value
    if kernel == "matmul_transposed_b":
        b[11, 5] = value
    else:
        b[..., 5, 11] = value
    others = np.delete(np.delete(expected, 17, axis=-2), 11, axis=-1)
    for name in candidates(session, kernel):
        session.override(kernel, name)
        got = call(session, kernel, a, b, *operands[2:])
        kept = np.delete(np.delete(got, 17, axis=-2), 11, axis=-1)
        np.testing.assert_array_equal(kept, others, err_msg=name)
        if np.isnan(value):
            assert np.all(np.isnan(got[..., 17, :])), name
            assert np.all(np.isnan(got[..., 11])), name


def test_a_prepared_operand_gives_the_same(session: Session, kernel: str) -> None:
    """Packed once or each time: the same bits, for B with every size of A."""
    for n, k in ((37, 15), (1, 1), (130, 514), (8, 0)):
        sizes = sizes_of(session, kernel, 1, n, k)
        b = session.prepare(kernel, b=integers(session, kernel, sizes)[1])
        for name, m in itertools.product(candidates(session, kernel), (1, 15)):
            session.override(kernel, name)
            operands = integers(session, kernel, sizes_of(session, kernel, m, n, k))
            operands[1] = b.array.numpy()
            got = call(session, kernel, operands[0], b, *operands[2:])
            np.testing.assert_array_equal(got, answer(kernel, operands), err_msg=name)
