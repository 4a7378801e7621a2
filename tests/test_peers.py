"""Peers: how they are named and compiled, and that none can hold a benchmark up or lie to it."""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dialects.errors import DeviceError, UsageError
from dialects.facts import DeviceFacts
from dialects.manifest import KernelEntry
from dialects.member import Problem, Tile
from dialects.operands import Contraction
from facts_files import fixture_facts
from fake_cuda import FakeCuda
from kernel_sources import kernel
from lowering.build import Build, BuildOptions, build
from lowering.builder import dense, source_text
from lowering.compile import CompileOptions
from lowering.pack import write_pack
from lowering.peers import parse_peer
from lowering.target import parse_target, target_from_facts
from runtime import Session, dispatch_events
from runtime.bench import compiled_peers, disagreement
from runtime.benchmark import benchmark
from runtime.cuda import events
from runtime.device import Device
from runtime.dispatch_events import FEWEST, DeadlineError, peer_result
from runtime.pack import open_pack
from runtime.proof import make_case

TILE = Tile(m=16, n=16, k=16, thread_m=4, thread_n=4)
FIXED = "iree_default@37x130x15"


def built_peers(target: Any, cache: Path, *peers: str, **products: Contraction) -> Build:
    """Kernels by name with these peers."""
    made = [kernel(c, TILE, name=name) for name, c in products.items()]
    options = BuildOptions(peers=peers, compile=CompileOptions(cache=cache))
    return build(source_text(made), "peers.mlir", [target], options)


def test_names() -> None:
    assert parse_peer("iree_default").sizes is None
    assert parse_peer("iree_software").matrix == "none"
    spec = parse_peer(FIXED)
    assert (spec.name, spec.matrix, spec.sizes) == (FIXED, "default", (37, 130, 15))
    for name in ("iree_default@", "iree_default@4x", "iree_default@0x1x1", "iree_default@-1x2x3"):
        with pytest.raises(UsageError, match="is no shape such as 512x4096x4096"):
            parse_peer(name)
    with pytest.raises(UsageError, match="peer 'x' is not one of iree_default, iree_software"):
        parse_peer("x@1x2x3")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory, compile_cache: Path) -> Path:
    """For the processor: a product, one that adds to C, and a batch, with peers of two kinds."""
    result = built_peers(
        parse_target("cpu"),
        compile_cache,
        "iree_default",
        FIXED,
        plain=dense("f16", transposed_b=True),
        adds=dense("f32", accumulate=True),
        batch=dense("f32", batch=True),
    )
    folder = tmp_path_factory.mktemp("peers") / "pack"
    write_pack(result, folder)
    return folder


def entry_of(pack: Path, name: str) -> KernelEntry:
    """A kernel of the pack."""
    return open_pack(pack).kernel(name)


def test_a_peer_of_fixed_sizes_is_of_kernels_that_have_as_many(pack: Path) -> None:
    names = {n: [p.name for p in entry_of(pack, n).peers] for n in ("plain", "adds", "batch")}
    assert names == {
        "plain": ["iree_default", FIXED],
        "adds": ["iree_default", FIXED],
        "batch": ["iree_default"],
    }


def test_peers_that_serve_a_problem(pack: Path) -> None:
    """Of any size, and of this one alone."""
    entry = entry_of(pack, "plain")
    target = entry.members[0].identity.target

    def names(*sizes: int, asked: tuple[str, ...] = ("iree_default",)) -> list[str]:
        at = Problem(dims=entry.dims, sizes=sizes)
        return [p.name for p in compiled_peers(entry, target, asked, at)]

    assert names(37, 130, 15) == ["iree_default", FIXED]
    assert names(37, 130, 16) == ["iree_default"]
    assert names(37, 130, 15, asked=("iree_software",)) == []
    assert compiled_peers(entry, "vulkan", ["iree_default"], Problem(dims=(), sizes=())) == []


@pytest.mark.parametrize("name", ["plain", "adds"])
def test_both_compute_the_kernel(pack: Path, name: str) -> None:
    """In a process of IREE's tools; of fixed sizes only at these."""
    entry, device = entry_of(pack, name), Device("local-sync")
    case = make_case(device, entry, Problem(dims=entry.dims, sizes=(37, 130, 15)))
    for peer in entry.peers:
        got = peer_result(open_pack(pack), entry, peer, case, "local-sync")
        assert disagreement(entry.contraction, case, got) is None
        assert disagreement(entry.contraction, case, got + 1) is not None
    other = make_case(device, entry, Problem(dims=entry.dims, sizes=(37, 130, 16)))
    with pytest.raises(DeviceError, match="iree-run-module failed"):
        peer_result(open_pack(pack), entry, entry.peers[1], other, "local-sync")


def test_fixed_sizes_reach_the_compiler(compile_cache: Path) -> None:
    """Its best tiles need them: on CUDA it takes matrix instructions then, and else none."""
    result = built_peers(
        parse_target("cuda:sm_90a"),
        compile_cache,
        "iree_default",
        "iree_default@256x256x256",
        "iree_software@256x256x256",
        plain=dense("f16"),
    )
    (entry,) = result.manifest.kernels
    code = {p.name: result.files[p.vmfb] for p in entry.peers}
    used = {name: b"mma.sync" in content for name, content in code.items()}
    assert used == {
        "iree_default": False,
        "iree_default@256x256x256": True,
        "iree_software@256x256x256": False,
    }


COOPERATIVE = struct.pack("<II", (2 << 16) | 17, 6022)  # OpCapability CooperativeMatrixKHR


@pytest.mark.parametrize(
    ("facts", "used"),
    [
        (fixture_facts("vulkan-h200"), True),
        (replace(fixture_facts("vulkan-h200"), native_matrix_configs=None), False),
        (replace(fixture_facts("vulkan-h200"), wave_widths=(64,)), False),
    ],
)
def test_a_vulkan_peer_is_told_what_the_driver_lists(
    compile_cache: Path, facts: DeviceFacts, used: bool
) -> None:
    result = built_peers(
        target_from_facts(facts),
        compile_cache,
        "iree_default@256x256x256",
        "iree_software@256x256x256",
        plain=dense("f16"),
    )
    (entry,) = result.manifest.kernels
    default, software = (result.files[p.vmfb] for p in entry.peers)
    assert (COOPERATIVE in default) == used
    assert COOPERATIVE not in software


def test_benchmarks_have_rows_of_all_peers(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is wrong, or past its deadline, is told of and has no row."""
    told: list[str] = []

    def peers(**options: Any) -> set[str | None]:
        told.clear()
        with Session(pack, "local-sync", tuning="off") as session:
            records = [session.choose("plain", 37, 130, 15).record]
            rows = benchmark(
                session,
                "plain",
                (37, 130, 15),
                ("iree_default", "iree_software", "numpy"),
                records,
                note=told.append,
                **options,
            )
        assert all(row.kernel_us > 0 for row in rows)
        return {row.peer for row in rows}

    assert peers() == {"iree_default", FIXED, "numpy"}
    assert told == []
    assert peers(deadline_s=1e-3) == {"numpy"}
    assert [text.partition(": ")[2] for text in told] == [
        "iree-run-module ran past its deadline of 0.001 s"
    ] * 2

    def wrong(*arguments: Any) -> np.ndarray:
        return peer_result(*arguments) + (arguments[2].name == FIXED)

    monkeypatch.setattr("runtime.benchmark.peer_result", wrong)
    assert peers() == {"iree_default", "numpy"}
    assert told[0].startswith(f"peer {FIXED}: differs by ")


def profiled(
    monkeypatch: pytest.MonkeyPatch, launch_s: float, hangs: int = 0
) -> tuple[list[int], Any]:
    """The counts of launches that were asked for, and the timing, of launches of that length."""
    asked: list[int] = []

    def launches(call: Any, folder: Path, count: int, deadline_s: float) -> list[float]:
        asked.append(count)
        if count * launch_s > deadline_s or len(asked) <= hangs:
            raise DeadlineError("too long")
        return [launch_s * 1e6 * (10 if i < count // 3 else 1) for i in range(count)]

    monkeypatch.setattr(dispatch_events, "_launches", launches)
    call: Any = None
    return asked, lambda: dispatch_events._profile(call, Path(), 30.0)


@pytest.mark.parametrize(
    ("launch_s", "counts"),
    [(1e-4, [60]), (0.5, [60]), (0.6, [60, FEWEST, 25]), (8.0, [60, FEWEST])],
)
def test_launches_of_a_profile_fit_the_deadline(
    monkeypatch: pytest.MonkeyPatch, launch_s: float, counts: list[int]
) -> None:
    """Sixty, or what fits, down to a warm one and a timed one; the warm ones do not count."""
    asked, profile = profiled(monkeypatch, launch_s)
    assert profile().microseconds == pytest.approx(launch_s * 1e6)
    assert asked == counts


def test_a_profiler_that_hangs_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, profile = profiled(monkeypatch, 1e-4, hangs=2)
    assert profile().microseconds == pytest.approx(100)
    assert asked == [60, FEWEST, FEWEST, 60]
    asked, profile = profiled(monkeypatch, 1e-4, hangs=3)
    with pytest.raises(DeadlineError):
        profile()
    asked, profile = profiled(monkeypatch, 16.0)
    with pytest.raises(DeadlineError):
        profile()


def test_candidates_by_events_of_a_made_up_card(
    cuda_pack: Path, fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in the same rounds; peers of a torch that is not there are told of."""
    monkeypatch.setattr(events, "perf_counter", fake_cuda.clock)
    monkeypatch.setitem(sys.modules, "torch", None)
    told: list[str] = []
    with Session(cuda_pack, "cuda", executor="direct", tuning="off") as session:
        (name,) = session.kernels
        verdicts = session.explain(name, 37, 130, 15).verdicts
        records = [v.record for v in verdicts if v.ok]
        rows = benchmark(
            session, name, (37, 130, 15), ("cublas", "iree_default"), records, note=told.append
        )
    assert [row.member for row in rows] == [r.identity.member for r in records]
    assert {row.timer for row in rows} == {"device"}
    assert all(row.kernel_us == pytest.approx(10, rel=0.02) for row in rows)
    assert told == ["peer cublas: there is no torch that sees a CUDA device"]
