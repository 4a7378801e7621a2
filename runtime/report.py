"""What the run time tells people and programs: verdicts, choices, measured runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dialects.member import Problem
from dialects.rules import Verdict

if TYPE_CHECKING:
    from .family import Choice


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Every candidate of a kernel at one problem, and what was chosen, when something was."""

    kernel: str
    problem: Problem
    device: str
    verdicts: tuple[Verdict, ...]
    choice: Choice | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON contract of ``explain``: that of ``run`` without times."""
        return {
            "kernel": self.kernel,
            "shape": list(self.problem.sizes),
            "device": self.device,
            "members": members_json(self.verdicts, {}, {}),
            "choice": choice_json(self.choice),
        }

    def table(self) -> Table:
        """The same for a person."""
        return verdict_table(f"{self.kernel} at {self.problem.text} on {self.device}", self)

    def __str__(self) -> str:
        lines = [f"{self.kernel} at {self.problem.text} on {self.device}"]
        for verdict in self.verdicts:
            lines.append(f"  {verdict.record.name}: {describe(verdict)}")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One problem run on one device: the choice, its error, and its speed beside peers.

    ``gflops_timer`` took the rate; the medians behind the choice have a timer of their own.
    """

    choice: Choice
    device: str
    settled: bool
    max_abs: float | None
    relative: float | None
    gflops: float | None
    peers: Mapping[str, float | None] = field(default_factory=dict)
    spread: float | None = None
    gflops_timer: str = "host"

    def to_json(self) -> dict[str, Any]:
        """The JSON contract of ``run``."""
        choice = self.choice
        return {
            "kernel": choice.kernel,
            "shape": list(choice.problem.sizes),
            "device": self.device,
            "timer": choice.timer,
            "ceiling_known": choice.ceiling_known,
            "settled": self.settled,
            "members": members_json(choice.verdicts, choice.medians, choice.failures),
            "choice": choice_json(choice),
            "error": {"max_abs": self.max_abs, "relative": self.relative},
            "gflops": self.gflops,
            "gflops_timer": self.gflops_timer,
            "spread": self.spread,
            "peers": dict(self.peers),
        }


def describe(verdict: Verdict) -> str:
    """One verdict in words."""
    if verdict.refusal is not None:
        return f"pruned, {verdict.refusal.message}"
    notes = [f"padding {verdict.pad_permille} per mille (R6)"]
    if verdict.splits > 1:
        filled = "fills" if verdict.fills else "does not fill"
        notes.append(f"split-K of {verdict.splits} {filled} the device (R5)")
    elif not verdict.fills:
        notes.append("does not fill the device (R5)")
    if verdict.resident is not None:
        notes.append(f"{verdict.resident} resident (R4)")
    return f"ok, {', '.join(notes)}"


def members_json(
    verdicts: tuple[Verdict, ...], medians: Mapping[str, float], failures: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The ``members`` list of the JSON contract."""
    result = []
    for verdict in verdicts:
        record, refusal = verdict.record, verdict.refusal
        failed = failures.get(record.full_name)
        result.append(
            {
                "member": record.identity.member,
                "body": record.identity.body,
                "target": record.identity.target,
                "tier": record.tier,
                "verdict": "pruned" if refusal else "failed" if failed else "ok",
                "rule": refusal.rule if refusal else None,
                "need": refusal.need if refusal else None,
                "limit": refusal.limit if refusal else None,
                "median_us": medians.get(record.full_name),
                "message": refusal.message if refusal else failed,
                "fills": None if refusal else verdict.fills,
                "splits": None if refusal else verdict.splits,
                "pad_permille": None if refusal else verdict.pad_permille,
                "resident": verdict.resident,
            }
        )
    return result


def choice_json(choice: Choice | None) -> dict[str, Any] | None:
    """The ``choice`` object of the JSON contract."""
    if choice is None:
        return None
    return {
        "member": choice.record.identity.member,
        "body": choice.record.identity.body,
        "source": choice.source,
        "margin_permille": choice.margin_permille,
        "tie": choice.tie,
        "note": choice.note,
    }


def verdict_table(title: str, report: Explanation | RunReport) -> Table:
    """Candidates with tier and verdict, then the rule with its amounts, or the median of a run."""
    choice = report.choice
    explains = isinstance(report, Explanation)
    verdicts = report.verdicts if explains else report.choice.verdicts
    medians = choice.medians if choice else {}
    failures = choice.failures if choice else {}
    table = Table(title=title, title_justify="left")
    for column in ("member", "body", "tier", "verdict"):
        table.add_column(column, overflow="fold")
    for column in ("rule", "need", "limit") if explains else ("median us",):
        table.add_column(column, justify="left" if column == "rule" else "right")
    for verdict in verdicts:
        record = verdict.record
        failed = failures.get(record.full_name)
        median = medians.get(record.full_name)
        chosen = choice is not None and choice.record.full_name == record.full_name
        refusal = verdict.refusal
        amounts = (refusal.rule, refusal.need, refusal.limit) if refusal else (None,) * 3
        more = map(_cell, amounts) if explains else [f"{median:.1f}" if median else "-"]
        table.add_row(
            record.identity.member,
            record.identity.body,
            record.tier,
            f"failed, {failed}" if failed else describe(verdict),
            *more,
            style="bold" if chosen else None,
        )
    return table


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
