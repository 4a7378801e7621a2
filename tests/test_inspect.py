"""``python -m lowering inspect``: what a pack holds, what is absent and why, what changed."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from command_lines import Ran, run_main
from dialects.declarations import Occupancy
from dialects.expressions import Expression
from dialects.manifest import Footprint, Manifest, Record
from facts_files import FOLDER
from golden_files import Golden
from kernel_sources import SMALL, TILE, built, kernel, records, source
from lowering.build import Build
from lowering.builder import source_text
from lowering.cli import main
from lowering.disassemble import Listing, listings
from lowering.pack import write_pack
from lowering.pack_diff import changes, code_diff
from lowering.table import FOOTPRINT, absent_fields, footprint_table, manifest_tables
from lowering.target import parse_target
from lowering.tools import find_tool
from records import MANIFEST, RECORD
from runtime.console import Streams

CPU = "cpu:x86-64-v3"
EVERYWHERE = (
    *("cuda:sm_89", "cuda:sm_90a", "rocm:gfx1100", str(FOLDER / "rocm-gfx1151.json")),
    *("rocm:gfx942", "vulkan", CPU),
)
Command = Callable[..., Ran]


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str]) -> Command:
    return lambda *arguments: run_main(main, capsys, "inspect", *arguments)


def written(result: Build, folder: Path) -> Path:
    write_pack(result, folder)
    return folder


@pytest.fixture(scope="module")
def result(compile_cache: Path) -> Build:
    """One member everywhere; registers of CUDA are unknown, as without an assembler."""
    targets = [parse_target(t) for t in EVERYWHERE]
    return built(source_text([kernel()]), targets, compile_cache)


def printed(*parts: object) -> str:
    """What a command prints where no terminal bounds it."""
    out = io.StringIO()
    Streams(out=out, err=io.StringIO()).table(*parts)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_footprints_of_every_target(result: Build, golden: Golden) -> None:
    """Every field of every record, or a dash: members x targets, with the reasons below."""
    golden.check(printed(*manifest_tables(result.manifest)[1:]))


def test_a_made_up_manifest(golden: Golden) -> None:
    """Tiers with their instruction counts, a refusal with its reason, gates that did not pass."""
    golden.check(printed(*manifest_tables(MANIFEST)))


def test_every_field_of_the_footprint_has_a_column(result: Build) -> None:
    assert tuple(f.name for f in fields(Footprint) if f.name != "sources") == FOOTPRINT
    assert len(footprint_table(result.manifest).columns) == len(FOOTPRINT) + 4


def test_what_is_absent_has_a_reason(result: Build) -> None:
    """Exactly the fields that are null, and none of a record without code."""
    for record in records(result):
        null = [n for n in FOOTPRINT if getattr(record.footprint, n) is None]
        assert [*absent_fields(record)] == null
        assert all(absent_fields(record).values())
    assert absent_fields(replace(records(result)[0], files=None)) == {}


def test_no_record_differs_from_itself(result: Build, tmp_path: Path, inspect: Command) -> None:
    pack = written(result, tmp_path / "pack")
    assert inspect(pack, "--diff", pack).out == "no record differs\n"
    assert inspect(pack, "--diff", pack, "--json").json == {"changes": []}
    assert inspect(pack, "--diff", pack, "--asm", "--json").json == {"changes": [], "code": {}}


def test_what_changed(compile_cache: Path, tmp_path: Path, inspect: Command) -> None:
    """A bound, a member more, a member less: by record and field, and in the code."""
    bounded = Occupancy(min_resident=Expression("4"))
    before = written(built(source(None, TILE), "cuda:sm_80", compile_cache), tmp_path / "a")
    after_text = source(None, TILE, SMALL, occupancy=bounded)
    after = written(built(after_text, "cuda:sm_80", compile_cache), tmp_path / "b")
    found = inspect(before, "--diff", after, "--json").json["changes"]
    name = "16x16x16_t4x4/software@cuda:sm_80"
    assert [(c["record"], c["field"]) for c in found] == [
        (name, "identity.code_hash"),
        ("4x4x4_t2x2/software@cuda:sm_80", ""),
    ]
    assert (found[1]["before"], found[1]["after"]) == (None, "there")
    shown = inspect(before, "--diff", after, "--asm")
    assert "identity.code_hash" in shown.out
    assert "-.minnctapersm 1" in shown.out
    assert "+.minnctapersm 4" in shown.out
    back = inspect(after, "--diff", before, "--json").json["changes"]
    assert (back[1]["before"], back[1]["after"]) == ("there", None)


def test_fields_of_records_that_differ() -> None:
    """Nested ones by their path; digests of whole files are not compared."""
    (entry,) = MANIFEST.kernels
    record = entry.members[0]
    changed = replace(
        record,
        footprint=replace(record.footprint, registers=7, feasible_blocks=(64,)),
        groups=(replace(record.groups[0], count=9), *record.groups[1:]),
        files=replace(record.files, vmfb="elsewhere.vmfb") if record.files else None,
    )
    # both members of the made-up kernel go by one name, so only one is kept
    before, after = (one_record(entry_of) for entry_of in (record, changed))
    found = {c.field: (c.before, c.after) for c in changes(before, after)}
    assert found == {
        "footprint.registers": (None, 7),
        "footprint.feasible_blocks": ([256, 128], [64]),
        "groups[0].count": (8, 9),
    }


def one_record(record: Record) -> Manifest:
    """A manifest of one kernel with that record alone."""
    (entry,) = MANIFEST.kernels
    return replace(MANIFEST, kernels=(replace(entry, members=(record,)),))


def test_code_of_every_target(result: Build, tmp_path: Path, inspect: Command) -> None:
    """PTX and AMD's ISA come without any tool; for the rest it is the text or the reason."""
    pack = written(result, tmp_path / "pack")
    found = inspect(pack, "--asm", "--json").json["listings"]
    levels = {e["record"].partition("@")[2]: e["code"] for e in found}
    assert ".target sm_90a" in levels["cuda:sm_90a"][0]["text"]
    assert "v_fma" in levels["rocm:gfx1100"][0]["text"]
    assert [c["level"] for c in levels["cuda:sm_89"]] == ["ptx", "sass"]
    assert [c["level"] for c in levels["vulkan"]] == ["spirv"]
    for code in (c for codes in levels.values() for c in codes):
        assert (code["text"] is None) != (code["absent"] is None)
    if find_tool("spirv-dis"):
        assert "OpEntryPoint GLCompute" in levels["vulkan"][0]["text"]
    one = inspect(pack, "--asm", "--member", "16x16x16_t4x4/software@rocm:gfx942")
    assert one.out.startswith("// gemm 16x16x16_t4x4/software@rocm:gfx942 isa\n")
    assert one.out.count("// gemm ") == 1


def test_tools_that_are_not_there() -> None:
    """Each level says what is missing; nothing is made up."""

    def code(record: Record, content: bytes) -> list[Listing]:
        return listings(record, lambda _: content, lambda _: None)

    (spirv,) = code(RECORD, b"")
    assert (spirv.text, spirv.absent) == (None, "no disassembler (spirv-dis) is at hand")
    assert RECORD.files is not None
    cuda = replace(RECORD, files=replace(RECORD.files, code_object="a.ptx"))
    ptx, sass = code(cuda, b".version 8.0")
    assert (ptx.text, sass.absent) == (".version 8.0", "no assembler (ptxas) is at hand")
    refused = replace(RECORD, files=None)
    assert code(refused, b"")[0].absent == "the record has no code"


@pytest.mark.parametrize(("isa", "asked"), [(None, "sm_130"), ("sm_121", "sm_121")])
def test_sass_is_of_the_isa_that_was_built(isa: str | None, asked: str, tmp_path: Path) -> None:
    """Code of a baseline is no code of the target's own ISA, which an assembler may not know."""
    assert RECORD.files is not None
    record = replace(
        RECORD,
        identity=replace(RECORD.identity, target="cuda:sm_130", isa=isa),
        files=replace(RECORD.files, code_object="a.ptx"),
    )
    tool = tmp_path / "ptxas"
    tool.write_text('#!/bin/sh\necho "error: $2"\nexit 1\n')
    tool.chmod(0o755)
    _, sass = listings(record, lambda _: b"", lambda name: tool if name == "ptxas" else None)
    assert sass.absent == f"the assembler refused the module: error: -arch={asked}"


@pytest.mark.skipif(find_tool("ptxas") is None, reason="no ptxas is at hand")
def test_sass_goes_through_the_assembler(result: Build, tmp_path: Path) -> None:
    """A disassembler is given the cubin; one that fails is a reason."""
    record = records(result)[0]
    tool = tmp_path / "nvdisasm"
    tool.write_text('#!/bin/sh\nhead -c 4 "$2" | tail -c 3; echo " $1"\n')
    tool.chmod(0o755)

    def find(name: str) -> Path | None:
        return {"ptxas": find_tool("ptxas"), "nvdisasm": tool}.get(name)

    def read(path: str) -> bytes:
        return result.files[path]

    _, sass = listings(record, read, find)
    assert sass.text == "ELF -c\n"
    tool.write_text("#!/bin/sh\necho cannot >&2\nexit 3\n")
    _, sass = listings(record, read, find)
    assert (sass.text, sass.absent) == (None, "nvdisasm failed: cannot")


def test_diffs_leave_out_what_one_side_lacks() -> None:
    before = [Listing(level="ptx", text="a\nb"), Listing(level="sass", absent="no tool")]
    after = [Listing(level="ptx", text="a\nc"), Listing(level="sass", text="x")]
    assert code_diff(before, after, "n") == [
        *("--- before/n.ptx", "+++ after/n.ptx", "@@ -1,2 +1,2 @@", " a", "-b", "+c"),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--member", "x"), 2, "--member restricts --asm"),
        (("--asm", "--member", "none"), 2, "no member 'none', there is: 16x16x16_t4x4/software@"),
        (("--diff", "/dev/null/none"), 1, "no pack here"),
    ],
)
def test_refusals(
    arguments: tuple[str, ...],
    code: int,
    text: str,
    result: Build,
    tmp_path: Path,
    inspect: Command,
) -> None:
    inspect(written(result, tmp_path / "pack"), *arguments).check_refused(code, text)
