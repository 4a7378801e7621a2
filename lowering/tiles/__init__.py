"""Kernel bodies, in the order of the untimed default: what should be fastest comes first."""

from dialects.errors import UnsupportedError
from dialects.member import Tile
from dialects.operands import Contraction

from ..target import Target
from .body import Emitted, TileBody
from .coop_matrix import CoopMatrixBody, CoopMatrixNarrowBody
from .cpu_fragments import CpuFragmentsBody
from .cpu_mmt4d import CpuMmt4dBody
from .fragments import FragmentsBody, FragmentsSoftwareBody
from .iree_codegen import IreeCodegenBody
from .mfma import MfmaBody, MfmaNarrowBody
from .mma_rows import MmaRowsBody
from .mma_sync import MmaSyncBody, MmaSyncNarrowBody, MmaSyncWordsBody
from .software import SoftwareBody, SoftwareWideBody
from .tma_wgmma import TmaWgmmaBody, TmaWgmmaPairBody, TmaWgmmaSplitBody
from .wgmma import WgmmaBody
from .wmma import WmmaBody, WmmaNarrowBody

__all__ = [
    "BODIES",
    "FRAGMENT_BODIES",
    "ON_REQUEST",
    "Body",
    "Emitted",
    "FragmentsBody",
    "TileBody",
    "body_named",
    "refusal_of",
]

Body = TileBody | FragmentsBody

BODIES: tuple[TileBody, ...] = (
    TmaWgmmaBody(),
    TmaWgmmaPairBody(),
    TmaWgmmaSplitBody(),
    WgmmaBody(),
    MmaSyncBody(),
    MmaSyncWordsBody(),
    MmaSyncNarrowBody(),
    MmaRowsBody(),
    CoopMatrixBody(),
    CoopMatrixNarrowBody(),
    WmmaBody(),
    WmmaNarrowBody(),
    MfmaBody(),
    MfmaNarrowBody(),
    SoftwareWideBody(),
    SoftwareBody(),
    CpuMmt4dBody(),
)

# Slow to build: only ``--body`` or a member that names one has it built. Last in the default order.
ON_REQUEST: tuple[TileBody, ...] = (IreeCodegenBody(),)

# of kernels in cooperative-matrix IR, which the bodies above cannot serve
FRAGMENT_BODIES: tuple[FragmentsBody, ...] = (
    FragmentsBody(),
    FragmentsSoftwareBody(),
    CpuFragmentsBody(),
)


# Parameters of a tile that only these bodies have: who shares its K.
_SHARES_K = {
    MmaRowsBody.name: ("waves_k", "cluster"),
    TmaWgmmaSplitBody.name: ("cluster",),
}


def body_named(name: str, *, where: str | None = None) -> Body:
    """The body of that name.

    Raises:
        UnsupportedError: an unknown name, with the names that work.
    """
    known = (*BODIES, *ON_REQUEST, *FRAGMENT_BODIES)
    for body in known:
        if body.name == name:
            return body
    names = ", ".join(b.name for b in known)
    raise UnsupportedError(f"body '{name}' is not one of {names}", where=where)


def refusal_of(body: TileBody, contraction: Contraction, tile: Tile, target: Target) -> str | None:
    """Why a template body cannot serve, or None: none of them has more than one product."""
    for parameter in ("waves_k", "cluster"):
        found = getattr(tile, parameter)
        if found and parameter not in _SHARES_K.get(body.name, ()):
            return f"{body.name} has no {parameter}, found {found}"
    if contraction.more:
        return (
            f"{body.name} multiplies one pair of operands, the kernel has "
            f"{len(contraction.products)}: write it in cooperative-matrix IR"
        )
    return body.refusal(contraction, tile, target)
