"""Operand groups: which tiles meet in a multiply-accumulate, and the tier that all of them get.

Pure: a tile is a number here, whatever it is in the IR (design section 3; seed section 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .operands import OperandGroup, Tier


@dataclass(frozen=True, kw_only=True)
class MultiplyAdd:
    """acc[m, n] += a[m, k] * b[k, n] by element types; no ``shape`` where the body chooses it."""

    a: str
    b: str
    acc: str
    shape: tuple[int, ...] | None = None

    @property
    def text(self) -> str:
        """``f16*f16->f32 16x16x16``."""
        types = f"{self.a}*{self.b}->{self.acc}"
        return f"{types} {'x'.join(map(str, self.shape))}" if self.shape else types


@dataclass(frozen=True, kw_only=True)
class TileGroup:
    """Tiles that share a fate: the distinct products they meet in, in program order.

    ``uses`` names what else is done with a whole tile: elementwise operations, say.
    """

    multiplies: tuple[MultiplyAdd, ...]
    uses: tuple[str, ...] = ()


class _Sets:
    """Disjoint sets of numbers, by union and find."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def find(self, item: int) -> int:
        """The representative of a number's set: its least member."""
        root = item
        while self._parent.setdefault(root, root) != root:
            root = self._parent[root]
        while self._parent[item] != root:
            self._parent[item], item = root, self._parent[item]
        return root

    def union(self, items: Iterable[int]) -> None:
        """Make one set of those of all the numbers."""
        roots = sorted({self.find(i) for i in items})
        for root in roots[1:]:
            self._parent[root] = roots[0]


def group_tiles(links: Iterable[Sequence[int]]) -> dict[int, int]:
    """The group of each tile, by the group's least tile. Each link holds tiles of one group."""
    sets = _Sets()
    tiles: dict[int, None] = {}
    for link in links:
        tiles.update(dict.fromkeys(link))
        sets.union(link)
    return {tile: sets.find(tile) for tile in tiles}


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """What a target can do with whole tiles.

    ``instruction`` gives name and shape of the instruction for exactly a product, or why there is
    none; ``obstacle`` says why another use has no native form, or None when it has one.
    ``one_layout`` says that a tile lies in registers as its instruction wants it, so that it cannot
    meet in two different ones.
    """

    instruction: Callable[[MultiplyAdd], tuple[str, tuple[int, ...]] | str]
    obstacle: Callable[[str], str | None]
    one_layout: bool = False


def select_tiers(groups: Sequence[TileGroup], matrices: Matrices) -> list[tuple[OperandGroup, ...]]:
    """For each group its records, one a distinct product, all of one tier.

    A group is native when the target has an instruction for every product in it and a native form
    of every other use; a straddling one is demoted whole.
    """
    return [_tiered(group, matrices) for group in groups]


def _tiered(group: TileGroup, matrices: Matrices) -> tuple[OperandGroup, ...]:
    found = {m: matrices.instruction(m) for m in group.multiplies}
    native = {m: f for m, f in found.items() if not isinstance(f, str)}
    against = [f for f in found.values() if isinstance(f, str)]
    against += [why for use in group.uses if (why := matrices.obstacle(use)) is not None]
    if matrices.one_layout and len(native) > 1:
        against.append("its tiles would lie differently in each instruction")
    if not against:
        return tuple(
            _record(m, shape, "native", name, f"the target lists {name}")
            for m, (name, shape) in native.items()
        )
    reason = against[0]
    if native:
        reason = f"demoted whole, though {next(iter(native)).text} is listed: {reason}"
    return tuple(_record(m, m.shape, "software", None, reason) for m in found)


def _record(
    multiply: MultiplyAdd,
    shape: tuple[int, ...] | None,
    tier: Tier,
    instruction: str | None,
    reason: str,
) -> OperandGroup:
    return OperandGroup(
        a=multiply.a,
        b=multiply.b,
        acc=multiply.acc,
        shape=shape,
        tier=tier,
        instruction=instruction,
        reason=reason,
    )
