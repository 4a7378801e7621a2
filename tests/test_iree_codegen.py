"""The body ``iree``: right in the caller's buffers, made as asked, exported as a tuning spec."""

from __future__ import annotations

import dataclasses
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from iree.compiler.tools.binaries import find_tool

from command_lines import run_main
from dialects.errors import CompileError, UnsupportedError
from dialects.facts import DeviceFacts
from dialects.member import Member, Problem, Tile
from dialects.operands import Contraction, EpilogueStep
from kernel_sources import built, lowered, records, source, whole_pipeline
from lowering.artifacts.applied import applied_configs, check_applied, requested_config
from lowering.builder import dense
from lowering.pack import write_pack
from lowering.target import compiler_flags, parse_target
from lowering.tiles.iree_codegen import IreeCodegenBody, compilation_info
from problems import DEVICES
from records import KERNEL, RECORD
from runtime import Session
from runtime.cli import main
from runtime.facts import read_facts
from runtime.family import KernelRef, family_question
from runtime.filter import filter_candidates
from runtime.pack import open_pack
from runtime.proof import awkward_problem, make_case, prove
from runtime.store import Store, StoredChoice, entries
from runtime.tuning_spec import tuning_spec

TILE = Tile(m=16, n=16, k=4, thread_m=4, thread_n=4)
AT = Problem(dims=("M", "N", "K"), sizes=(37, 45, 13))
SPEC_AT = Problem(dims=("M", "N", "K"), sizes=(128, 64, 32))


def pack_of(contraction: Contraction, device: str, folder: Path, cache: Path) -> Path:
    """A pack of one candidate of the body."""
    target = parse_target(f"device:{device}", read_facts)
    write_pack(built(source(contraction, TILE), target, cache, body="iree"), folder)
    return folder


CONTRACTIONS = {
    "f32": dense("f32"),
    "batch, B transposed": dense("f32", batch=True, transposed_b=True),
    "i8": dense("i8", "i32"),
}


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("kind", CONTRACTIONS)
def test_it_is_right_at_sizes_that_do_not_divide(
    kind: str,
    device: str,
    tmp_path: Path,
    compile_cache: Path,
    request: pytest.FixtureRequest,
) -> None:
    """In the caller's buffers, by calls and by the program that is timed."""
    if device == "vulkan":
        request.getfixturevalue("vulkan_device")
    contraction = CONTRACTIONS[kind]
    path = pack_of(contraction, device, tmp_path / "pack", compile_cache)
    with Session(path, device, tuning="off") as session:
        ref = session.reference("gemm")
        (record,) = ref.entry.members
        assert record.needs.contiguous
        executable = session.executable("gemm", record)
        lead = (2,) if contraction.batch else ()
        shapes = [(1, 1, 1), (2, 15, 37), (130, 33, 5)]
        problems = [Problem(dims=ref.entry.dims, sizes=(*lead, *s)) for s in shapes]
        for at in (awkward_problem(ref.entry, record), *problems):
            case = make_case(session.device, ref.entry, at)
            for launches in (0, 3):
                found = prove(session.device, executable, case, whole=True, launches=launches)
                assert found is None, (at, found)


@pytest.mark.parametrize(
    ("strides", "sizes", "message"),
    [
        ({}, (8, 8, 8), None),
        ({"a.0": 8, "b.0": 8, "c.0": 8}, (8, 8, 8), None),
        ({"a.0": 9}, (8, 8, 8), "a.0 = 9 is not the dense 8 (layout)"),
        ({"c.0": 64}, (8, 8, 8), "c.0 = 64 is not the dense 8 (layout)"),
        ({}, (8, 8, 0), "size K is 0 (layout)"),
    ],
)
def test_other_layouts_are_refused_by_name(
    strides: dict[str, int], sizes: tuple[int, ...], message: str | None
) -> None:
    """Of records that need dense operands alone."""
    at = Problem(dims=("M", "N", "K"), sizes=sizes)
    for contiguous in (True, False):
        record = replace(RECORD, needs=replace(RECORD.needs, contiguous=contiguous))
        entry = replace(KERNEL, members=(record,))
        (verdict,) = filter_candidates(entry, DeviceFacts(backend="vulkan"), at, strides or None)
        refused = verdict.refusal.message if verdict.refusal else None
        assert refused == (message if contiguous else None)


@pytest.mark.parametrize(
    ("contraction", "tile", "message"),
    [
        (dense("f32", accumulate=True), TILE, "iree serves no C \\+= A B: it would copy C"),
        (
            dense("f32", epilogue=(EpilogueStep(op="max", constant=0.0),)),
            TILE,
            "iree serves no epilogue",
        ),
        (
            dense("f16", result="f16", epilogue=(EpilogueStep(op="cast", type="f16"),)),
            TILE,
            "iree serves no epilogue",
        ),
        (dense("f32"), replace(TILE, thread_m=0), "iree needs thread_m and thread_n"),
        (dense("f32"), replace(TILE, thread_m=3), "thread tile 3x4 does not divide 16x16"),
        (dense("f32"), replace(TILE, k=128), "iree unrolls k on the CPU: 128 > 64"),
        (dense("f8e4m3"), TILE, r"iree has no f8e4m3 \('a'\)"),
    ],
)
def test_what_it_does_not_serve(contraction: Contraction, tile: Tile, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        lowered(
            source(contraction, tile),
            whole_pipeline("cpu").replace("instantiate{", "instantiate{body=iree "),
        )


def test_it_is_built_for_who_names_it(compile_cache: Path) -> None:
    """A member that names the body, beside one that does not."""
    members = (Member(tile=replace(TILE, k=8)), Member(tile=TILE, body="iree"))
    result = built(source(dense("f32"), members=members), "cpu", compile_cache)
    found = [(r.identity.member, r.identity.body) for r in records(result)]
    assert found == [("16x16x8_t4x4", "cpu_mmt4d"), ("16x16x4_t4x4", "iree")]


def test_the_record_says_what_was_applied(compile_cache: Path) -> None:
    (record,) = records(built(source(dense("f32"), TILE), "cpu", compile_cache, body="iree"))
    assert record.compilation_info == compilation_info(dense("f32"), TILE, parse_target("cpu"))
    (ours,) = records(built(source(dense("f32"), TILE), "cpu", compile_cache))
    assert ours.compilation_info is None


def test_a_configuration_that_was_dropped_fails_by_name() -> None:
    asked = compilation_info(dense("f32"), TILE, parse_target("cpu"))
    translation, config = requested_config(asked, where="here")
    kernel = (
        f"func.func @f() attributes {{translation_info = {translation}}} {{\n"
        f"  %0 = arith.constant {{lowering_config = {config}}} 0 : index\n  return\n}}\n"
    )
    assert applied_configs(kernel, where="here") == [(translation, config)]
    check_applied(asked, [kernel], where="here")
    for dumps in ([], ["module {}"], [kernel.replace("[16, 16, 0]", "[16, 64, 0]")]):
        with pytest.raises(CompileError, match="the compiler dropped the configuration: applied"):
            check_applied(asked, dumps, where="here")


@pytest.fixture
def tuned(tmp_path: Path, compile_cache: Path) -> tuple[Path, Path]:
    """A pack of the body for this processor, and a store in which its member won."""
    path = pack_of(dense("f32"), "local-sync", tmp_path / "pack", compile_cache)
    store = tmp_path / "store"
    _remember(path, store, SPEC_AT, "a4")
    return path, store


def _remember(path: Path, store: Path, at: Problem, align: str, **changes: str) -> None:
    pack = open_pack(path)
    (entry,) = pack.manifest.kernels
    (record,) = entry.members
    question = family_question(
        read_facts("local-sync"),
        KernelRef(pack=pack, entry=entry),
        at,
        feasible=[record],
        survivors=[record],
        layout=f"nn-{align}-acc0",
        cache="hot",
    )
    value = StoredChoice(
        kernel="gemm",
        member=record.identity.member,
        body="iree",
        code_hash=record.identity.code_hash or "",
        margin_permille=100,
        tie=False,
        samples={},
        taken=(),
        clocks=None,
        timer="host",
    )
    value = dataclasses.replace(value, **changes)
    assert Store(store).remember(question.place, question.build, value) is None


PLAIN = """
func.func @model(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)
      outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}
"""


def model_configs(folder: Path, sizes: tuple[int, ...], *flags: str) -> list[tuple[str, str]]:
    """What the compiler applies to a model that is not ours, with these flags."""
    folder.mkdir()
    m, n, k = sizes
    (folder / "model.mlir").write_text(PLAIN.format(m=m, n=n, k=k))
    subprocess.run(
        [
            find_tool("iree-compile"),
            "model.mlir",
            "-o",
            "model.vmfb",
            *compiler_flags(parse_target("device:local-sync", read_facts)),
            "--iree-hal-dump-executable-configurations-to=configs",
            *flags,
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    texts = [path.read_text() for path in sorted((folder / "configs").glob("*.mlir"))]
    return [pair for text in texts for pair in applied_configs(text, where="model")]


def test_a_model_compiled_with_the_spec_gets_the_winners_configuration(
    tuned: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same lowering config and pipeline that our own record was made with."""
    pack, store = tuned
    file = tmp_path / "spec.mlir"
    export = ("store", "export", file, "--iree-spec", "--pack", pack, "--store", store)
    ran = run_main(main, capsys, *export)
    assert (ran.code, ran.out) == (0, f"exported 1 matchers to {file}\n")
    (record,) = open_pack(pack).manifest.kernels[0].members
    wanted = requested_config(record.compilation_info or "", where="record")
    spec = f"--iree-codegen-tuning-spec-path={file}"
    assert model_configs(tmp_path / "with", SPEC_AT.sizes, spec) == [wanted]
    assert model_configs(tmp_path / "without", SPEC_AT.sizes) != [wanted]
    other = (SPEC_AT.sizes[0], 96, 32)
    assert model_configs(tmp_path / "other", other, spec) != [wanted]


def test_what_a_spec_leaves_out_is_said(
    tuned: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pack, store = tuned
    _remember(pack, store, AT, "a2", code_hash="another build")
    _remember(pack, store, AT, "a3", body="cpu_mmt4d")
    _remember(pack, store, SPEC_AT, "a1")  # the same sizes in another layout: one matcher
    export = ("store", "export", tmp_path / "s", "--iree-spec", "--pack", pack, "--store", store)
    ran = run_main(main, capsys, *export, "--json")
    assert ran.json["exported"] == 1
    (left_out,) = ran.json["left_out"]
    assert "nn-a2-acc0: no pack has its code" in left_out
    assert "note: left out: " in ran.err


def test_a_spec_without_winners_is_refused(
    tuned: tuple[Path, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pack, _ = tuned
    file, none = tmp_path / "spec.mlir", tmp_path / "none"
    export = ("store", "export", file, "--store", none)
    ran = run_main(main, capsys, *export, "--iree-spec", "--pack", pack)
    ran.check_refused(1, "no winner is of the body iree: no tuning spec was written")
    for more in (("--iree-spec",), ("--pack", pack)):
        ran = run_main(main, capsys, *export, *more)
        ran.check_refused(2, "--iree-spec and --pack need each other")
    assert not file.exists()


def test_vulkan_reads_no_spec(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    pack, store = tuned
    opened = open_pack(pack)
    (entry,) = opened.manifest.kernels
    (record,) = entry.members
    vulkan = replace(record, identity=replace(record.identity, target="vulkan"))
    manifest = replace(opened.manifest, kernels=(replace(entry, members=(vulkan,)),))
    spec = tuning_spec(entries(store), [replace(opened, manifest=manifest)])
    assert spec.matchers == 0
    assert spec.left_out[0].endswith("the vulkan back end reads no tuning spec")


def test_its_results_match_numpy_through_a_session(tmp_path: Path, compile_cache: Path) -> None:
    path = pack_of(dense("f32"), "local-sync", tmp_path / "pack", compile_cache)
    with Session(path, "local-sync", tuning="off") as session:
        a = np.arange(37 * 13, dtype=np.float32).reshape(37, 13) % 7
        b = np.arange(13 * 45, dtype=np.float32).reshape(13, 45) % 5
        np.testing.assert_array_equal(session.gemm(a, b), a @ b)
    assert IreeCodegenBody.backends == ("cpu", "vulkan")
