"""Kernel bodies, in the order of the untimed default: what should be fastest comes first."""

from dialects.errors import UnsupportedError

from .body import Emitted, TileBody
from .coop_matrix import CoopMatrixBody, CoopMatrixNarrowBody
from .cpu_mmt4d import CpuMmt4dBody
from .software import SoftwareBody, SoftwareWideBody

__all__ = ["BODIES", "Emitted", "TileBody", "body_named"]

BODIES: tuple[TileBody, ...] = (
    CoopMatrixBody(),
    CoopMatrixNarrowBody(),
    SoftwareWideBody(),
    SoftwareBody(),
    CpuMmt4dBody(),
)


def body_named(name: str, *, where: str | None = None) -> TileBody:
    """The body of that name.

    Raises:
        UnsupportedError: an unknown name, with the names that work.
    """
    for body in BODIES:
        if body.name == name:
            return body
    names = ", ".join(b.name for b in BODIES)
    raise UnsupportedError(f"body '{name}' is not one of {names}", where=where)
