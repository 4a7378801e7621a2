"""Candidates judged together share answers; each must get what it gets alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from dialects.facts import DeviceFacts
from dialects.manifest import Footprint, Launch, SplitK
from dialects.member import Problem
from dialects.rules import Case, judge
from facts_files import fixture_facts
from records import KERNEL, RECORD
from runtime.filter import filter_candidates

LIMITS = replace(
    fixture_facts("cuda-rtx4090"),
    max_workgroup_counts=(1024, 100, 8),
    max_workgroup_sizes=(512, 64, 8),
    max_binding_bytes=1 << 26,
    memory_bytes=1 << 27,
)
PROBLEMS = [
    Problem(dims=KERNEL.dims, sizes=sizes)
    for sizes in ((128, 4096, 4096), (1, 1, 1), (5000, 130, 256), (8192, 8192, 64))
]


def launched(grid: tuple[str, ...], block: tuple[int, ...]) -> Launch:
    assert RECORD.launch is not None
    return replace(RECORD.launch, grid=grid, block=block)


GRIDS = [("ceildiv(N, 128)", rows, last) for rows in ("M", "ceildiv(M, 64)") for last in "19"]
BLOCKS = [(256, 1, 1), (1024, 1, 1)]
SPLITS = [
    SplitK(
        k_block=k_block,
        max_splits=most,
        workspace=workspace,
        launch=launched(("ceildiv(N, 128)", "ceildiv(M, 128)", third), (256, 1, 1)),
    )
    for k_block, most, workspace, third in (
        (64, 16, "4 * M * N * splits", "splits"),
        (256, 16, "4 * M * N * splits", "splits"),
        (64, 4, "4 * M * N * splits", "splits"),
        (64, 16, "1 * splits", "splits"),
        (64, 16, "4 * M * N * splits", "4 * splits"),
    )
]
BASE = replace(RECORD, identity=replace(RECORD.identity, target="cuda"))
MEMBERS = (
    *(replace(BASE, launch=launched(g, b)) for g, b in product(GRIDS, BLOCKS)),
    *(replace(BASE, split=split) for split in (None, *SPLITS)),
    *(replace(BASE, tile=replace(BASE.tile, m=m), split=SPLITS[0]) for m in (16, 64, 512)),
    *(replace(BASE, workspace=text) for text in (None, "4 * M * N", "64 * M * N")),
    *(
        replace(BASE, footprint=Footprint(threads_per_group=threads, registers=registers))
        for threads, registers in ((256, 64), (256, 128), (512, 64), (1024, 128))
    ),
)


def fresh(facts: DeviceFacts) -> DeviceFacts:
    """Equal facts that have answered nothing yet."""
    return replace(facts)


def test_candidates_together_get_what_each_gets_alone() -> None:
    shared, seen = fresh(LIMITS), set[str]()
    entry = replace(KERNEL, members=MEMBERS)
    for at in PROBLEMS:
        together = filter_candidates(entry, shared, at)
        alone = [
            judge(Case(kernel=entry, record=m, facts=fresh(LIMITS), problem=at)) for m in MEMBERS
        ]
        assert together == alone
        assert filter_candidates(entry, shared, at) == alone
        seen |= {v.refusal.rule if v.refusal else f"splits {v.splits}" for v in together}
    assert seen >= {"R2", "grid", "memory", "splits 1", "splits 2", "splits 4"}


def test_other_facts_answer_for_themselves() -> None:
    entry = replace(KERNEL, members=MEMBERS)
    shared = fresh(LIMITS)
    before = filter_candidates(entry, shared, PROBLEMS[0])
    changed = replace(shared, threads_per_multiprocessor=512, shared_bytes_per_block_optin=0)
    after = filter_candidates(entry, changed, PROBLEMS[0])
    assert after != before
    assert after == filter_candidates(entry, fresh(changed), PROBLEMS[0])
