"""Each AMD instruction's map of lanes to elements is the one that IREE's compiler has."""

from __future__ import annotations

import numpy as np
import pytest

from lowering.instructions import INSTRUCTIONS, Instruction
from lowering.tiles.amd_fragments import fragment_of
from matrix_lanes import Held, intrinsics, lanes_named

AMD = [i for i in INSTRUCTIONS if i.family.startswith("gfx")]
_SPELT = {"u8": "I8"}


def iree_name(instruction: Instruction) -> str:
    """What IREE calls an instruction; it has one name for both signs of bytes."""
    family = {"gfx11": "WMMAR3", "gfx12": "WMMAR4"}.get(instruction.family[:5], "MFMA")
    a, _, acc = (_SPELT.get(t, t.upper()) for t in instruction.types)
    m, n, k = instruction.shape
    return f"{family}_{acc}_{m}x{n}x{k}_{a}"


@pytest.mark.parametrize("instruction", AMD, ids=lambda i: f"{i.family}-{i.name}-{i.types[0]}")
def test_maps_are_the_compilers(instruction: Instruction) -> None:
    """Rows, columns and k of every lane's every element, in their order."""
    fragment = fragment_of(instruction)
    assert iree_name(instruction) in intrinsics()
    lanes = lanes_named(iree_name(instruction), fragment.wave)
    lane = np.arange(fragment.wave)[:, None]
    across, group = lane % fragment.m, lane // fragment.m
    k = (group % fragment.k_lanes) * fragment.k_run + np.arange(fragment.k_run)
    same(lanes.a, across, k, (fragment.m, fragment.k))
    same(lanes.b, k, across, (fragment.k, fragment.n))
    rows = group * fragment.row_run + np.array([fragment.row(e) for e in range(fragment.sums)])
    same(lanes.c, rows, across, (fragment.m, fragment.n))


def same(held: Held, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> None:
    """The compiler's answer is these places."""
    assert held.shape == shape
    np.testing.assert_array_equal(held.rows, np.broadcast_to(rows, held.rows.shape))
    np.testing.assert_array_equal(held.columns, np.broadcast_to(columns, held.columns.shape))


@pytest.mark.parametrize("instruction", AMD, ids=lambda i: f"{i.family}-{i.name}-{i.types[0]}")
def test_every_element_of_a_result_has_one_lane(instruction: Instruction) -> None:
    """No sum is stored twice, none is lost."""
    fragment = fragment_of(instruction)
    held = lanes_named(iree_name(instruction), fragment.wave).c
    places = set(zip(held.rows.ravel().tolist(), held.columns.ravel().tolist(), strict=True))
    assert len(places) == fragment.m * fragment.n == held.rows.size


def test_a_wrong_map_is_seen() -> None:
    """The comparison can fail: RDNA 3 and 4 hold different rows."""
    third, fourth = (
        lanes_named(f"{family}_F32_16x16x16_F16", 32) for family in ("WMMAR3", "WMMAR4")
    )
    assert not np.array_equal(third.c.rows, fourth.c.rows)
    assert third.a.rows.shape != fourth.a.rows.shape
