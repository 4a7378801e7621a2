"""``python -m runtime`` on packs: the JSON contract, exit codes, what goes to which stream."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_lines import Ran, run_main, run_process
from dialects.facts import facts_from_json
from packs import Packs, build_pack, copied, cpu_records, kernel_of
from runtime import bench
from runtime.cli import main
from runtime.store import entries

FAST = ("--against", "")
SHORT = {"LEAST_ROUNDS": 2, "MOST_ROUNDS": 2, "WARM_S": 0.005, "BRACKET_S": 0.005}
SHAPE = ("--shape", "37x45x130")
MEMBER_KEYS = {"member", "body", "tier", "verdict", "rule", "need", "limit", "median_us"}
EXPLAIN_KEYS = {"kernel", "shape", "device", "members", "choice"}
RUN_KEYS = EXPLAIN_KEYS | {"timer", "settled", "error", "gflops", "peers"}
ROW_KEYS = {"kernel", "member", "body", "dtype", "shape", "peer", "timer", "kernel_us"} | {
    *("peer_us", "ratio", "spread"),
}
CHOICE_KEYS = {"member", "body", "source", "margin_permille", "tie"}
Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line, on a machine where nothing else runs."""
    monkeypatch.setattr("runtime.load.cpu_foreign_percent", lambda own: 0)
    for name, value in SHORT.items():
        monkeypatch.setattr(f"runtime.compare.{name}", value)
    return lambda *arguments: run_main(main, capsys, *arguments)


@pytest.fixture
def pack(packs: Packs) -> Path:
    """A pack that no test changes."""
    return packs.path("matmul_f32")


@pytest.mark.parametrize(
    "uri", ["local-sync", "local-task", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_facts(run: Run, uri: str) -> None:
    """The JSON is a facts file; the table says who reported each value."""
    found = run("facts", "--device", uri, "--json")
    assert (found.code, found.err) == (0, "")
    facts = facts_from_json(found.out, where="facts")
    assert facts.backend == ("vulkan" if uri == "vulkan" else "cpu")
    table = run("facts", "--device", uri)
    assert (table.code, table.err) == (0, "")
    assert f"facts of {uri}" in table.out


def check_members(members: list[dict[str, Any]], pack: Path, target: str) -> None:
    """One object for each candidate, with the keys of the contract."""
    records = [r for r in kernel_of(pack).members if r.identity.target.startswith(target)]
    assert [(m["member"], m["body"]) for m in members] == [
        (r.identity.member, r.identity.body) for r in records
    ]
    for member in members:
        assert member.keys() >= MEMBER_KEYS
        assert member["verdict"] in ("ok", "pruned", "failed")
        assert member["tier"] in ("native", "software")


def test_explain(run: Run, pack: Path) -> None:
    found = run("explain", pack, *SHAPE, "--json")
    assert (found.code, found.err) == (0, "")
    assert found.json.keys() >= EXPLAIN_KEYS
    assert not found.json.keys() & {"timer", "gflops", "error", "peers"}
    assert (found.json["kernel"], found.json["shape"]) == ("matmul_f32", [37, 45, 130])
    assert found.json["choice"] is None
    check_members(found.json["members"], pack, "cpu")
    table = run("explain", pack, *SHAPE)
    assert (table.code, table.err) == (0, "")
    assert all(r.identity.member in table.out for r in cpu_records(pack))


def test_explain_for_a_machine_that_is_not_here(run: Run, pack: Path, tmp_path: Path) -> None:
    """1 KiB of shared memory: refused, naming every candidate with its need and the limit."""
    facts = tmp_path / "small.json"
    value = {"schema_version": 1, "backend": "vulkan", "shared_bytes_per_block": 1024}
    facts.write_text(json.dumps(value))
    arguments = ("explain", pack, "--facts", facts, *SHAPE)
    found = run(*arguments, "--json")
    assert found.code == 1
    check_members(found.json["members"], pack, "vulkan")
    for member in found.json["members"]:
        assert (member["verdict"], member["rule"], member["limit"]) == ("pruned", "R3", 1024)
        assert member["need"] > 1024
        assert (
            f"{member['member']}/{member['body']}: shared {member['need']} B > 1024 B" in found.err
        )
    assert [f["kind"] for f in found.json["failures"]] == ["refused"]
    table = run(*arguments)
    assert (table.code, table.err) == (1, found.err)
    facts.write_text(json.dumps({**value, "shared_bytes_per_block": 1 << 16}))
    assert run(*arguments).code == 0
    facts.write_text(json.dumps({**value, "backend": "rocm"}))
    assert "no candidate for this device" in run(*arguments).err


def check_run(found: Ran, pack: Path, target: str) -> dict[str, Any]:
    """A run that went well, by its JSON."""
    assert found.code == 0, found.err
    assert all(line.startswith("note: ") for line in found.err.splitlines())
    value = found.json
    assert value.keys() >= RUN_KEYS
    assert value["choice"].keys() >= CHOICE_KEYS
    assert value["timer"] in ("host", "device", "unavailable")
    check_members(value["members"], pack, target)
    assert 0 <= value["error"]["max_abs"] < 1e-4
    assert 0 <= value["error"]["relative"] < 1e-5
    return value


@pytest.mark.parametrize(
    "uri", ["local-sync", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_run_times_and_then_remembers(run: Run, pack: Path, tmp_path: Path, uri: str) -> None:
    arguments = ("run", pack, *SHAPE, "--device", uri, "--store", tmp_path / "store", *FAST)
    target = "vulkan" if uri == "vulkan" else "cpu"
    first = check_run(run(*arguments, "--json"), pack, target)
    assert (first["choice"]["source"], first["settled"]) == ("timed", True)
    timed = [m for m in first["members"] if m["verdict"] == "ok"]
    assert len(timed) > 1
    assert all(m["median_us"] > 0 for m in timed)
    assert first["gflops"] > 0
    assert first["peers"] == {}
    second = check_run(run(*arguments, "--json"), pack, target)
    assert second["choice"] == {**first["choice"], "source": "store"}
    assert all(m["median_us"] is None for m in second["members"])
    told = run(*arguments)
    assert (told.code, told.err) == (0, "")
    assert "from the store, nothing was timed" in told.out
    assert f"facts of {uri}" in told.out
    assert "error against float64" in told.out
    assert len(entries(tmp_path / "store")) == 1


def test_run_beside_a_peer(run: Run, pack: Path, tmp_path: Path) -> None:
    """numpy runs in the same rounds; a peer that the pack lacks is null."""
    found = run(
        *("run", pack, *SHAPE, "--store", tmp_path, "--member", "64x64x16_t4x4", "--json"),
    )
    value = check_run(found, pack, "cpu")
    assert value["peers"].keys() == {"numpy", "iree_default"}
    assert value["peers"]["numpy"] > 0
    assert value["peers"]["iree_default"] is None
    assert value["choice"]["source"] == "override"
    assert value["choice"]["member"] == "64x64x16_t4x4"
    assert entries(tmp_path) == []


@pytest.mark.parametrize("shape", ["1x1x1", "0x8x8", "8x0x8", "8x8x0"])
def test_run_of_the_smallest_problems(run: Run, pack: Path, tmp_path: Path, shape: str) -> None:
    found = run("run", pack, "--shape", shape, "--store", tmp_path, *FAST, "--json")
    value = check_run(found, pack, "cpu")
    assert value["error"]["max_abs"] < 1e-6
    assert (value["gflops"] is None) == ("0" in shape)
    assert run("run", pack, "--shape", shape, "--store", tmp_path, *FAST).code == 0


def test_a_wrong_candidate_fails_the_run(
    run: Run, pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was forced, so that nobody has proven it: the error is not only printed."""

    def spoiled(*arguments: Any) -> Any:
        result = original(*arguments)
        result[-1, -1] += 1e-2
        return result

    original = bench.run_case
    monkeypatch.setattr(bench, "run_case", spoiled)
    member = cpu_records(pack)[0].name
    found = run("run", pack, *SHAPE, "--store", tmp_path, "--member", member, "--json")
    found.check_refused(1, f"member {member} is wrong at 37x45x130")
    assert found.json["failures"][0]["kind"] == "device"


def test_tune_and_the_store(run: Run, pack: Path, tmp_path: Path) -> None:
    """tune fills a store; its commands list, show, move and delete what is there."""
    store, moved, file = tmp_path / "store", tmp_path / "moved", tmp_path / "export [1].json"
    here, there = ("--store", store), ("--store", moved)
    tuned = run("tune", pack, *SHAPE, *here, "--json")
    assert tuned.code == 0
    assert tuned.json["choice"]["source"] == "timed"
    check_members(tuned.json["members"], pack, "cpu")
    told = run("tune", pack, "--shape", "8x8x8", *here)
    assert (told.code, told.err) == (0, "")
    assert "winner: " in told.out
    listed = run("store", "list", *here, "--json").json["entries"]
    assert [e["key"].split(".")[1] for e in listed] == ["matmul_f32"] * 2
    assert listed[0].keys() >= {"device", "key", "member", "body", "margin_permille", "tie"}
    assert "2 stored choices" in run("store", "list", *here).out
    shown = run("store", "show", "*.8x8x8.*", *here, "--json").json["entries"]
    assert [len(e["choice"]["samples"]) for e in shown] == [len(cpu_records(pack))]
    assert " us" in run("store", "show", "*", *here).out
    assert run("store", "verify", *here).out == "every entry is sound\n"
    assert f"exported 2 entries to {file}" in run("store", "export", file, *here).out
    assert run("store", "import", file, *there, "--json").json == {"imported": 2}
    assert entries(moved) == entries(store)
    assert len(run("store", "drop", "*.8x8x8.*", *there, "--json").json["dropped"]) == 1
    assert "dropped " in run("store", "drop", "*", *there).out
    assert run("store", "drop", "*", *there).out == "nothing matches\n"
    next(store.rglob("*.????????")).write_text("odd")
    assert run("store", "verify", *here, "--json").code == 1
    assert len(run("store", "list", *here, "--json").json["entries"]) == 1


@pytest.mark.parametrize(
    "uri", ["local-sync", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_bench(run: Run, pack: Path, tmp_path: Path, uri: str) -> None:
    """Benchmark data by its contract, printed or written; nothing to time is an error."""
    arguments = ("bench", pack, "--device", uri, "--store", tmp_path, "--against", "numpy")
    found = run(*arguments, *SHAPE, "--write", tmp_path / "data.json")
    assert (found.code, found.err) == (0, "")
    assert "TFLOP/s" in found.out
    data = json.loads((tmp_path / "data.json").read_text())
    assert data.keys() == {"device", "driver", "versions", "date", "rows"}
    rows = data["rows"]
    if uri == "local-sync":
        again = run(*arguments, "--shape", "37x45x130,8x8x8", "--json", "--all").json
        assert {**again, "rows": []} == {**data, "rows": []}
        assert [r["shape"] for r in again["rows"]] == [[37, 45, 130]] * 3 + [[8, 8, 8]] * 3
        rows += again["rows"]
    for row in rows:
        assert row.keys() >= ROW_KEYS
        assert row["dtype"] == "f32->f32"
        assert row["kernel_us"] > 0
        assert row["peer"] is None or row["ratio"] > 0
    run(*arguments, *SHAPE, "--write", tmp_path / "a/b").check_refused(2, "no such directory")
    run(*arguments, "--shape", "0x8x8").check_refused(1, "at 0x8x8: nothing to time")
    run(*arguments, "--shape", "8x8x0", "--json").check_refused(1, "at 8x8x0: nothing to time")


def test_several_kernels_want_a_name(packs: Packs, run: Run, tmp_path: Path) -> None:
    """A pack of two kernels: named, or refused as a matter of usage."""
    text = packs.source("matmul_f32").read_text() + packs.source("matmul_f16").read_text()
    (tmp_path / "both.mlir").write_text(text)
    build_pack(tmp_path / "both.mlir", tmp_path / "both", packs.cache, ("cpu",))
    found = run("explain", tmp_path / "both", *SHAPE)
    found.check_refused(2, "the pack has 2 kernels, name one: matmul_f32, matmul_f16")
    named = run("explain", tmp_path / "both", *SHAPE, "--kernel", "matmul_f16", "--json")
    assert named.json["kernel"] == "matmul_f16"


def test_processes_end_as_shells_expect(pack: Path, tmp_path: Path) -> None:
    """Exit codes 0, 1 and 2; a reader that goes away and a full disk cost no traceback."""
    good = run_process("runtime", "explain", pack, *SHAPE, "--json")
    assert (good.code, good.err, good.json["kernel"]) == (0, "", "matmul_f32")
    run_process("runtime", "explain", tmp_path, *SHAPE, "--json").check_refused(1, "no pack here")
    run_process("runtime", "explain", pack, "--json").check_refused(2, "required: --shape")
    with open("/dev/full", "w") as full:
        ran = run_process("runtime", "facts", "--json", stdout=full)
    ran.check_refused(1, "cannot write the output: no space left on device")
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    ran = run_process("runtime", "facts", "--json", stdout=reader.stdin)
    assert (ran.code, ran.err) == (1, "")


def test_copies_work_anywhere(run: Run, pack: Path, tmp_path: Path) -> None:
    """A pack is its folder: under another name, with blanks and brackets in its path."""
    moved = copied(pack, tmp_path / "a pack [/x] :smile:")
    assert str(run("explain", moved, *SHAPE).code) == "0"
    assert run("explain", moved / "no [/x]", *SHAPE, "--json").code == 1
