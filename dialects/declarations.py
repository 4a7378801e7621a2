"""What an author may state about a kernel (seed section 1). Absence states nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .errors import DeclarationError, ExpressionError
from .expressions import Expression
from .member import Member, Tile

BACKENDS = ("cpu", "cuda", "rocm", "vulkan")
HoldCause = Literal["unlowered", "unbounded", "spills"]
HOLD_CAUSES: tuple[HoldCause, ...] = ("unlowered", "unbounded", "spills")
DEFAULT_INSTANTIATE_MAX = 8
MOST = (1 << 31) - 1  # of any bound: it becomes an i32 attribute


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Structural ceiling on a launch; expressions over the member's parameters and ``wave``."""

    max_threads: Expression | None = None
    max_waves: Expression | None = None
    min_resident: Expression | None = None
    max_registers: Expression | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The occupancy declaration of one member in numbers; None states nothing."""

    max_threads: int | None = None
    min_resident: int | None = None
    max_registers: int | None = None


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Permission for a gate to stay quiet, tied to the plan item that tracks the cause.

    Without ``tracked`` it holds nothing. Empty ``backends`` or ``members`` mean all of them.
    """

    cause: HoldCause
    tracked: str
    backends: tuple[str, ...] = ()
    members: tuple[str, ...] = ()

    def covers(self, backend: str, *names: str) -> bool:
        """Whether the hold is about a record on ``backend`` that goes by one of ``names``."""
        on_backend = not self.backends or backend in self.backends
        return on_backend and (not self.members or any(n in self.members for n in names))


@dataclass(frozen=True, kw_only=True)
class Declarations:
    """Everything the ``xpu.*`` attributes of one kernel say.

    ``reference`` names the function of the same module that says what a kernel in
    cooperative-matrix IR computes.
    """

    dims: tuple[str, ...]
    occupancy: Occupancy = Occupancy()
    wave_width: int | None = None
    fast_math: bool = False
    members: tuple[Member, ...] = ()
    requires: Expression | None = None
    reference: str | None = None
    holds: tuple[Hold, ...] = ()


def check_requires(
    requires: Expression | None, member: Member, backend: str, wave: int, *, where: str | None
) -> None:
    """Check ``xpu.requires`` for one member on one backend (seed section 1, ``@Requires``).

    Raises:
        DeclarationError: the expression is false, or names something unbound; the text names the
            member and the expression.
    """
    if requires is None:
        return
    values = expression_values(member, wave)
    try:
        holds = requires.evaluate(values)
    except ExpressionError as error:
        raise DeclarationError(f"requires of member {member.name}: {error}", where=where) from None
    if not holds:
        raise DeclarationError(
            f"member {member.name} on {backend}: requires '{requires}' is false", where=where
        )


def member_limits(occupancy: Occupancy, tile: Tile, wave: int, *, where: str | None) -> Limits:
    """``xpu.occupancy`` for one member on a target whose waves have ``wave`` lanes.

    An expression that comes to 0 states nothing for that member: it names a parameter, such as
    ``waves_m``, that the member does not have. ``max_waves`` is the same bound in waves.

    Raises:
        DeclarationError: a negative bound, or one that cannot be evaluated; with the member's name.
    """
    values = {**tile.values(), "wave": wave}

    def number(name: str, scale: int = 1) -> int | None:
        expression: Expression | None = getattr(occupancy, name)
        if expression is None:
            return None
        try:
            value = expression.evaluate(values)
        except ExpressionError as error:
            text = f"occupancy.{name} of member {tile.name}: {error}"
            raise DeclarationError(text, where=where) from None
        if not 0 <= value * scale <= MOST:
            raise DeclarationError(
                f"member {tile.name}: occupancy.{name} '{expression}' is {value}, "
                f"not within 0 and {MOST // scale}",
                where=where,
            )
        return value * scale or None

    threads = number("max_threads") if occupancy.max_threads else number("max_waves", wave)
    return Limits(
        max_threads=threads,
        min_resident=number("min_resident"),
        max_registers=number("max_registers"),
    )


def expression_values(member: Member, wave: int) -> Mapping[str, int]:
    """The names an expression of a declaration may use."""
    return {**member.tile.values(), "wave": wave}
