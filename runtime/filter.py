"""The feasibility filter at bind: every candidate of a kernel judged at one problem."""

from __future__ import annotations

from collections.abc import Mapping

from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem
from dialects.rules import Site, Verdict, judge_at


def candidates(kernel: KernelEntry, backend: str) -> list[Record]:
    """The records that were built, or refused, for that backend, in family order."""
    return [r for r in kernel.members if r.identity.target.partition(":")[0] == backend]


def filter_candidates(
    kernel: KernelEntry,
    facts: DeviceFacts,
    problem: Problem,
    strides: Mapping[str, int] | None = None,
) -> list[Verdict]:
    """One verdict a candidate, in family order; survivors are those that are ``ok``.

    ``strides`` as :class:`dialects.site.Site` takes them.
    """
    site = Site(kernel=kernel, facts=facts, problem=problem, strides=strides)
    return [judge_at(r, site) for r in candidates(kernel, facts.backend)]
