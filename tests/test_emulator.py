"""The emulator refuses what a device would not notice: each of its checks fires, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dialects.member import Tile
from emulated_ir import Program, Step, changed, constant_uses, with_step, without
from emulated_launch import Case, case_of, check, emulated
from emulated_memory import EmulatorError, Memory
from kernel_emulator import Emulator, Launch
from lowering.builder import dense

SIZES = (40, 24, 40)
GROUP = np.zeros(2, np.int64)
LANES = np.arange(2)


@pytest.fixture(scope="module")
def case() -> Case:
    """A kernel with workgroup memory, barriers and matrix instructions."""
    return case_of(
        "wmma", "rocm:gfx1100", dense("f16"), Tile(m=32, n=32, k=16, waves_m=2, waves_n=1)
    )


def memory(*, shared: bool = True, read_only: bool = False) -> Memory:
    """Eight cells of two bytes."""
    content = np.zeros((1, 16), np.uint8)
    return Memory("here", content, 2, shared=shared, read_only=read_only)


def at(*cells: int) -> np.ndarray:
    """Indices of lanes."""
    return np.array(cells, np.uint64)


def put(place: Memory, *cells: int, epoch: int = 0, lanes: np.ndarray = LANES) -> None:
    """Both lanes store one cell each."""
    place.store(GROUP, at(*cells), np.ones((2, 2), np.uint8), lanes, epoch)


def get(place: Memory, *cells: int, epoch: int = 0) -> np.ndarray:
    """Both lanes load one cell each."""
    return place.load(GROUP, at(*cells), LANES, epoch)


def test_what_lanes_wrote_is_read_after_a_barrier() -> None:
    place = memory()
    put(place, 0, 1)
    assert np.all(get(place, 1, 0, epoch=1) == 1)
    put(place, 1, 0, epoch=2)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda m: get(m, 0, 1), "reads what nobody wrote"),
        (lambda m: (put(m, 0, 1), get(m, 1, 0)), "reads what another lane writes"),
        (lambda m: (put(m, 0, 1), put(m, 1, 0)), "writes what another lane uses"),
        (
            lambda m: (put(m, 0, 1), get(m, 1, 1, epoch=1), put(m, 0, 1, epoch=1)),
            "another lane uses",
        ),
        (lambda m: put(m, 3, 3), "two lanes store one cell"),
        (
            lambda m: (put(m, 0, 1), put(m, 0, 1, epoch=1)),
            "writes over what nobody read",
        ),
        (lambda m: put(m, 7, 8), r"cell 8 \(\+1\) of 8"),
        (lambda m: put(m, 0, 2**64 - 1), "cell 18446744073709551615"),
        (lambda m: m.store(GROUP, at(0, 1), np.ones((2, 4), np.uint8), LANES, 0), "one cell"),
        (
            lambda m: m.store(GROUP, at(0, 3), np.ones((2, 4), np.uint8), LANES, 0, alignment=4),
            "not aligned to 4 B",
        ),
        (lambda m: put(memory(shared=False, read_only=True), 0, 1), "is only read"),
    ],
)
def test_faults_of_memory(fault: Callable[[Memory], object], message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        fault(memory())


def test_zeros_that_nobody_read_may_be_written_over() -> None:
    """What stands for the outside of an operand in a tile after the last."""
    place = memory()
    place.store(GROUP, at(0, 1), np.zeros((2, 2), np.uint8), LANES, 0)
    put(place, 0, 1, epoch=1)


def test_an_alignment_that_nobody_promised(case: Case) -> None:
    """A caller's buffer is aligned to its element, or to the unit that the body asks for."""
    (bound, *_) = (s for s in case.program.steps() if s.name == "hal.interface.binding.subspan")
    more = replace(bound, attributes={**bound.attributes, "alignment": 32})
    with pytest.raises(EmulatorError, match="nobody promised more than 16 B"):
        check(case, SIZES, program=with_step(case.program, bound, [more]))


def test_a_launch_constant_that_is_not_there(case: Case) -> None:
    loads = [s for s in case.program.steps() if s.name == "hal.interface.constant.load"]
    other = replace(loads[0], attributes={**loads[0].attributes, "ordinal": len(loads)})
    with pytest.raises(EmulatorError, match=f"constant {len(loads)} of {len(loads)}"):
        check(case, SIZES, program=with_step(case.program, loads[0], [other]))


def test_a_barrier_that_separates_nothing_is_known(case: Case) -> None:
    """All of this kernel's are needed; one put right before another is not."""
    assert {id(s) for s in case.program.steps() if s.name == "gpu.barrier"} == emulated(
        case, SIZES
    ).needed
    first = next(s for s in case.program.steps() if s.name == "gpu.barrier")
    again = replace(first)
    doubled = with_step(case.program, first, [first, again])
    assert id(again) not in emulated(case, SIZES, program=doubled).needed


def test_a_right_kernel_passes(case: Case) -> None:
    """Three tiles along K, one instruction each of a wave's two columns."""
    assert check(case, SIZES, slack=8) == 3 * 2


def test_every_barrier_is_needed(case: Case) -> None:
    """Without it a lane reads what another one writes."""
    barriers = [s for s in case.program.steps() if s.name == "gpu.barrier"]
    assert len(barriers) == 2
    for barrier in barriers:
        with pytest.raises(EmulatorError, match="another lane"):
            check(case, SIZES, program=without(case.program, barrier))


def test_every_store_is_needed(case: Case) -> None:
    """In workgroup memory it is missed when it is read, in the result by comparison."""
    stores = [s for s in case.program.steps() if s.name.endswith(".store")]
    for store in stores:
        with pytest.raises(EmulatorError, match=r"nobody wrote|bytes differ"):
            check(case, SIZES, program=without(case.program, store))


def test_some_lanes_at_a_barrier(case: Case) -> None:
    """A barrier moved into the branch of an edge."""
    (barrier, *_) = (s for s in case.program.steps() if s.name == "gpu.barrier")
    block = case.program.block
    last = max(i for i, s in enumerate(block.steps) if s.name == "scf.if")
    edge = block.steps[last]
    body = replace(edge.bodies[0], steps=(barrier, *edge.bodies[0].steps))
    steps = (*block.steps[:last], replace(edge, bodies=(body,)), *block.steps[last + 1 :])
    with pytest.raises(EmulatorError, match=r"some lanes do not meet gpu\.barrier"):
        check(case, SIZES, program=Program(replace(block, steps=steps), case.program.count))


def test_an_unknown_operation(case: Case) -> None:
    step = Step("gpu.unheard_of", (), (), (), ())
    block = replace(case.program.block, steps=(step,))
    with pytest.raises(EmulatorError, match=r"no emulation of gpu\.unheard_of"):
        Emulator(
            Program(block, 0),
            Launch(grid=(1, 1, 1), threads=1, wave=1, constants=(), buffers=(), spans=()),
        )


def test_a_constant_is_changed_where_it_is_used(case: Case) -> None:
    """One use of many: the others keep the value."""
    uses = constant_uses(case.program)
    use = next(u for u in uses if u.step.name == "scf.for" and u.operand == 2)
    assert use.text == "scf.for operand 2 = 16"
    other = changed(case.program, use, 32)
    assert [u.text for u in constant_uses(other)].count("scf.for operand 2 = 32") == 1
    assert len(constant_uses(other)) == len(uses)
    with pytest.raises(EmulatorError):
        check(case, SIZES, program=other)
