"""The pass ``select-tier``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dialects.operands import Contraction, OperandGroup

from .. import attributes
from ..instructions import native_instruction
from ..ir import functions, location, mlir
from ..pipeline import Report
from ..target import Target, parse_target


@dataclass(frozen=True, kw_only=True)
class SelectTier:
    """Give each operand group the tier its types have on the target.

    ``xpu.contraction = {a = {type = "f16"}, ...}`` on a GPU with matrix cores for it gains
    ``xpu.groups = [{a = "f16", b = "f16", acc = "f32", tier = "native", shape = [...], ...}]``
    and on ``cpu`` the same with ``tier = "software"``.
    """

    name: ClassVar[str] = "select-tier"
    target: str = "cpu"
    resolved: Target | None = field(default=None, repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        target = self.resolved or parse_target(self.target)
        for function in functions(module):
            if "xpu.contraction" not in function.attributes:
                continue
            where = location(function, report.source)
            contraction = attributes.contraction_of(function, where=where)
            group = classify(contraction, target)
            attributes.put(function, "groups", [group])
            report.note(f"{contraction.signature} on {target.name}: {group.tier}, {group.reason}")


def classify(contraction: Contraction, target: Target) -> OperandGroup:
    """The group of a contraction, native when the target lists an instruction for its types."""
    a, b, acc = contraction.a.type, contraction.b.type, contraction.accumulator
    instruction = native_instruction(target, a, b, acc)
    if instruction is None:
        reason = f"no matrix instruction for {contraction.signature}"
        return OperandGroup(a=a, b=b, acc=acc, tier="software", reason=reason)
    return OperandGroup(
        a=a,
        b=b,
        acc=acc,
        shape=instruction.shape,
        tier="native",
        instruction=instruction.name,
        reason=f"the target lists {instruction.name}",
    )
