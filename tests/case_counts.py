"""How many cases were right, over all processes of a run: a candidate at a shape is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

_KEY = "cases"


def count_cases(
    record_property: Callable[[str, object], None],
    device: str,
    candidate: str,
    found: Sequence[str | None],
) -> None:
    """Record what each case of a test found: None or the empty text where it was right.

    ``device`` says by what the candidate was run. Call it before the test fails for what was found.
    """
    right = sum(not reason for reason in found)
    record_property(_KEY, [device, candidate, right, len(found)])


def summary_lines(reports: Iterable[Any]) -> list[str]:
    """One line a device, from the reports of tests that counted."""
    right: dict[str, int] = {}
    tried: dict[str, int] = {}
    candidates: dict[str, set[str]] = {}
    for report in reports:
        for key, value in report.user_properties if report.when == "call" else ():
            if key == _KEY:
                device, candidate, exact, count = value
                right[device] = right.get(device, 0) + exact
                tried[device] = tried.get(device, 0) + count
                candidates.setdefault(device, set()).add(candidate)
    return [
        f"{device}: {right[device]} "
        f"{'' if right[device] == tried[device] else f'of {tried[device]} '}"
        f"cases exact over {len(candidates[device])} candidates"
        for device in sorted(tried)
    ]
