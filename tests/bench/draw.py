"""Draws benchmark data: ``python tests/bench/draw.py benchmarks/F.json -o benchmarks/F.svg``.

A bar for each kernel and shape: the best candidate's time beside the peer's. Needs matplotlib, from
the extra ``bench``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import exp, log, prod
from pathlib import Path
from typing import Any

FEW_ROWS, BIG = 64, 1 << 33  # rows of A; products of the sizes from which a problem is big
GROUPS = ("big", "few rows, cold caches", "small and odd, batches")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One kernel at one shape: the peer's time over the best candidate's."""

    group: str
    label: str
    ratio: float


def bars(rows: Sequence[Mapping[str, Any]], peer: str) -> list[Bar]:
    """The best ratio of each kernel and shape, by group and in order of the data."""
    best: dict[tuple[str, tuple[int, ...]], float] = {}
    for row in rows:
        if row["peer"] == peer and row["timer"] == "device":
            key = (row["kernel"], tuple(row["shape"]))
            best[key] = max(best.get(key, 0.0), row["ratio"])
    found = [
        Bar(group=_group(shape), label=f"{kernel} {'x'.join(map(str, shape))}", ratio=ratio)
        for (kernel, shape), ratio in best.items()
    ]
    return sorted(found, key=lambda bar: GROUPS.index(bar.group))


def _group(shape: tuple[int, ...]) -> str:
    if prod(shape) >= BIG and shape[-3] > FEW_ROWS:
        return GROUPS[0]
    return GROUPS[1] if len(shape) == 3 and shape[0] <= FEW_ROWS else GROUPS[2]


def mean(found: Sequence[Bar]) -> float:
    """Geometric mean of the ratios."""
    return exp(sum(log(bar.ratio) for bar in found) / len(found))


def draw(found: Sequence[Bar], title: str, peer: str, out: Path) -> None:
    """One horizontal bar each, in the colour of its group; the peer is the line at 1."""
    mpl = import_module("matplotlib")
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tilewright"  # equal data give equal files
    pyplot = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 0.19 * len(found) + 1.2))
    for number, group in enumerate(dict.fromkeys(bar.group for bar in found)):
        mine = [bar for bar in found if bar.group == group]
        places = [len(found) - 1 - found.index(bar) for bar in mine]
        text = f"{group}: geometric mean {mean(mine):.2f}, worst {min(b.ratio for b in mine):.2f}"
        axes.barh(places, [b.ratio for b in mine], color=f"C{number}", label=text)
    axes.set_yticks(range(len(found)), [bar.label for bar in reversed(found)], fontsize=6)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel(f"time of {peer} / our time")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7, loc="center right")
    axes.margins(y=0.01)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


def main(arguments: list[str]) -> int:
    """Read, draw, say the means."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--peer", default="cublas")
    parser.add_argument("-o", dest="out", type=Path, required=True)
    given = parser.parse_args(arguments)
    data = json.loads(given.data.read_text())
    found = bars(data["rows"], given.peer)
    if not found:
        print(f"error: {given.data} has no rows beside {given.peer}", file=sys.stderr)
        return 1
    draw(found, f"{data['device']}, driver {data['driver']}, {data['date']}", given.peer, given.out)
    for group in dict.fromkeys(bar.group for bar in found):
        mine = [bar for bar in found if bar.group == group]
        print(f"{group}: {len(mine)} shapes, geometric mean {mean(mine):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
