"""How long the filter and ``explain`` take for 64 candidates.

Run as ``PYTHONPATH=.:tests python tests/bench/filter_explain.py``. Candidates have launches, a
split, alignments and a wave width, and facts are those of a fixture with every limit known, so that
each rule has work. Prints the best and the median of many runs.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from dialects.facts import DeviceFacts
from dialects.manifest import Footprint, KernelEntry, Launch, Needs, SplitK, Step
from dialects.member import Problem
from facts_files import fixture_facts
from records import KERNEL, RECORD
from runtime.filter import filter_candidates
from runtime.report import Explanation

CANDIDATES = 64
RUNS = 300


def kernel() -> KernelEntry:
    """A kernel of 64 candidates; every fourth is pruned by R3."""
    launch = RECORD.launch
    assert launch is not None
    step = {k: getattr(launch, k) for k in ("block", "dynamic_shared_bytes", "constants")}
    reduce = Step(entry="reduce", grid=("ceildiv(M * N, 256)", "1", "1"), bindings=(), **step)
    members = []
    for number in range(CANDIDATES):
        tile = replace(RECORD.tile, m=32 * (1 + number % 8))
        rows = f"ceildiv(M, {tile.m})"
        split = Launch(
            entry="gemm_split",
            grid=("ceildiv(N, 128)", rows, "splits"),
            bindings=(),
            then=(reduce,),
            **step,
        )
        identity = replace(RECORD.identity, member=f"{RECORD.tile.name}_{number}", target="cuda")
        members.append(
            replace(
                RECORD,
                identity=identity,
                tile=tile,
                launch=replace(launch, grid=("ceildiv(N, 128)", rows, "1")),
                footprint=Footprint(
                    registers=128,
                    threads_per_group=256,
                    dynamic_shared_bytes=32768 if number % 4 else 200000,
                    spill_bytes=0,
                ),
                needs=Needs(wave_width=32, alignment={"a.0": 8, "b.0": 8, "K": 8, "N": 8}),
                split=SplitK(k_block=256, workspace="4 * M * N * splits", launch=split),
            )
        )
    return replace(KERNEL, members=tuple(members))


def every_limit(facts: DeviceFacts) -> DeviceFacts:
    """The facts with what the fixture lacks."""
    return replace(
        facts,
        max_workgroup_counts=(2147483647, 65535, 65535),
        max_workgroup_sizes=(1024, 1024, 64),
        memory_bytes=1 << 34,
        max_binding_bytes=1 << 32,
    )


def main() -> None:
    """Time filter and explain together, each at a problem of its own."""
    entry, facts = kernel(), every_limit(fixture_facts("cuda-rtx4090"))
    times = []
    for run in range(RUNS):
        at = Problem(dims=entry.dims, sizes=(128 + run % 7, 4096, 4096))
        begin = time.perf_counter()
        verdicts = filter_candidates(entry, facts, at)
        told = Explanation(kernel="k", problem=at, device="cuda", verdicts=tuple(verdicts))
        members = told.to_json()["members"]
        times.append(1e3 * (time.perf_counter() - begin))
        assert sum(m["verdict"] == "pruned" for m in members) == CANDIDATES // 4
    print(
        f"{CANDIDATES} candidates: best {min(times):.3f} ms, median {statistics.median(times):.3f}"
    )


if __name__ == "__main__":
    main()
