"""Kernel bodies, in the order of the untimed default: what should be fastest comes first."""

from dialects.errors import UnsupportedError

from .body import Emitted, TileBody
from .coop_matrix import CoopMatrixBody, CoopMatrixNarrowBody
from .cpu_mmt4d import CpuMmt4dBody
from .iree_codegen import IreeCodegenBody
from .software import SoftwareBody

__all__ = ["BODIES", "ON_REQUEST", "Emitted", "TileBody", "body_named"]

BODIES: tuple[TileBody, ...] = (
    CoopMatrixBody(),
    CoopMatrixNarrowBody(),
    SoftwareBody(),
    CpuMmt4dBody(),
)

# Slow to build: only ``--body`` or a member that names one has it built. Last in the default order.
ON_REQUEST: tuple[TileBody, ...] = (IreeCodegenBody(),)


def body_named(name: str, *, where: str | None = None) -> TileBody:
    """The body of that name.

    Raises:
        UnsupportedError: an unknown name, with the names that work.
    """
    for body in (*BODIES, *ON_REQUEST):
        if body.name == name:
            return body
    names = ", ".join(b.name for b in (*BODIES, *ON_REQUEST))
    raise UnsupportedError(f"body '{name}' is not one of {names}", where=where)
