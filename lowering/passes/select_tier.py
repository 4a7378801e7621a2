"""The pass ``select-tier``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dialects.grouping import select_tiers
from dialects.operands import Contraction, OperandGroup

from .. import attributes
from ..contractions import linalg_groups
from ..instructions import matrices
from ..ir import functions, location, mlir
from ..pipeline import Report
from ..target import Target, parse_target


@dataclass(frozen=True, kw_only=True)
class SelectTier:
    """Give each operand group the tier that its types and shapes have on the target.

    ``xpu.tile_groups = [{multiplies = [{a = "f16", b = "f16", acc = "f32"}]}]`` on a GPU
    with matrix cores for it gains ``xpu.groups = [{a = "f16", b = "f16", acc = "f32", tier =
    "native", shape = [...], ...}]`` and on ``cpu`` the same with ``tier = "software"``. A group of
    several products is native only when all are.
    """

    name: ClassVar[str] = "select-tier"
    target: str = "cpu"
    resolved: Target | None = field(default=None, repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        target = self.resolved or parse_target(self.target)
        for function in functions(module):
            if "xpu.tile_groups" not in function.attributes:
                continue
            where = location(function, report.source)
            tiled = attributes.tile_groups_of(function, where=where)
            groups = [g for rows in select_tiers(tiled, matrices(target)) for g in rows]
            attributes.put(function, "groups", groups)
            for group, multiply in zip(
                groups, (m for t in tiled for m in t.multiplies), strict=True
            ):
                report.note(f"{multiply.text} on {target.name}: {group.tier}, {group.reason}")


def classify(contraction: Contraction, target: Target) -> OperandGroup:
    """The group of a contraction, native when the target lists an instruction for its types."""
    return select_tiers(linalg_groups(contraction), matrices(target))[0][0]
