"""Which types run on which tier of a target, and what is refused: the answer without compiling."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from dialects.member import Tile
from dialects.operands import Contraction
from dialects.types import ELEMENT_TYPES, element_type

from .builder import dense
from .passes.select_tier import classify
from .target import Target
from .tiles import BODIES

ACCUMULATORS = ("f64", "f32", "f16", "bf16", "i32")
# Tiles that every body of a kind can take, so that a refusal is about types alone.
TILES = (
    Tile(m=64, n=64, k=32, thread_m=4, thread_n=4),
    Tile(m=64, n=64, k=32, waves_m=2, waves_n=2, stages=2),
)


@dataclass(frozen=True, kw_only=True)
class TierRow:
    """One pair of operand and accumulator types on one target."""

    operand: str
    accumulator: str
    tier: str
    instruction: str | None
    bodies: tuple[str, ...]
    refused: str | None


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
    bodies, refusals = [], []
    for body in BODIES:
        if target.backend not in body.backends:
            continue
        reasons = [body.refusal(contraction, tile, target) for tile in TILES]
        if None in reasons:
            bodies.append(body.name)
        else:
            refusals.append(str(reasons[0]))
    return TierRow(
        operand=contraction.a.type,
        accumulator=contraction.accumulator,
        tier=group.tier,
        instruction=group.instruction,
        bodies=tuple(bodies),
        refused=None if bodies else "; ".join(dict.fromkeys(refusals)),
    )


def tier_json(target: Target) -> dict[str, Any]:
    """The rows as JSON."""
    return {"target": target.name, "rows": [asdict(r) for r in tier_rows(target)]}


def tier_table(target: Target) -> Table:
    """The rows for a person."""
    table = Table(title=f"tiers of {target.name}", title_justify="left")
    for column in ("operands", "accumulator", "tier", "instruction", "bodies or refusal"):
        table.add_column(column, overflow="fold")
    for row in tier_rows(target):
        outcome = ", ".join(row.bodies) or f"refused: {row.refused}"
        table.add_row(row.operand, row.accumulator, row.tier, row.instruction or "-", outcome)
    return table
