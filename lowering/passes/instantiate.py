"""The pass ``instantiate``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from dialects.declarations import check_requires
from dialects.errors import Error, UnsupportedError, UsageError
from dialects.member import Member
from dialects.operands import TIERS, Contraction

from .. import attributes
from ..ir import functions, location, mlir, symbol, to_attribute
from ..pipeline import Report
from ..target import Target, parse_target
from ..tiles import BODIES, ON_REQUEST, TileBody, body_named


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
        self._check_options()
        for function in functions(module):
            if "xpu.contraction" not in function.attributes:
                continue
            where = location(function, report.source)
            try:
                self._expand(function, target, where, report)
            except Error as error:
                report.fail(error)

    def _check_options(self) -> None:
        if self.tier not in ("", *TIERS):
            raise UsageError(f"tier '{self.tier}' is not one of {', '.join(TIERS)}")
        if self.body:
            body_named(self.body)

    def _asks_for(self, body: TileBody) -> bool:
        return self.tier in ("", body.tier) and self.body in ("", body.name)

    def _expand(self, function: mlir.Operation, target: Target, where: str, report: Report) -> None:
        declared = attributes.declarations(function, where=where)
        contraction = attributes.contraction_of(function, where=where)
        kernel = symbol(function)
        made: set[str] = set()
        reasons: list[str] = []
        for member in declared.members:
            if not member.allows(target.backend):
                continue
            check_requires(declared.requires, member, target.backend, target.wave, where=where)
            bodies, refusals = self._bodies(member, contraction, target, where)
            for body in bodies:
                name = f"{kernel}__{member.name}__{body.name}"
                if name not in made:  # entries may meet in one tile and body
                    self._clone(function, name, kernel, member, body)
                made.add(name)
            if not bodies:
                reasons.append(f"member {member.name}: {'; '.join(refusals)}")
        if not made:
            why = "; ".join(reasons) or "xpu.instantiate lists no member for this backend"
            raise UnsupportedError(
                f"kernel '{kernel}': no member can be built for {target.name}: {why}", where=where
            )
        for reason in reasons:
            report.note(f"{kernel} on {target.name}: {reason}")
        function.erase()

    def _bodies(
        self, member: Member, contraction: Contraction, target: Target, where: str
    ) -> tuple[list[TileBody], list[str]]:
        """The bodies that serve a member, and why the others do not.

        Raises:
            UnsupportedError: the member names its body, and that one cannot serve it.
        """
        only = body_named(member.body, where=where) if member.body is not None else None
        bodies: list[TileBody] = []
        refusals: list[str] = []
        asked = [b for b in ON_REQUEST if b.name in (self.body, member.body)]
        for body in (*BODIES, *asked):
            if target.backend not in body.backends or member.body not in (None, body.name):
                continue
            if not self._asks_for(body):
                refusals.append(f"{body.name} was not asked for")
                continue
            refusal = body.refusal(contraction, member.tile, target)
            if refusal is None:
                bodies.append(body)
            else:
                refusals.append(refusal)
        if only is not None and not bodies and self._asks_for(only):
            why = refusals[0] if refusals else f"body {only.name} does not serve {target.backend}"
            raise UnsupportedError(f"member {member.name}: {why}", where=where)
        return bodies, refusals or ["no body serves it"]

    def _clone(
        self, function: mlir.Operation, name: str, kernel: str, member: Member, body: TileBody
    ) -> None:
        copy = function.clone(mlir.InsertionPoint(function))
        copy.attributes["sym_name"] = to_attribute(name)
        for key in ("instantiate", "instantiate_max"):
            if f"xpu.{key}" in copy.attributes:
                del copy.attributes[f"xpu.{key}"]
        attributes.put(copy, "family", kernel)
        attributes.put(copy, "tile", member.tile)
        attributes.put(copy, "body", body.name)
