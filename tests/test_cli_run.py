"""``python -m lowering run``, ``compile`` and ``inspect``: from a source to a checked result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_lines import Ran, run_main, run_process
from coop_candidates import SAMPLE, SAMPLE_KERNELS
from lowering.cli import main
from packs import Packs, copied, manifest_of
from runtime.store import entries
from test_cli_runtime import RUN_KEYS, SHAPE, SHORT

Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, packs: Packs) -> Run:
    """The command line, on a machine where nothing else runs, with the compile cache of the run."""
    monkeypatch.setattr("runtime.load.cpu_foreign_percent", lambda own: 0)
    for name, value in SHORT.items():
        monkeypatch.setattr(f"runtime.compare.{name}", value)

    def here(command: str, *arguments: object) -> Ran:
        cache = () if command == "inspect" else ("--cache", packs.cache)
        return run_main(main, capsys, command, *arguments, *cache)

    return here


@pytest.fixture
def source(packs: Packs) -> Path:
    """The first sample with few members."""
    return packs.source("matmul_f32")


def check_run(found: Ran) -> dict[str, Any]:
    """A run that went well, by its JSON; diagnostics are notes."""
    assert found.code == 0, found.err
    assert all(line.startswith("note: ") for line in found.err.splitlines())
    assert found.json.keys() >= RUN_KEYS
    assert found.json["error"]["relative"] < 1e-5
    return found.json


@pytest.mark.parametrize(
    "uri", ["local-task", pytest.param("vulkan", marks=pytest.mark.device("vulkan"))]
)
def test_the_main_job(run: Run, source: Path, tmp_path: Path, uri: str) -> None:
    """Compile, filter, choose, check, compare; the second run comes from the store."""
    arguments = ("run", source, *SHAPE, "--device", uri, "--store", tmp_path)
    first = check_run(run(*arguments, "--json"))
    assert (first["choice"]["source"], first["settled"]) == ("timed", True)
    assert all(m["median_us"] > 0 for m in first["members"] if m["verdict"] == "ok")
    assert first["peers"].keys() == {"numpy", "iree_default"}
    assert first["peers"]["numpy"] > 0
    assert first["peers"]["iree_default"] > 0
    second = check_run(run(*arguments, "--against", "", "--json"))
    assert second["choice"] == {**first["choice"], "source": "store"}
    assert all(m["median_us"] is None for m in second["members"])
    assert len(entries(tmp_path)) == 1
    told = run(*arguments)
    assert told.code == 0
    assert "from the store, nothing was timed" in told.out
    for part in (f"facts of {uri}", "error against float64", "numpy: ", "iree_default: "):
        assert part in told.out
    for member in second["members"]:
        assert member["member"] in told.out


@pytest.mark.parametrize("kernel", SAMPLE_KERNELS)
def test_a_kernel_in_cooperative_matrix_ir(run: Run, tmp_path: Path, kernel: str) -> None:
    """Without a target it is for this processor, whose one candidate is taken untimed."""
    source = tmp_path / "coop.mlir"
    source.write_text(SAMPLE)
    store = ("--store", tmp_path / "store")
    found = check_run(run("run", source, "--kernel", kernel, *SHAPE, *store, "--json"))
    assert [(m["body"], m["verdict"]) for m in found["members"]] == [("cpu_fragments", "ok")]
    assert found["choice"]["source"] == "only"
    assert found["peers"]["iree_default"] > 0


def test_a_forced_member(run: Run, source: Path, tmp_path: Path) -> None:
    found = check_run(
        run(
            *("run", source, *SHAPE, "--store", tmp_path, "--against", "numpy"),
            *("--member", "64x64x16_t4x4/cpu_mmt4d", "--json"),
        )
    )
    assert (found["choice"]["source"], found["choice"]["member"]) == ("override", "64x64x16_t4x4")
    assert entries(tmp_path) == []


def test_a_budget_that_runs_out_is_said(run: Run, source: Path, tmp_path: Path) -> None:
    """The leader is used; nothing is stored."""
    arguments = ("run", source, *SHAPE, "--store", tmp_path, "--against", "")
    found = run(*arguments, "--budget-ms", "0.001", "--json")
    value = check_run(found)
    assert not value["settled"]
    assert value["choice"]["note"] == "budget of 0.001 ms ran out: used, not stored"
    assert entries(tmp_path) == []
    assert "note: budget of 0.001 ms ran out" in run(*arguments, "--budget-ms", "0.001").err


def test_compile_writes_a_pack_that_inspect_reads(run: Run, source: Path, tmp_path: Path) -> None:
    """The JSON of both is the manifest; a second compile gives the same bytes."""
    out = tmp_path / "pack"
    arguments = ("compile", source, "--target", "cpu", "--target", "vulkan", "-o", out)
    compiled = run(*arguments, "--json")
    assert compiled.code == 0, compiled.err
    manifest = manifest_of(out)
    text = (out / "manifest.json").read_text()
    inspected = run("inspect", out, "--json")
    assert (inspected.code, inspected.err) == (0, "")
    assert inspected.json == json.loads(text)
    assert compiled.json["kernels"] == inspected.json["kernels"]
    assert run(*arguments).code == 0
    assert (out / "manifest.json").read_text() == text
    table = run("inspect", out)
    assert (table.code, table.err) == (0, "")
    assert all(r.identity.member in table.out for r in manifest.kernels[0].members)


def test_inspect_refuses_what_is_damaged(run: Run, packs: Packs, tmp_path: Path) -> None:
    pack = copied(packs.path("matmul_f32"), tmp_path / "pack")
    module = next(pack.rglob("*.vmfb"))
    module.write_bytes(module.read_bytes()[:-1])
    run("inspect", pack).check_refused(1, "the file is damaged")
    run("inspect", pack, "--json").check_refused(1, str(module))


def test_processes(source: Path, packs: Packs, tmp_path: Path) -> None:
    """The main job in a process of its own; a source alone means compile."""
    common = ("--cache", packs.cache)
    ran = run_process(
        *("lowering", "run", source, "--shape", "64x64x64", "--store", tmp_path / "store"),
        *("--against", "", "--json", *common),
    )
    check_run(ran)
    compiled = run_process("lowering", source, "-o", tmp_path / "pack", *common)
    assert compiled.code == 0, compiled.err
    assert "matmul_f32" in compiled.out
    run_process("lowering", "run", source).check_refused(2, "required: --shape")
