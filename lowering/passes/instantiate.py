"""The pass ``instantiate``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from dialects.declarations import Declarations, check_requires
from dialects.errors import Error, UnsupportedError
from dialects.member import Member
from dialects.operands import Contraction

from .. import attributes
from ..ir import functions, location, mlir, symbol, to_attribute
from ..pipeline import Report
from ..target import Target, parse_target
from ..tiles import BODIES, TileBody, body_named


@dataclass(frozen=True, kw_only=True)
class Instantiate:
    """Make one function of each (member, body) that serves the target.

    ``func.func @f(...) attributes {xpu.instantiate = [{m = 64, n = 64, k = 16, ...}], ...}``
    becomes ``func.func @f__64x64x16_t4x4__software(...) attributes {xpu.body = "software",
    xpu.family = "f", xpu.tile = {m = 64, n = 64, k = 16, ...}}``. ``tier`` and ``body`` restrict.
    """

    name: ClassVar[str] = "instantiate"
    target: str = "cpu"
    tier: str = ""
    body: str = ""
    resolved: Target | None = field(default=None, repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        target = self.resolved or parse_target(self.target)
        for function in functions(module):
            if "xpu.contraction" not in function.attributes:
                continue
            where = location(function, report.source)
            try:
                self._expand(function, target, where, report)
            except Error as error:
                report.fail(error)

    def _expand(self, function: mlir.Operation, target: Target, where: str, report: Report) -> None:
        declared = attributes.declarations(function, where=where)
        contraction = attributes.get(function, "contraction", Contraction, where=where)
        kernel = symbol(function)
        made: list[str] = []
        reasons: list[str] = []
        for member, body in self._pairs(declared, target, where, reasons):
            refusal = body.refusal(contraction, member.tile, target)
            if refusal is not None:
                reasons.append(f"member {member.name}: {refusal}")
                if member.body is not None:
                    raise UnsupportedError(f"kernel '{kernel}': {reasons[-1]}", where=where)
                continue
            made.append(self._clone(function, kernel, member, body))
        if not made:
            why = "; ".join(reasons) or "xpu.instantiate lists no member for this backend"
            raise UnsupportedError(
                f"kernel '{kernel}': no member can be built for {target.name}: {why}", where=where
            )
        for reason in reasons:
            report.note(f"{kernel} on {target.name}: {reason}")
        function.erase()

    def _pairs(
        self, declared: Declarations, target: Target, where: str, reasons: list[str]
    ) -> Iterator[tuple[Member, TileBody]]:
        for member in declared.members:
            if not member.allows(target.backend):
                continue
            check_requires(declared.requires, member, target.backend, target.wave, where=where)
            if member.body is not None:
                body_named(member.body, where=where)
            for body in BODIES:
                if target.backend not in body.backends or member.body not in (None, body.name):
                    continue
                if self.tier not in ("", body.tier) or self.body not in ("", body.name):
                    reasons.append(f"member {member.name}: {body.name} was not asked for")
                    continue
                yield member, body

    def _clone(self, function: mlir.Operation, kernel: str, member: Member, body: TileBody) -> str:
        name = f"{kernel}__{member.name}__{body.name}"
        copy = function.clone(mlir.InsertionPoint(function))
        copy.attributes["sym_name"] = to_attribute(name)
        for key in ("instantiate", "instantiate_max"):
            if f"xpu.{key}" in copy.attributes:
                del copy.attributes[f"xpu.{key}"]
        attributes.put(copy, "family", kernel)
        attributes.put(copy, "tile", member.tile)
        attributes.put(copy, "body", body.name)
        return name
