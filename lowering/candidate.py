"""A candidate (member, body, target) between emission and compilation."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.manifest import Footprint, Launch, Needs, Prepared
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
    needs: Needs
    footprint: Footprint
    groups: tuple[OperandGroup, ...]
    compilation_info: str | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The emitted module as text, ready for the back end."""

    info: CandidateInfo
    text: str
