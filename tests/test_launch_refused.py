"""The error of a problem that no candidate can run."""

from __future__ import annotations

from dataclasses import replace

from dialects.errors import LaunchRefused
from dialects.rules import Case, judge, refuse_all
from facts_files import fixture_facts
from records import KERNEL, RECORD, record


def test_a_refusal_of_all_names_every_candidate_with_its_rule_and_amounts() -> None:
    large = record(static_shared_bytes=110000)
    other = replace(record(spill_bytes=52), identity=replace(RECORD.identity, body="wgmma"))
    verdicts = [
        judge(
            Case(kernel=KERNEL, record=candidate, facts=fixture_facts("cuda-rtx4090"), problem=None)
        )
        for candidate in (large, other)
    ]
    error = refuse_all(KERNEL, "128x4096x4096", verdicts)
    assert isinstance(error, LaunchRefused)
    assert error.message == (
        "kernel 'matmul_f16' at 128x4096x4096: no candidate can run: "
        "member 128x128x32_t8x8/software: shared 110000 B > 101376 B per block (R3); "
        "member 128x128x32_t8x8/wgmma: spills 52 B (R1)"
    )
    assert refuse_all(KERNEL, "1x1x1", []).message == (
        "kernel 'matmul_f16' at 1x1x1: no candidate for this device"
    )
