"""What an author may state about a kernel (seed section 1). Absence states nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .errors import DeclarationError, ExpressionError
from .expressions import Expression
from .member import Member

BACKENDS = ("cpu", "cuda", "rocm", "vulkan")
HoldCause = Literal["unlowered", "unbounded", "spills"]
HOLD_CAUSES: tuple[HoldCause, ...] = ("unlowered", "unbounded", "spills")
DEFAULT_INSTANTIATE_MAX = 8


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Structural ceiling on a launch; expressions over the member's parameters and ``wave``."""

    max_threads: Expression | None = None
    max_waves: Expression | None = None
    min_resident: Expression | None = None
    max_registers: Expression | None = None


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Permission for a gate to stay quiet, tied to the plan item that tracks the cause.

    Without ``tracked`` it holds nothing. Empty ``backends`` or ``members`` mean all of them.
    """

    cause: HoldCause
    tracked: str
    backends: tuple[str, ...] = ()
    members: tuple[str, ...] = ()


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


def expression_values(member: Member, wave: int) -> Mapping[str, int]:
    """The names an expression of a declaration may use."""
    return {**member.tile.values(), "wave": wave}
