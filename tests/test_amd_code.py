"""Evidence about AMD code is read from its bytes: counts, the main loop, bounds, registers."""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from iree.compiler.tools.binaries import find_tool

from dialects.errors import FormatError
from dialects.member import Tile
from facts_files import FOLDER, fixture_facts
from kernel_sources import built, code_of, records, source
from lowering.artifacts.amd_code import census, decode
from lowering.artifacts.elf import read_hsaco
from lowering.build import Build, BuildOptions, lower
from lowering.builder import dense
from lowering.target import parse_target

SAMPLES = Path(__file__).parent.parent / "samples"
WAVES = Tile(m=32, n=32, k=32, waves_m=1, waves_n=1)
LANES = Tile(m=16, n=16, k=8, thread_m=2, thread_n=2)
# v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7] and s_nop 0 on RDNA; on CDNA
# v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] and v_accvgpr_read_b32 v0, a0
WMMA, NOP, MFMA, MOVE = 0xCC404000_1C022108, 0xBF800000, 0xD3CD0000_04020D04, 0xD3D84000_18000100


def words(*values: int) -> bytes:
    """Machine code: instructions of 8 bytes have their first word on top."""
    code = b""
    for value in values:
        parts = [value] if value >> 32 == 0 else [value >> 32, value & 0xFFFFFFFF]
        code += struct.pack(f"<{len(parts)}I", *parts)
    return code


def branch(opcode: int, distance: int) -> int:
    """An s_cbranch of that many words from the next instruction."""
    return 0xBF800000 | opcode << 16 | distance & 0xFFFF


def test_the_main_loop_is_the_innermost_with_matrix_instructions() -> None:
    """Outer loop of 8, inner of 4 instructions with one matrix instruction, one loop without."""
    code = words(
        *(NOP, NOP, branch(34, -2)),  # from the second on: no matrix instruction in it
        *(NOP, NOP, WMMA, NOP, branch(34, -5)),
        *(NOP, WMMA, branch(34, -12), NOP),
    )
    found = census(code, "gfx1100", where="code")
    assert found.instructions == 12
    assert found.matrix_instructions == 2
    assert found.loop_instructions == 4
    assert found.loop_matrix_instructions == 1
    assert found.loop_share == 0.25


def test_without_a_loop_there_is_no_share() -> None:
    found = census(words(WMMA, branch(34, 1), NOP), "gfx1201", where="code")
    assert found.matrix_instructions == 1
    assert found.loop_share is None


def test_moves_of_accumulators_are_no_products() -> None:
    assert census(words(MFMA, MOVE, NOP), "gfx942", where="code").matrix_instructions == 1


@pytest.mark.parametrize(
    ("isa", "code", "lengths"),
    [
        ("gfx942", words(0x7E0002FF, 0x12345678, NOP), [8, 4]),  # v_mov_b32 v0, literal
        ("gfx942", words(0x8000FF01, 7, NOP), [8, 4]),  # s_sub_u32 with a literal
        ("gfx942", words(0xBA000002, 7, NOP), [8, 4]),  # s_setreg_imm32_b32
        ("gfx1100", words(0xB9800002, 7, NOP), [8, 4]),
        ("gfx1100", words(0xD7000000, 0x000000FF, 7, NOP), [12, 4]),  # VOP3 with a literal
        ("gfx942", words(0xD1000000, 0x000000FF, NOP), [8, 4]),  # which CDNA has not
        ("gfx1100", words(0xCA100080, 0x1E1E0080, NOP), [8, 4]),  # two moves in one
        ("gfx1100", words(0xCA20_0080, 0x1B0466FF, 0x41, NOP), [12, 4]),  # with a literal
        ("gfx1201", words(0xEE05_0000, 0, 0, NOP), [12, 4]),  # global memory, 96 bits
        ("gfx1100", words(0xDC50_0000, 0, NOP), [8, 4]),
    ],
)
def test_lengths(isa: str, code: bytes, lengths: list[int]) -> None:
    assert [i.length for i in decode(code, isa, where="code")] == lengths


@pytest.mark.parametrize(
    ("isa", "code", "message"),
    [
        ("gfx1030", words(NOP), "machine code of gfx1030 is not understood"),
        ("gfx1100", b"\0" * 6, "6 bytes is cut off"),
        ("gfx1100", words(NOP, WMMA)[:8], "no instruction 0xcc404000 at byte 4"),
        ("gfx942", words(NOP, 0xFC000000), "no instruction 0xfc000000 at byte 4"),
        ("gfx1201", words(0xFC000000), "no instruction 0xfc000000 at byte 0"),
    ],
)
def test_what_cannot_be_decoded(isa: str, code: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        census(code, isa, where="code")


@settings(max_examples=200)
@given(code=st.binary(max_size=64), isa=st.sampled_from(["gfx90a", "gfx942", "gfx1100", "gfx1201"]))
def test_any_bytes_are_counted_or_refused(code: bytes, isa: str) -> None:
    try:
        found = list(decode(code, isa, where="code"))
    except FormatError:
        return
    assert sum(i.length for i in found) == len(code)


@pytest.mark.parametrize("target", ["rocm:gfx1100", "rocm:gfx1201", "rocm:gfx942", "rocm:gfx950"])
def test_counts_are_those_of_the_compilers_listing(target: str, tmp_path: Path) -> None:
    """The same instructions, but for delays and padding that only one of the two has."""
    text = source(dense("f16", transposed_b=True), WAVES)
    options = BuildOptions(tier="native")
    candidate = lower(text, "test.mlir", parse_target(target), options)[0][0]
    (tmp_path / "kernel.mlir").write_text(candidate.text)
    subprocess.run(
        [
            *(find_tool("iree-compile"), "kernel.mlir", "-o", "module.vmfb"),
            *("--iree-hal-dump-executable-intermediates-to=.",),
            *("--iree-hal-dump-executable-binaries-to=.",),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (listing,) = tmp_path.glob("*.rocmasm")
    (binary,) = tmp_path.glob("*.hsaco")
    mnemonics = Counter(re.findall(r"^\t([a-z]\w+)", listing.read_text(), re.M))
    padding = mnemonics["s_nop"] + mnemonics["s_delay_alu"]
    found = read_hsaco(binary.read_bytes(), where="code").census
    assert found is not None
    matrix = sum(n for name, n in mnemonics.items() if name.startswith(("v_wmma", "v_mfma")))
    assert found.matrix_instructions == matrix > 0
    filled = 64  # s_nop up to where arguments have been preloaded, and at most that many
    assert -padding <= found.instructions - sum(mnemonics.values()) <= filled


@pytest.fixture(scope="module")
def both(compile_cache: Path) -> Build:
    """A native and a software member on two ISAs."""
    targets = [parse_target(t) for t in ("rocm:gfx1100", "rocm:gfx942")]
    return built(source(dense("f16"), WAVES, LANES), targets, compile_cache)


def test_every_record_has_its_evidence(both: Build) -> None:
    """Matrix instructions in native members alone, the launch's block, the body's wave."""
    for record in records(both):
        assert record.launch is not None
        assert record.launch.block is not None
        count = record.groups[0].count
        assert count is not None
        assert (count > 0) == (record.tier == "native")
        assert (record.footprint.matrix_permille is not None) == (record.tier == "native")
        assert record.footprint.spill_bytes == 0
        assert record.footprint.threads_per_group == record.launch.block[0]
        wave = 64 if "gfx9" in record.identity.target else 32
        assert record.footprint.wave_width == wave
        assert all(g.status == "ok" for g in record.gates)
    assert {r.identity.body for r in records(both)} == {
        *("wmma", "wmma_narrow", "mfma", "mfma_narrow", "software")
    }


def test_code_without_its_matrix_instructions_is_seen(both: Build) -> None:
    """The bytes count, not what was asked: each product replaced by a packed addition."""
    record = next(r for r in records(both) if r.identity.body == "wmma")
    code = code_of(both, record)
    at = [m.start() for m in re.finditer(rb".\x40\x40\xcc", code, re.S) if m.start() % 4 == 0]
    assert len(at) == record.groups[0].count
    for place in at:
        code = code[: place + 2] + b"\x0f" + code[place + 3 :]  # v_pk_add_f16
    found = read_hsaco(code, where="code").census
    assert found is not None
    assert found.matrix_instructions == 0


def test_damaged_code_objects_are_refused(both: Build) -> None:
    code = code_of(both, records(both)[0])
    for content in (b"", code[:100], code[: len(code) // 2]):
        with pytest.raises(FormatError):
            read_hsaco(content, where="code")


QUICK = {("02_matmul_f16.mlir", "gfx1100"), ("04_batch_matmul.mlir", "gfx942")}
FAMILIES = [
    pytest.param(sample, isa, marks=() if (sample, isa) in QUICK else pytest.mark.full)
    for sample in sorted(p.name for p in SAMPLES.glob("0*.mlir"))
    for isa in ("gfx1100", "gfx1151", "gfx1201", "gfx942")
]


@pytest.mark.parametrize(("sample", "isa"), FAMILIES)
def test_no_member_of_a_sample_spills(sample: str, isa: str, compile_cache: Path) -> None:
    """Nor takes more of the register file than a workgroup of its size may."""
    result = built((SAMPLES / sample).read_text(), f"rocm:{isa}", compile_cache)
    made = [r for kernel in result.manifest.kernels for r in kernel.members if r.files]
    assert made
    if (sample, isa) in QUICK:
        assert any(r.tier == "native" for r in made)
    for record in made:
        used = record.footprint
        assert used.spill_bytes == 0, record.name
        assert used.registers is not None
        assert used.registers <= (512 if "gfx9" in isa else 256), record.name


def test_what_is_resident_follows_from_the_facts(compile_cache: Path) -> None:
    """Registers, then lanes of a gfx1151 divided by what the code's own notes say."""
    facts = fixture_facts("rocm-gfx1151")
    path = str(FOLDER / "rocm-gfx1151.json")
    large = Tile(m=128, n=128, k=32, waves_m=2, waves_n=4)
    result = built(source(dense("f16"), large, LANES), path, compile_cache)
    assert facts.registers_per_multiprocessor is not None
    assert facts.threads_per_multiprocessor is not None
    limiters = set()
    for record in records(result):
        notes = read_hsaco(code_of(result, record), where="code")
        assert notes.threads is not None
        rooms = {
            "registers": facts.registers_per_multiprocessor // (notes.registers * notes.threads),
            "threads": facts.threads_per_multiprocessor // notes.threads,
        }
        used = record.footprint
        assert used.occupancy_limiter is not None
        assert used.resident_groups == rooms[used.occupancy_limiter] == min(rooms.values())
        limiters.add(used.occupancy_limiter)
    assert limiters == {"registers", "threads"}


def test_the_back_end_is_told_the_block(both: Build) -> None:
    """Without the bound a kernel is compiled for 1024 lanes, and for fewer registers each."""
    for record in records(both):
        assert record.launch is not None
        assert record.launch.block is not None
        assert read_hsaco(code_of(both, record), where="code").threads == record.launch.block[0]
