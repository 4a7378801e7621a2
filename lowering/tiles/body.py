"""The seam between the pipeline and the kernel bodies: what a body is asked and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from dialects.manifest import Footprint, Launch, Needs, Prepared, SplitK
from dialects.member import Tile
from dialects.operands import Contraction, OperandGroup, Tier

from ..target import Target


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """One candidate's IR and what is known of it before the back end has compiled it.

    ``text`` is the content of a module: layouts, executables, host functions. ``footprint`` is
    what the emitter can predict; the artifact's reader replaces it. ``split`` is there when the
    module exports ``<kernel>.split`` too. ``aligned`` counts the ``.aligned`` instructions that
    were emitted by their mnemonic, and ``ptx_version`` is the oldest PTX ISA that has all of them;
    the artifact is checked against both. ``compilation_info`` is what the compiler's own code
    generation was asked for, where that makes the kernel.
    """

    text: str
    launch: Launch
    workspace: str | None
    prepared: Prepared | None
    needs: Needs
    footprint: Footprint
    groups: tuple[OperandGroup, ...]
    split: SplitK | None = None
    aligned: dict[str, int] = field(default_factory=dict)
    ptx_version: tuple[int, int] | None = None
    compilation_info: str | None = None


class TileBody(Protocol):
    """A kernel template: it says whether it can serve a tile on a target, and emits the kernel."""

    name: ClassVar[str]
    tier: ClassVar[Tier]
    backends: ClassVar[tuple[str, ...]]

    def refusal(self, contraction: Contraction, tile: Tile, target: Target) -> str | None:
        """Why this body cannot serve the contraction with that tile, or None when it can."""
        ...

    def emit(self, kernel: str, contraction: Contraction, tile: Tile, target: Target) -> Emitted:
        """The candidate's module text; call only when :meth:`refusal` is None."""
        ...


def contraction_group(
    contraction: Contraction,
    reason: str,
    *,
    instruction: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> OperandGroup:
    """The one operand group of a contraction: native with an instruction, else software."""
    return OperandGroup(
        a=contraction.a.type,
        b=contraction.b.type,
        acc=contraction.accumulator,
        shape=shape,
        tier="software" if instruction is None else "native",
        instruction=instruction,
        reason=reason,
    )


def refused_sources(
    contraction: Contraction, body: str, sources: tuple[str, ...] = ()
) -> str | None:
    """Why a body cannot take an operand from where it comes, or None when it can.

    ``sources`` are the block formats that it decodes; dense operands it always has.
    """
    for operand in contraction.operands:
        if operand.source is not None and operand.source not in sources:
            served = ", ".join(("dense", *sources))
            return f"{body} has no {operand.source} source ('{operand.name}'), only {served}"
    return None


def refused_types(contraction: Contraction, body: str, sources: tuple[str, ...] = ()) -> str | None:
    """Why a body without 8-bit floats cannot take the operands, or None when it can.

    ``sources`` are those of :func:`refused_sources`.
    """
    for operand in contraction.operands:
        if operand.type.startswith("f8"):
            return f"{body} has no {operand.type} ('{operand.name}'): f16 holds its values exactly"
    return refused_sources(contraction, body, sources)
