"""What is told of a choice: the JSON contract, the sentences, the tables."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from dialects.manifest import Refusal
from dialects.member import Problem
from dialects.rules import Verdict
from records import RECORD
from runtime.cli import choice_line, speed_lines
from runtime.family import Choice
from runtime.report import Explanation, RunReport, describe, verdict_table

AT = Problem(dims=("M", "N", "K"), sizes=(128, 64, 32))
FAST = RECORD
SLOW, BAD, LARGE = (
    replace(RECORD, identity=replace(RECORD.identity, member=member))
    for member in ("slow", "bad", "[large]")
)
VERDICTS = (
    Verdict(record=FAST, resident=2, pad_permille=125),
    Verdict(record=SLOW, fills=False, splits=4),
    Verdict(record=BAD),
    Verdict(
        record=LARGE,
        refusal=Refusal(rule="R3", need=9, limit=8, message="shared 9 B > 8 B per block (R3)"),
    ),
)
CHOICE = Choice(
    kernel="matmul_f16",
    problem=AT,
    record=FAST,
    source="timed",
    margin_permille=123,
    tie=False,
    verdicts=VERDICTS,
    medians={FAST.full_name: 10.0, SLOW.full_name: 20.0},
    failures={BAD.full_name: "trapped with signal 11"},
)
REPORT = RunReport(
    choice=CHOICE,
    device="vulkan",
    settled=True,
    max_abs=1e-5,
    relative=1e-6,
    gflops=30.0,
    peers={"numpy": 60.0, "iree_default": None},
)


def printed(part: Any) -> str:
    """A table as a person sees it."""
    console = Console(width=200, markup=False)
    with console.capture() as capture:
        console.print(part)
    return capture.get()


def test_the_json_of_a_run() -> None:
    """Exactly one object a candidate, with what is known of it and null for the rest."""
    value = json.loads(json.dumps(REPORT.to_json()))
    assert value["kernel"] == "matmul_f16"
    assert value["shape"] == [128, 64, 32]
    assert (value["device"], value["timer"], value["settled"]) == ("vulkan", "host", True)
    assert value["error"] == {"max_abs": 1e-5, "relative": 1e-6}
    assert (value["gflops"], value["peers"]) == (30.0, {"numpy": 60.0, "iree_default": None})
    fast, slow, bad, large = value["members"]
    assert (fast["member"], fast["body"]) == ("128x128x32_t8x8", "software")
    assert [m["verdict"] for m in value["members"]] == ["ok", "ok", "failed", "pruned"]
    assert [m["median_us"] for m in value["members"]] == [10.0, 20.0, None, None]
    assert (fast["rule"], fast["need"], fast["limit"]) == (None, None, None)
    assert (large["rule"], large["need"], large["limit"]) == ("R3", 9, 8)
    assert bad["message"] == "trapped with signal 11"
    assert (slow["fills"], slow["splits"], fast["pad_permille"]) == (False, 4, 125)
    chosen = {k: value["choice"][k] for k in ("member", "body", "source", "margin_permille", "tie")}
    assert chosen == {
        "member": "128x128x32_t8x8",
        "body": "software",
        "source": "timed",
        "margin_permille": 123,
        "tie": False,
    }


def test_the_json_of_an_explanation() -> None:
    plain = Explanation(kernel="k", problem=AT, device="here", verdicts=VERDICTS)
    value = plain.to_json()
    assert value.keys() == {"kernel", "shape", "device", "members", "choice"}
    assert value["choice"] is None
    assert [m["median_us"] for m in value["members"]] == [None] * 4
    assert replace(plain, choice=CHOICE).to_json()["choice"]["source"] == "timed"


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (VERDICTS[0], "ok, padding 125 per mille (R6), 2 resident (R4)"),
        (
            VERDICTS[1],
            "ok, padding 0 per mille (R6), split-K of 4 does not fill the device (R5)",
        ),
        (VERDICTS[3], "pruned, shared 9 B > 8 B per block (R3)"),
        (
            Verdict(record=FAST, fills=False),
            "ok, padding 0 per mille (R6), does not fill the device (R5)",
        ),
    ],
)
def test_a_verdict_in_words(verdict: Verdict, text: str) -> None:
    assert describe(verdict) == text


def test_tables_name_every_candidate() -> None:
    """Names are shown as they are, whatever characters they have."""
    explanation = Explanation(kernel="k", problem=AT, device="here", verdicts=VERDICTS)
    for part in (verdict_table("run", REPORT), explanation.table(), str(explanation)):
        text = printed(part) if not isinstance(part, str) else part
        for record in (FAST, SLOW, BAD, LARGE):
            assert record.identity.member in text
        assert "pruned, shared 9 B > 8 B" in text
    text = printed(verdict_table("run", REPORT))
    assert "failed, trapped with signal 11" in text
    assert "10.0" in text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("store", "from the store, nothing was timed, 12.3 % ahead of the next"),
        ("timed", "timed now, 12.3 % ahead of the next"),
        ("timed", "ahead of the next; host timer, no ceiling known"),
        ("only", "the only candidate that can run"),
        ("override", "forced"),
        ("default", "the untimed default"),
    ],
)
def test_where_a_winner_came_from(source: Any, text: str) -> None:
    assert text in choice_line(replace(CHOICE, source=source))


def test_a_tie_is_said() -> None:
    tied = replace(CHOICE, margin_permille=0, tie=True)
    assert "0.0 % ahead of the next (a tie, the first in family order wins)" in choice_line(tied)
    assert "ahead" not in choice_line(replace(CHOICE, margin_permille=None, tie=None))


def test_speeds_stand_beside_the_peers() -> None:
    assert speed_lines(REPORT) == [
        "error against float64: 1e-05 (relative 1e-06)",
        "30.0 GFLOP/s (host timer)",
        "  numpy: 60.0 GFLOP/s, ratio 0.50",
        "  iree_default: not run",
    ]
    assert speed_lines(replace(REPORT, max_abs=None, relative=None, gflops=None)) == []
