"""The pass ``instantiate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

from dialects.declarations import Hold, check_requires
from dialects.errors import Error, UnsupportedError, UsageError
from dialects.member import Member, Tile
from dialects.operands import TIERS, Contraction

from .. import attributes
from ..coop_source import is_coop, read_coop_source
from ..ir import functions, location, mlir, symbol, to_attribute
from ..pipeline import Report, Unlowered
from ..target import Target, parse_target, with_wave
from ..tiles import BODIES, FRAGMENT_BODIES, ON_REQUEST, Body, body_named, refusal_of

Refusal = Callable[[Tile, Target], str | None]


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

    def _asks_for(self, body: Body) -> bool:
        return self.tier in ("", body.tier) and self.body in ("", body.name)

    def _expand(self, function: mlir.Operation, target: Target, where: str, report: Report) -> None:
        declared = attributes.declarations(function, where=where)
        contraction = attributes.contraction_of(function, where=where)
        target = with_wave(target, declared.wave_width, where=where)
        kernel = symbol(function)
        offers = _offers(function, contraction, declared.wave_width, where)
        made: set[str] = set()
        reasons: list[str] = []
        for member in declared.members:
            if not member.allows(target.backend):
                continue
            check_requires(declared.requires, member, target.backend, target.wave, where=where)
            bodies, refusals = self._bodies(member, offers, target, where)
            for body in bodies:
                name = f"{kernel}__{member.name}__{body.name}"
                if name not in made:  # entries may meet in one tile and body
                    self._clone(function, name, kernel, member, body)
                made.add(name)
            if not bodies:
                reasons.append(f"member {member.name}: {'; '.join(dict.fromkeys(refusals))}")
        if not made:
            why = "; ".join(reasons) or "xpu.instantiate lists no member for this backend"
            what = f"no member can be built for {target.name}: {why}"
            hold = _unlowered(declared.holds, target.backend)
            if hold is None:
                raise UnsupportedError(f"kernel '{kernel}': {what}", where=where)
            report.unlowered.append(Unlowered(kernel=kernel, reason=what, holds=declared.holds))
        for reason in reasons:
            report.note(f"{kernel} on {target.name}: {reason}")
        function.erase()

    def _bodies(
        self, member: Member, offers: list[tuple[Body, Refusal]], target: Target, where: str
    ) -> tuple[list[Body], list[str]]:
        """The bodies that serve a member, and why the others do not.

        Raises:
            UnsupportedError: the member names its body, and that one cannot serve it.
        """
        only = body_named(member.body, where=where) if member.body is not None else None
        backends: set[str] = set()
        bodies: list[Body] = []
        refusals: list[str] = []
        for body, refuse in offers:
            if member.body not in (None, body.name):
                continue
            if body in ON_REQUEST and body.name not in (self.body, member.body):
                continue
            if target.backend not in body.backends:
                backends.update(body.backends)
                continue
            if not self._asks_for(body):
                refusals.append(f"{body.name} was not asked for")
                continue
            refusal = refuse(member.tile, target)
            if refusal is None:
                bodies.append(body)
            else:
                refusals.append(refusal)
        if only is not None and not bodies and self._asks_for(only):
            why = refusals[0] if refusals else f"body {only.name} does not serve {target.backend}"
            raise UnsupportedError(f"member {member.name}: {why}", where=where)
        return bodies, refusals or [f"no body serves it, there are some for {sorted(backends)}"]

    def _clone(
        self, function: mlir.Operation, name: str, kernel: str, member: Member, body: Body
    ) -> None:
        copy = function.clone(mlir.InsertionPoint(function))
        copy.attributes["sym_name"] = to_attribute(name)
        for key in ("instantiate", "instantiate_max"):
            if f"xpu.{key}" in copy.attributes:
                del copy.attributes[f"xpu.{key}"]
        attributes.put(copy, "family", kernel)
        attributes.put(copy, "tile", member.tile)
        attributes.put(copy, "body", body.name)


def _unlowered(holds: tuple[Hold, ...], backend: str) -> Hold | None:
    """The hold that lets a whole kernel have no code on a backend."""
    for hold in holds:
        whole = hold.tracked and not hold.members and hold.covers(backend)
        if hold.cause == "unlowered" and whole:
            return hold
    return None


def _offers(
    function: mlir.Operation, contraction: Contraction, wave: int | None, where: str
) -> list[tuple[Body, Refusal]]:
    """The bodies for the form that a kernel is written in, and how each refuses."""
    if not is_coop(function):
        return [(body, partial(refusal_of, body, contraction)) for body in (*BODIES, *ON_REQUEST)]
    source = read_coop_source(function, contraction, wave)
    groups = attributes.groups_of(function, where=where)
    return [(body, partial(body.refusal, source, groups)) for body in FRAGMENT_BODIES]
