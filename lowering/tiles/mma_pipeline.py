"""The loop over K: a ring of stages filled by ``cp.async``, or two stages filled from registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .mma_copy import AsyncCopy, HeldCopy, OperandCopy
from .mma_fragments import Fragments, Multiplier
from .mma_shape import MmaShape
from .ptx_text import PtxText, Word


@dataclass(frozen=True, kw_only=True)
class Staging:
    """How one operand gets into workgroup memory and out of it; ``base`` is its part of a stage."""

    base: Word
    copy: OperandCopy
    fragments: Fragments


@dataclass(frozen=True, kw_only=True)
class Loop:
    """What both pipelines work on; ``shared`` is the address of the first of the stages."""

    ir: PtxText
    shape: MmaShape
    k: Word
    shared: Word
    stage_bytes: int
    a: Staging
    b: Staging

    @property
    def tiles(self) -> Word:
        """Tiles along K."""
        return self.ir.ceildiv_w(self.k, self.shape.tile.k)

    def zeros(self) -> list[str]:
        """The sums before the first tile: four for each 16 x 8 block of a wave."""
        count = self.shape.wave_m * self.shape.wave_n // 32
        return [self.ir.constant(0, self.shape.accumulator)] * count

    def load(self, slot: Word, step: int) -> tuple[list[list[str]], list[list[str]]]:
        """Fragments of A and B at one step of the tile in ``slot``."""
        ir = self.ir
        return (
            self.a.fragments.load(ir.add_w(slot, self.a.base), step),
            self.b.fragments.load(ir.add_w(slot, self.b.base), step),
        )

    def next_slot(self, slot: str) -> str:
        """The stage after this one."""
        ir = self.ir
        following = ir.add_w(slot, self.stage_bytes)
        end = ir.add_w(self.shared, self.shape.tile.stages * self.stage_bytes)
        return ir.word(ir.select_w(ir.compare_w("eq", following, end), self.shared, following))


def multiply_async(loop: Loop) -> list[str]:
    """Sums of a wave, with ``stages - 1`` tiles on their way while one is multiplied.

    One barrier a tile. The fragments of a step are loaded while the step before is multiplied, the
    first ones of a tile too: by then every lane has waited for its own copies of that tile, and
    the barrier has shown that all have. The stage that is refilled was last read before the
    barrier of the tile before. What cannot be copied asynchronously waits in registers for one
    tile, and is stored before the barrier.
    """
    ir, shape = loop.ir, loop.shape
    stages = shape.tile.stages
    copies = (loop.a.copy, loop.b.copy)
    sources, k_left, slot = [c.start for c in copies], loop.k, loop.shared
    for stage in range(stages - 1):
        slot = ir.add_w(loop.shared, stage * loop.stage_bytes)
        held = _Held(loop, sources, k_left)
        _Issue(loop, sources, k_left, slot).part(0, 1)
        held.put(slot)
        sources, k_left = _advance(loop, sources, k_left)
    _await_tile(ir, stages - 2)
    fragments = loop.load(loop.shared, 0)
    sums, words = loop.zeros(), _flat(fragments)
    fill = ir.add_w(loop.shared, (stages - 1) * loop.stage_bytes)
    initial = [
        *((s, shape.accumulator) for s in sums),
        *((w, "i32") for w in words),
        *((s, "i64") for s in sources),
        *((ir.word(w), "i32") for w in (k_left, loop.shared, fill)),
    ]

    def k_tile(_: str, carried: list[str]) -> list[str]:
        sums, rest = carried[:loop_sums], carried[loop_sums:]
        a, b = _unflat(rest[: len(words)], fragments)
        (a_source, b_source, k_left, read, fill) = rest[len(words) :]
        held = _Held(loop, [a_source, b_source], k_left)
        issue = _Issue(loop, [a_source, b_source], k_left, fill)
        parts = max(shape.steps - 1, 1)
        for step in range(shape.steps):
            last = step == shape.steps - 1
            if last:
                if parts == shape.steps:
                    issue.part(step, parts)
                held.put(fill)
                _await_tile(ir, stages - 2)
                read = loop.next_slot(read)
            following = loop.load(read, (step + 1) % shape.steps)
            if not last:
                issue.part(step, parts)
            sums = multiplier.step(sums, a, b)
            a, b = following
        moved, k_next = _advance(loop, [a_source, b_source], k_left)
        return [*sums, *_flat((a, b)), *moved, ir.word(k_next), read, loop.next_slot(fill)]

    loop_sums, multiplier = len(sums), Multiplier(ir, shape)
    result = ir.loop_w(0, loop.tiles, 1, initial, k_tile)
    ir.asm("cp.async.wait_group 0;")  # the last ones have filled stages that nothing reads
    return result[:loop_sums]


def multiply_through_registers(loop: Loop) -> list[str]:
    """Sums of a wave: a tile waits in registers while the one before it is multiplied."""
    ir, shape = loop.ir, loop.shape
    sums, multiplier = loop.zeros(), Multiplier(ir, shape)
    sources = [s.copy.start for s in (loop.a, loop.b)]
    _Held(loop, sources, loop.k).put(loop.shared)
    ir.emit("gpu.barrier")
    sources, k_left = _advance(loop, sources, loop.k)
    initial = [
        *((s, shape.accumulator) for s in sums),
        *((s, "i64") for s in sources),
        *((ir.word(w), "i32") for w in (k_left, loop.shared)),
    ]

    def k_tile(_: str, carried: list[str]) -> list[str]:
        sums, (a_source, b_source, k_left, slot) = carried[:-4], carried[-4:]
        held = _Held(loop, [a_source, b_source], k_left)
        for step in range(shape.steps):
            sums = multiplier.step(sums, *loop.load(slot, step))
        other = loop.next_slot(slot)
        held.put(other)
        ir.emit("gpu.barrier")
        moved, k_next = _advance(loop, [a_source, b_source], k_left)
        return [*sums, *moved, ir.word(k_next), other]

    return ir.loop_w(0, loop.tiles, 1, initial, k_tile)[: len(sums)]


class _Held:
    """What of one tile goes through registers: on its way from here to :meth:`put`."""

    def __init__(self, loop: Loop, sources: Sequence[str], k_left: Word) -> None:
        self._ir = loop.ir
        self._jobs = [
            (staging.base, staging.copy, staging.copy.fetch(source, staging.copy.left(k_left)))
            for staging, source in zip((loop.a, loop.b), sources, strict=True)
            if isinstance(staging.copy, HeldCopy)
        ]

    def put(self, slot: Word) -> None:
        """Store it in a stage."""
        for base, copy, words in self._jobs:
            copy.put(words, self._ir.add_w(slot, base))


class _Issue:
    """The asynchronous copies of one tile, issued in parts between multiplications."""

    def __init__(self, loop: Loop, sources: Sequence[str], k_left: Word, slot: Word) -> None:
        ir = loop.ir
        self._ir = ir
        self._jobs: list[tuple[int, Callable[[range], None]]] = []
        for staging, source in zip((loop.a, loop.b), sources, strict=True):
            copy = staging.copy
            if isinstance(copy, AsyncCopy):
                self._add(copy, source, copy.left(k_left), ir.add_w(slot, staging.base))

    def _add(self, copy: AsyncCopy, source: str, left: tuple[str, str], slot: Word) -> None:
        address = [source]

        def passes(which: range) -> None:
            address[0] = copy.issue(address[0], slot, left, which)

        self._jobs.append((copy.count, passes))

    def part(self, index: int, parts: int) -> None:
        """Issue one of ``parts`` parts; the last one closes the tile's group."""
        for count, passes in self._jobs:
            passes(range(count * index // parts, count * (index + 1) // parts))
        if index == parts - 1:
            self._ir.asm("cp.async.commit_group;")


def _advance(loop: Loop, sources: Sequence[str], k_left: Word) -> tuple[list[str], Word]:
    copies = (loop.a.copy, loop.b.copy)
    moved = [c.advance(s) for c, s in zip(copies, sources, strict=True)]
    return moved, loop.ir.sub_w(k_left, loop.shape.tile.k)


def _await_tile(ir: PtxText, pending: int) -> None:
    ir.asm(f"cp.async.wait_group {pending};")
    ir.emit("gpu.barrier")


def _flat(fragments: tuple[list[list[str]], list[list[str]]]) -> list[str]:
    return [word for operand in fragments for quad in operand for word in quad]


def _unflat(
    words: Sequence[str], like: tuple[list[list[str]], list[list[str]]]
) -> tuple[list[list[str]], list[list[str]]]:
    quads = [list(words[i : i + 4]) for i in range(0, len(words), 4)]
    return quads[: len(like[0])], quads[len(like[0]) :]
