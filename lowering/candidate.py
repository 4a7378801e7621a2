"""A candidate (member, body, target) between emission and compilation."""

from __future__ import annotations

from dataclasses import dataclass, field

from dialects.declarations import Hold, Limits
from dialects.launches import LaunchPin
from dialects.manifest import Access, Footprint, Launch, Needs, Prepared, SplitK
from dialects.member import Tile
from dialects.operands import Contraction, OperandGroup


@dataclass(frozen=True, kw_only=True)
class CandidateInfo:
    """What travels with an emitted module as ``xpu.candidate``; never part of the compiled IR."""

    kernel: str
    dims: tuple[str, ...]
    contraction: Contraction
    tile: Tile
    body: str
    launch: Launch
    workspace: str | None = None
    prepared: Prepared | None = None
    split: SplitK | None = None
    needs: Needs
    footprint: Footprint
    groups: tuple[OperandGroup, ...]
    limits: Limits = field(default_factory=Limits)
    wave_width: int | None = None
    fast_math: bool = False
    holds: tuple[Hold, ...] = ()
    launches: LaunchPin = field(default_factory=LaunchPin)
    access: tuple[Access, ...] = ()
    aligned: dict[str, int] = field(default_factory=dict)
    ptx_version: tuple[int, int] | None = None
    compilation_info: str | None = None

    @property
    def max_threads(self) -> int | None:
        """The ceiling of the block: the author's own, else what the launch sites pin."""
        return self.limits.max_threads or self.launches.threads


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The emitted module as text, ready for the back end."""

    info: CandidateInfo
    text: str
