"""``python -m lowering``: compile, opt, passes and inspect, as a shell sees them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from command_lines import Ran, run_main
from dialects.manifest import manifest_from_text
from facts_files import FOLDER
from kernel_sources import SMALL, TILE, source
from lowering.cli import main

CPU = ("--target", "cpu:x86-64-v3")
Command = Callable[..., Ran]


@pytest.fixture
def lowering(capsys: pytest.CaptureFixture[str], compile_cache: Path) -> Command:
    """The command line with the tests' compile cache where it compiles."""

    def run(*arguments: object) -> Ran:
        compiles = arguments and arguments[0] not in ("opt", "passes", "inspect")
        cache = ("--cache", compile_cache) if compiles else ()
        return run_main(main, capsys, *arguments, *cache)

    return run


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    """A source with one kernel of one member."""
    file = tmp_path / "gemm.mlir"
    file.write_text(source())
    return file


def test_the_sub_command_may_be_left_out(lowering: Command, kernel_file: Path) -> None:
    """Options before the source or after it, a table or the manifest."""
    table = lowering(kernel_file, *CPU)
    assert lowering(*CPU, kernel_file) == table
    assert lowering("compile", kernel_file, *CPU) == table
    assert table.code == 0
    assert "16x16x16_t4x4" in table.out
    assert "note: f32*f32->f32 on cpu:x86-64-v3: software" in table.err
    found = lowering(kernel_file, *CPU, "--json")
    (kernel,) = found.json["kernels"]
    assert kernel["kernel"] == "gemm"
    assert [m["identity"]["target"] for m in kernel["members"]] == ["cpu:x86-64-v3"]


def test_source_from_standard_input(lowering: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(source()))
    assert lowering("-", *CPU).code == 0
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense"))
    lowering("opt", "-", "-p", "canonicalize").check_refused(1, "-:1:1: error: custom op")


def test_compile_and_inspect(lowering: Command, kernel_file: Path, tmp_path: Path) -> None:
    """What was written is what is shown."""
    out = tmp_path / "pack"
    made = lowering("compile", kernel_file, *CPU, "--target", "vulkan", "-o", out, "--json")
    assert made.code == 0
    assert lowering("inspect", out, "--json").json == {
        **made.json,
        "digest": manifest_from_text((out / "manifest.json").read_bytes(), where="x").digest,
    }
    shown = lowering("inspect", out)
    assert (shown.code, shown.err) == (0, "")
    assert "software" in shown.out
    flipped = next(out.rglob("*.spv"))
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"\1")
    lowering("inspect", out).check_refused(1, "the file is damaged")


def test_all_failures_are_lines_and_records(lowering: Command, tmp_path: Path) -> None:
    """Two kernels that are wrong: two lines, two records, nothing written."""
    text = source(name="one") + source(name="two")
    file = tmp_path / "two.mlir"
    file.write_text(text.replace('"M", "N", "K"', '"M", "N"'))
    found = lowering("compile", file, *CPU, "-o", tmp_path / "pack", "--json")
    assert found.code == 1
    lines = found.err.splitlines()
    assert [line.startswith(f"{file}:") for line in lines] == [True, True]
    assert ["'one'" in lines[0], "'two'" in lines[1]] == [True, True]
    failures = found.json["failures"]
    assert [f["kind"] for f in failures] == ["unsupported"] * 2
    assert [f"{f['where']}: error: {f['message']}" for f in failures] == lines
    assert [p.name for p in tmp_path.iterdir()] == ["two.mlir"]


def test_what_no_target_has_room_for(lowering: Command, tmp_path: Path) -> None:
    """A part with 64 B of workgroup memory: nothing is built, each candidate is named."""
    file = tmp_path / "gemm.mlir"
    file.write_text(source(None, TILE, SMALL))
    facts = tmp_path / "part.json"
    facts.write_text('{"schema_version": 1, "backend": "vulkan", "shared_bytes_per_block": 64}')
    found = lowering("compile", file, "--target", facts, "-o", tmp_path / "pack")
    found.check_refused(1, "gate code: no device code of kernel 'gemm' for vulkan: 16x16x16_t4x4")
    assert "4x4x4_t2x2/software: shared 256 B > 64 B per block (R3)" in found.err
    assert not (tmp_path / "pack").exists()
    warned = lowering("compile", file, "--target", facts, "--gates=warn")
    assert warned.code == 0
    assert "note: gate code: no device code" in warned.err
    assert "refused: shared 4096 B" in warned.out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--target", "tpu"), 1, "target 'tpu' is not one of cpu, cuda:sm_NN"),
        (("--target", ""), 1, "target '' is not one of"),
        (("--target", "/dev/null/x.json"), 1, "cannot read facts file: Not a directory"),
        (("--target", "vulkan", "--target", FOLDER / "vulkan-h200.json"), 2, "two targets are"),
        ((*CPU, *CPU), 2, "two targets are called 'cpu:x86-64-v3'"),
        ((*CPU, "--deadline", "nan"), 2, "--deadline must be within 0 and 1e+06 seconds"),
        ((*CPU, "--deadline", "inf"), 2, "--deadline must be within"),
        ((*CPU, "--deadline", "-1"), 2, "--deadline must be within"),
        ((*CPU, "--jobs", "0"), 2, "--jobs must be positive"),
        ((*CPU, "--body", "none"), 1, "body 'none' is not one of"),
        ((*CPU, "--body", "software"), 1, "no member can be built for cpu:x86-64-v3"),
        ((*CPU, "--tier", "fast"), 2, "--tier"),
        ((*CPU, "--peer", "cublas"), 2, "peer 'cublas' is not one of iree_default"),
        ((*CPU, "-o", ""), 2, "--out must name a directory"),
        ((*CPU, "-o", "/dev/null"), 1, "/dev/null: error: the output exists and is no directory"),
        ((*CPU, "-o", "/dev/null/x"), 1, "/dev/null/x: error: cannot write a pack"),
        ((*CPU, "-o", "x" * 300), 1, "cannot write a pack: File name too long"),
        ((*CPU, "--what"), 2, "unrecognized arguments: --what"),
    ],
    ids=str,
)
def test_bad_arguments(
    lowering: Command, kernel_file: Path, arguments: tuple[object, ...], code: int, text: str
) -> None:
    found = lowering("compile", kernel_file, *arguments)
    assert found.code == code
    assert "Traceback" not in found.err
    (line,) = found.err.splitlines()
    assert "error: " in line
    assert text in line
    assert found.out == ""


def test_opt_goes_on_after_a_bad_part(lowering: Command, tmp_path: Path) -> None:
    """Every part is run, the good ones are printed, and the exit code tells of the bad ones."""
    file = tmp_path / "parts.mlir"
    file.write_text("\n// -----\n".join(["oops", "module {}", "func.func @f(", "module {}"]))
    found = lowering("opt", file, "-p", "cse", "--split-input-file")
    assert found.code == 1
    assert found.out.count("module {") == 2
    where = [line.partition(": error")[0] for line in found.err.splitlines()]
    assert where == [f"{file}:1:1", f"{file}:5:14"]


def test_opt_refuses_dumps_without_a_place(lowering: Command, kernel_file: Path) -> None:
    tree = f"--mlir-print-ir-tree-dir={kernel_file}/dumps"
    found = lowering("opt", kernel_file, "-p", "cse", tree)
    found.check_refused(2, "/dumps: error: cannot write IR dumps: Not a directory")


def test_passes_are_documented(lowering: Command) -> None:
    found = lowering("passes", "--json")
    entries = {p["name"]: p for p in found.json["passes"]}
    assert [*entries] == [
        *("verify-declarations", "scan-launches", "group-operands", "select-tier"),
        *("instantiate", "emit-body", "apply-declarations"),
    ]
    assert entries["verify-declarations"]["options"] == {}
    assert entries["instantiate"]["options"] == {"target": "cpu", "tier": "", "body": ""}
    assert all(len(p["description"].splitlines()) > 2 for p in entries.values())
    text = lowering("passes").out
    assert "instantiate {target=cpu tier='' body=''}\n    Make one function of each" in text
