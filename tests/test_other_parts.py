"""One source, many parts: what a driver reports decides, what a part is called does not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.facts import DeviceFacts, facts_to_json
from dialects.manifest import Footprint, KernelEntry, Needs, Record
from dialects.member import Problem, Tile
from dialects.operands import OperandGroup
from facts_files import FOLDER, PATHS, fixture_facts
from kernel_sources import SMALL, built, records, source
from lowering.builder import dense
from lowering.pack import write_pack
from lowering.target import parse_target
from records import KERNEL, NATIVE_GROUP, RECORD
from runtime.cli import main
from runtime.filter import filter_candidates

LARGE = Tile(m=128, n=128, k=48, thread_m=8, thread_n=8)  # 96 KiB in f32, of two buffers
RENAMED = {"cuda": "sm_87", "rocm": "gfx1299"}


def candidates(backend: str) -> tuple[Record, ...]:
    """Many footprints and needs, so that each rule has something to say on some part."""
    base = replace(RECORD, identity=replace(RECORD.identity, target=backend))
    used = [
        Footprint(registers=r, threads_per_group=t, static_shared_bytes=s, spill_bytes=b)
        for r, t, s, b in (
            *((64, 256, 32768, 0), (255, 256, 34816, 0), (255, 512, 0, 0), (128, 1024, 98304, 0)),
            *((None, 256, 110000, None), (None, 2048, None, None), (128, 512, 0, 52)),
        )
    ]
    needs = [Needs(), Needs(wave_width=32), Needs(wave_width=64), Needs(features=("fp16", "b16"))]
    groups: list[tuple[OperandGroup, ...]] = [RECORD.groups, (NATIVE_GROUP,)]
    return tuple(
        replace(base, footprint=f, needs=n, groups=g) for f in used for n in needs for g in groups
    )


def verdicts(facts: DeviceFacts) -> list[object]:
    kernel: KernelEntry = replace(KERNEL, members=candidates(facts.backend))
    found = filter_candidates(kernel, facts, Problem(dims=("M", "N", "K"), sizes=(128, 4096, 4096)))
    return [(v.refusal, v.resident, v.fills, v.splits, v.pad_permille) for v in found]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_a_part_of_another_name_gets_the_same_verdicts(path: Path) -> None:
    facts = fixture_facts(path.stem)
    renamed = replace(facts, name="Unseen 9000", isa=RENAMED.get(facts.backend), source="made up")
    found = verdicts(facts)
    assert verdicts(renamed) == found
    assert len(found) == 56
    assert len(set(map(str, found))) > 2  # they are told apart by something


@pytest.mark.parametrize("stem", ["cuda-rtx4090", "cuda-h200"])
def test_a_member_of_more_than_64_kib_is_built_where_it_fits(
    stem: str, compile_cache: Path
) -> None:
    """128x128 opts into what the driver grants; no table says so."""
    target = parse_target(str(FOLDER / f"{stem}.json"))
    result = built(source(dense("f32"), LARGE, SMALL), target, compile_cache, body="software")
    large, _ = records(result)
    assert large.refused is None
    assert large.footprint.shared_bytes == 98304 > 65536
    (kernel,) = result.manifest.kernels
    at = Problem(dims=kernel.dims, sizes=(512, 4096, 4096))
    assert all(v.ok for v in filter_candidates(kernel, fixture_facts(stem), at))


def test_the_same_member_is_pruned_before_compiling_where_it_does_not(
    compile_cache: Path,
) -> None:
    """A record and no failure, since another member has code."""
    target = parse_target(str(FOLDER / "rocm-gfx1151.json"))
    result = built(source(dense("f32"), LARGE, SMALL), target, compile_cache, body="software")
    large, small = records(result)
    assert large.refused is not None
    found = (large.refused.rule, large.refused.need, large.refused.limit)
    assert found == ("R3", 98304, 65536)
    assert (large.files, large.launch, large.split) == (None, None, None)
    assert small.files is not None


def test_code_for_one_part_is_judged_for_another(compile_cache: Path) -> None:
    """The filter of a part that was not built for: the pack is there, its limits decide."""
    target = parse_target(str(FOLDER / "cuda-h200.json"))
    result = built(source(dense("f32"), LARGE, SMALL), target, compile_cache, body="software")
    (kernel,) = result.manifest.kernels
    at = Problem(dims=kernel.dims, sizes=(512, 4096, 4096))
    less = replace(fixture_facts("cuda-h200"), shared_bytes_per_block_optin=65536)
    large, small = filter_candidates(kernel, less, at)
    assert large.refusal is not None
    assert (large.refusal.rule, large.refusal.need, large.refusal.limit) == ("R3", 98304, 65536)
    assert small.ok


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_one_pack_is_explained_for_every_part(
    path: Path, compile_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of machines that are not here, each candidate with its verdict, rule, need and limit."""
    targets = [parse_target(t) for t in ("cuda:sm_80", "rocm:gfx1100", "vulkan")]
    pack = tmp_path / "pack"
    write_pack(built(source(dense("f32"), SMALL), targets, compile_cache), pack)
    command = ["explain", str(pack), "--shape", "64x64x64", "--facts", str(path), "--json"]
    assert main(command) == 0
    (member,) = json.loads(capsys.readouterr().out)["members"]
    assert member["target"].startswith(fixture_facts(path.stem).backend)
    assert (member["verdict"], member["rule"], member["splits"]) == ("ok", None, 1)
    # The same on a part with less: pruned, and the command says that nothing can run.
    less = replace(fixture_facts(path.stem), shared_bytes_per_block=64)
    less = replace(less, shared_bytes_per_block_optin=None)
    (tmp_path / "less.json").write_text(json.dumps(facts_to_json(less)))
    command[command.index(str(path))] = str(tmp_path / "less.json")
    assert main(command) == 1
    captured = capsys.readouterr()
    (member,) = json.loads(captured.out)["members"]
    assert (member["rule"], member["need"], member["limit"]) == ("R3", 256, 64)
    assert "shared 256 B > 64 B per block (R3)" in captured.err
    assert main(command[:-1]) == 1
    table = capsys.readouterr().out
    assert [name in table for name in ("rule", "need", "limit")] == [True] * 3
