"""Which types run on which tier of a target, and what is refused: the answer without compiling."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from dialects.member import Tile
from dialects.operands import Contraction
from dialects.types import ELEMENT_TYPES, element_type

from .builder import dense
from .instructions import coop_tiles
from .passes.select_tier import classify
from .target import Target
from .tiles import BODIES, TileBody

ACCUMULATORS = ("f64", "f32", "f16", "bf16", "i32")
# Tiles that every body of a kind can take, the first one all of them: a refusal is about types.
TILES = (
    Tile(m=64, n=64, k=32, thread_m=4, thread_n=4, waves_m=2, waves_n=2, stages=2),
    Tile(m=64, n=64, k=32, thread_m=4, thread_n=4),
    Tile(m=64, n=64, k=32, waves_m=2, waves_n=2, stages=2),
)


@dataclass(frozen=True, kw_only=True)
class TierRow:
    """One pair of operand and accumulator types on one target.

    ``tier`` and ``instruction`` are what the target lists, ``bodies`` those that take the types;
    ``demoted`` says why none of them is native although an instruction is listed. ``coop_tiles``
    are the tiles that are native in a kernel written in cooperative-matrix IR.
    """

    operand: str
    accumulator: str
    tier: str
    instruction: str | None
    bodies: tuple[str, ...]
    refused: str | None
    demoted: str | None
    coop_tiles: tuple[str, ...]


def tier_rows(target: Target) -> list[TierRow]:
    """Every operand type with every accumulator that can hold its values."""
    rows = []
    for type_ in ELEMENT_TYPES:
        for accumulator in ACCUMULATORS:
            wide = element_type(accumulator)
            same_kind = (type_.kind == "float") == (wide.kind == "float")
            if same_kind and (type_.name == accumulator or type_.bits < wide.bits):
                rows.append(_row(dense(type_.name, accumulator), target))
    return rows


def _row(contraction: Contraction, target: Target) -> TierRow:
    group = classify(contraction, target)
    bodies: list[TileBody] = []
    refusals: dict[str, None] = {}
    against_native: dict[str, None] = {}
    for body in BODIES:
        if target.backend not in body.backends:
            continue
        reasons = [body.refusal(contraction, tile, target) for tile in TILES]
        if None in reasons:
            bodies.append(body)
            continue
        refusals[str(reasons[0])] = None
        if body.tier == "native":
            against_native[str(reasons[0])] = None
    native = any(b.tier == "native" for b in bodies)
    demoted = "; ".join(against_native) or f"no native body serves {target.backend}"
    return TierRow(
        operand=contraction.a.type,
        accumulator=contraction.accumulator,
        tier=group.tier,
        instruction=group.instruction,
        bodies=tuple(b.name for b in bodies),
        refused=None if bodies else "; ".join(refusals),
        demoted=demoted if group.tier == "native" and bodies and not native else None,
        coop_tiles=coop_tiles(target, contraction.a.type, contraction.accumulator),
    )


def tier_json(target: Target) -> dict[str, Any]:
    """The rows as JSON."""
    return {"target": target.name, "rows": [asdict(r) for r in tier_rows(target)]}


def tier_table(target: Target) -> Table:
    """The rows for a person."""
    table = Table(title=f"tiers of {target.name}", title_justify="left")
    columns = ("operands", "accumulator", "tier", "instruction", "bodies or refusal", "coop tiles")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in tier_rows(target):
        outcome = ", ".join(row.bodies) or f"refused: {row.refused}"
        outcome += f" ({row.demoted})" if row.demoted else ""
        tiles = ", ".join(row.coop_tiles) or "-"
        table.add_row(
            row.operand, row.accumulator, row.tier, row.instruction or "-", outcome, tiles
        )
    return table
