"""The feasibility rules (seed section 2, R1-R6, and ours): pure functions of record and facts.

Preflight before compiling, the filter at bind and ``explain`` all call :func:`judge_at`. Unknown
facts prune nothing. The rules that prune are in :mod:`.pruning`; R5 and R6, which only record, are
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import LaunchRefused
from .expressions import ceildiv
from .facts import DeviceFacts
from .launch_rules import INDEX_LIMIT, split_fits
from .manifest import KernelEntry, Record, Refusal
from .member import Problem
from .occupancy import residency
from .pruning import alignment_needs, first_refusal
from .site import Site, dense_strides, mnk

__all__ = [
    "INDEX_LIMIT",
    "Case",
    "Site",
    "Verdict",
    "alignment_needs",
    "dense_strides",
    "fill_and_split",
    "float_operations",
    "judge",
    "judge_at",
    "mnk",
    "padding_permille",
    "refuse_all",
]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the rules say of one record at one problem.

    A survivor has no ``refusal``; it carries R4's residency, R5's fill and split, R6's padding.
    ``splits`` above 1 is the split-K that the launch uses.
    """

    record: Record
    refusal: Refusal | None = None
    resident: int | None = None
    fills: bool = True
    splits: int = 1
    pad_permille: int = 0

    @property
    def ok(self) -> bool:
        """Whether the record can run."""
        return self.refusal is None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One record at one problem on one device; ``problem`` is None before one is known."""

    kernel: KernelEntry
    record: Record
    facts: DeviceFacts
    problem: Problem | None
    strides: Mapping[str, int] | None = None


def judge(case: Case) -> Verdict:
    """The verdict on one record; for many of one kernel, :func:`judge_at` shares the site."""
    site = Site(kernel=case.kernel, facts=case.facts, problem=case.problem, strides=case.strides)
    return judge_at(case.record, site)


def judge_at(record: Record, site: Site) -> Verdict:
    """The first rule that prunes, or what R4, R5 and R6 record of a survivor."""
    if record.refused is not None:
        return Verdict(record=record, refusal=record.refused)
    found = residency(record.footprint.usage, site.facts)
    refusal = first_refusal(record, site, found)
    if refusal is not None:
        return Verdict(record=record, refusal=refusal)
    resident = found.groups if found else None
    if site.extent is None:
        return Verdict(record=record, resident=resident)
    fills, splits, padding = _recorded(record, site, site.extent)
    if splits > 1 and not split_fits(record, site, splits):
        fills, splits = False, 1
    return Verdict(
        record=record,
        resident=resident,
        fills=fills,
        splits=splits,
        pad_permille=padding,
    )


def _recorded(
    record: Record, site: Site, extent: tuple[int, int, int, int]
) -> tuple[bool, int, int]:
    """R5's fill and split and R6's padding, which candidates of the same block tile share."""
    tile, split = record.tile, record.split
    key = (tile.m, tile.n, split.k_block, split.max_splits) if split else (tile.m, tile.n)
    if key not in site.fits:
        batch, m, n, k = extent
        fills, splits = fill_and_split(
            tiles=batch * ceildiv(m, tile.m) * ceildiv(n, tile.n),
            k=k,
            k_block=split.k_block if split else 0,
            multiprocessors=site.facts.multiprocessors,
            max_splits=split.max_splits if split else 1,
        )
        site.fits[key] = fills, splits, padding_permille(m, n, tile.m, tile.n)
    return site.fits[key]


def float_operations(problem: Problem) -> float:
    """Operations of a contraction, two a multiply-accumulate."""
    batch, m, n, k = mnk(problem)
    return 2.0 * batch * m * n * k


def fill_and_split(
    *, tiles: int, k: int, k_block: int, multiprocessors: int | None, max_splits: int = 16
) -> tuple[bool, int]:
    """R5: whether the grid fills the device, and the split of K that would (origin section 8).

    Scans 2..max_splits over the divisors of ``k // k_block`` and stops at the first that fills;
    when none does, the largest legal divisor stays.
    """
    if multiprocessors is None or tiles >= multiprocessors:
        return True, 1
    splits = 1
    blocks = k // k_block if k_block else 0
    for candidate in range(2, max_splits + 1):
        if blocks and blocks % candidate == 0:
            splits = candidate
            if tiles * candidate >= multiprocessors:
                return True, candidate
    return False, splits


def padding_permille(m: int, n: int, tile_m: int, tile_n: int) -> int:
    """R6: per mille of the padded tiles that lie outside the problem."""
    padded = ceildiv(m, tile_m) * tile_m * ceildiv(n, tile_n) * tile_n
    return (padded - m * n) * 1000 // padded if padded else 0


def refuse_all(kernel: KernelEntry, shape: str, verdicts: Sequence[Verdict]) -> LaunchRefused:
    """The error for an empty survivor set: it names every candidate, its rule and its amounts."""
    if not verdicts:
        return LaunchRefused(f"kernel '{kernel.kernel}' at {shape}: no candidate for this device")
    reasons = "; ".join(
        f"member {v.record.name}: {v.refusal.message if v.refusal else 'ok'}" for v in verdicts
    )
    return LaunchRefused(f"kernel '{kernel.kernel}' at {shape}: no candidate can run: {reasons}")
