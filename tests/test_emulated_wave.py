"""Workgroup memory of the PTX emulator: who sees what of whom, and after which barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from emulated_wave import LANES, RANK_SHIFT, SHARED_BASE, WAVE, Array, Fault, Wave, Workgroup

PLACE = np.arange(2 * WAVE).reshape(WAVE, 2)  # two bytes a lane
FIRST = np.full(WAVE, SHARED_BASE)


def waves(groups: int = 1) -> list[Wave]:
    """Two of each workgroup of a cluster."""
    made = [
        Workgroup(constants=(), buffers=(), number=(rank, 0, 0), eager=True)
        for rank in range(groups)
    ]
    for group in made:
        group.allocate(PLACE.size)
        group.cluster = made
    return [Wave(group, index) for group in made for index in range(2)]


def put(wave: Wave, *, turned: bool = False) -> None:
    """Each lane its own bytes, or those of the lane before it."""
    wave.group.store_shared(wave, np.roll(PLACE, 2 * turned).reshape(PLACE.shape), LANES)


def get(wave: Wave, *, turned: bool = False) -> Array:
    return wave.group.load_shared(wave, np.roll(PLACE, 2 * turned).reshape(PLACE.shape), LANES)


def copy(wave: Wave) -> None:
    """One group of a copy of each lane."""
    wave.copy(PLACE, np.zeros(PLACE.shape, np.uint8), LANES)
    wave.commit()


def afar(wave: Wave, rank: int) -> Array:
    """The first bytes of another workgroup."""
    return wave.group.read_shared(wave, FIRST + (rank + 1 << RANK_SHIFT), 2)


def barrier(*several: Wave, cluster: bool = False) -> None:
    for group in {id(w.group): w.group for w in several}.values():
        group.meet(cluster=cluster)


def written(groups: int = 1, *, cluster: bool = False) -> list[Wave]:
    """Waves of workgroups whose first waves have written all of it, before a barrier."""
    made = waves(groups)
    for wave in made[::2]:
        put(wave)
    barrier(*made, cluster=cluster)
    return made


def _race(first: Callable[[Wave], object], second: Callable[[Wave], object]) -> None:
    one, other = written()
    first(one)
    second(other)


def _in_wave(*steps: Callable[[Wave], object]) -> None:
    one, _ = written()
    for step in steps:
        step(one)


def _turned(wave: Wave) -> None:
    get(wave, turned=True)


def _put_turned(wave: Wave) -> None:
    put(wave, turned=True)


def _wait(wave: Wave) -> None:
    wave.wait(0)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: get(waves()[0]), "nobody wrote"),
        (lambda: _race(put, get), "reads what another wave writes, no barrier"),
        (lambda: _race(get, put), "writes what another wave uses, no barrier"),
        (lambda: _race(put, put), "writes what another wave uses, no barrier"),
        (lambda: _in_wave(put, _turned), "reads what another lane writes, no sync of the wave"),
        (lambda: _in_wave(get, _put_turned), "writes what another lane uses, no sync of the wave"),
        (lambda: _in_wave(put, _put_turned), "writes what another lane uses, no sync of the wave"),
        (lambda: _in_wave(copy, get), "a copy that is on its way"),
        (lambda: _in_wave(copy, put), "where a copy is on its way to"),
        (lambda: _in_wave(copy, _wait, _turned), "reads what another lane writes, no sync"),
        (lambda: _in_wave(copy, _wait, _put_turned), "writes what another lane uses, no sync"),
        (
            lambda: _in_wave(lambda w: w.group.store_shared(w, PLACE // 2, LANES)),
            "two lanes write one byte",
        ),
        (lambda: _in_wave(Wave.arrive, Wave.arrive), "arrives twice"),
    ],
)
def test_faults(fault: Callable[[], object], message: str) -> None:
    with pytest.raises(Fault, match=message):
        fault()


@pytest.mark.parametrize(
    "steps",
    [
        (put, get, put),
        (put, Wave.sync, _turned, get, Wave.sync, _put_turned),
        (copy, _wait, get, Wave.sync, _turned, Wave.sync, put),
    ],
)
def test_a_wave_that_meets_itself(steps: Sequence[Callable[[Wave], object]]) -> None:
    """A lane knows what it has done itself; the others' after a sync."""
    _in_wave(*steps)


def test_waves_that_meet() -> None:
    """A sync of one wave is none with another; a barrier is."""
    one, other = written()
    get(one)
    get(other)
    for wave in (one, other):
        wave.sync()
    with pytest.raises(Fault, match="writes what another wave uses"):
        put(one)
    barrier(one)
    put(one)
    barrier(one)
    get(other, turned=True)


def test_bytes_that_several_lanes_read_at_once() -> None:
    """None of them may write there before they meet, not even the last that reads."""
    one, _ = written()
    one.group.load_shared(one, np.zeros((WAVE, 1), np.int64), LANES)
    last = WAVE - 1
    with pytest.raises(Fault, match="writes what another lane uses"):
        one.group.store_shared(one, np.zeros((1, 1), np.int64), LANES[last:])
    one.sync()
    one.group.store_shared(one, np.zeros((1, 1), np.int64), LANES[last:])


def test_workgroups_that_meet() -> None:
    """What a workgroup wrote is another's after a barrier of the cluster, and not to be changed."""
    made = written(2)
    with pytest.raises(Fault, match="no barrier of the cluster"):
        afar(made[0], 1)
    barrier(*made, cluster=True)
    assert np.array_equal(afar(made[0], 1), np.full((WAVE, 2), 0xFF))
    barrier(made[2])
    with pytest.raises(Fault, match="writes what another workgroup reads"):
        put(made[2])
    barrier(*made, cluster=True)
    put(made[2])


def test_nothing_is_read_of_others_after_the_arrival() -> None:
    made = written(2, cluster=True)
    made[0].arrive()
    afar(made[2], 0)
    with pytest.raises(Fault, match="after its own arrival"):
        afar(made[0], 1)
    assert afar(made[0], 0).shape == (WAVE, 2)  # its own
