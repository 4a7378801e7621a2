"""Readers beside the code objects: the loadable module, NVIDIA's assembler, cubins, listings."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.errors import CompileError, DeadlineError, FormatError
from dialects.member import Tile
from kernel_sources import built, code_of, kernel, records
from lowering.artifacts.assembler import Assembled, assemble
from lowering.artifacts.cubin import read_cubin
from lowering.artifacts.elf import read_host_elf
from lowering.artifacts.listing import count_matrix_instructions
from lowering.artifacts.ptx import read_ptx
from lowering.artifacts.vmfb import read_cuda_exports
from lowering.build import Build
from lowering.builder import source_text
from lowering.target import parse_target
from lowering.tiles.ptx_text import PtxText
from lowering.tools import find_tool

CUDA, ROCM, CPU = "cuda:sm_80", "rocm:gfx1100", "cpu:x86-64-v3"
SPILLS = Tile(m=64, n=64, k=4, thread_m=16, thread_n=16)  # 256 sums a lane, 255 registers
PTXAS = find_tool("ptxas")
needs_ptxas = pytest.mark.skipif(PTXAS is None, reason="no ptxas is at hand")


@pytest.fixture(scope="module")
def result(compile_cache: Path) -> Build:
    """One kernel of one member on three targets."""

    targets = [parse_target(t) for t in (CUDA, ROCM, CPU)]
    return built(source_text([kernel()]), targets, compile_cache)


@pytest.fixture(scope="module")
def ptx(result: Build) -> bytes:
    return code_of(result, records(result)[0])


@pytest.fixture(scope="module")
def cubin(ptx: bytes) -> bytes:
    return assembled(ptx).cubin


def assembled(ptx: bytes, isa: str = "sm_80") -> Assembled:
    """What the assembler at hand says."""
    if PTXAS is None:
        pytest.skip("no ptxas is at hand")
    found = assemble(ptx, isa, PTXAS, 60.0, where="x", entry="gemm")
    assert found is not None
    return found


def vmfb(result: Build) -> bytes:
    """The loadable module of the CUDA record."""
    record = records(result)[0]
    assert record.files is not None
    return result.files[record.files.vmfb]


def test_module_says_how_it_launches(result: Build) -> None:
    """Two tiles of 16 x 16 f32, twice, in the dynamic block, which PTX itself does not size."""
    (export,) = (e for e in read_cuda_exports(vmfb(result), where="x") if e.kernel == "gemm")
    assert (export.block, export.dynamic_shared_bytes) == ((16, 1, 1), 4096)
    assert records(result)[0].footprint.dynamic_shared_bytes == 4096


def test_a_module_without_executables(result: Build) -> None:
    record = records(result)[2]
    assert record.files is not None
    assert read_cuda_exports(result.files[record.files.vmfb], where="x") == ()


@pytest.mark.parametrize("content", [b"", b"PK", b"nonsense" * 40])
def test_no_module(content: bytes) -> None:
    with pytest.raises(FormatError, match="damaged module"):
        read_cuda_exports(content, where="x")


@settings(max_examples=80)
@given(data=st.data())
def test_a_damaged_executable(result: Build, data: st.DataObject) -> None:
    """Offsets that lead anywhere are read, or refused with a typed error."""
    with zipfile.ZipFile(io.BytesIO(vmfb(result))) as archive:
        name = next(n for n in archive.namelist() if "cuda" in n)
        content = bytearray(archive.read(name))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(60, 260))] = data.draw(st.integers(0, 255))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, bytes(content))
    with suppress(FormatError):
        assert len(read_cuda_exports(buffer.getvalue(), where="x")) < 1 << 16


def test_registers_are_null_without_an_assembler(result: Build) -> None:
    used = records(result)[0].footprint
    assert (used.registers, used.spill_bytes, used.spill_store_bytes) == (None, None, None)
    assert used.wave_width == 32


@needs_ptxas
def test_assembler_and_cubin_agree(ptx: bytes, cubin: bytes) -> None:
    said, found = assembled(ptx), read_cubin(cubin, where="x", entry="gemm")
    assert found.isa == "sm_80"
    assert found.registers == said.registers
    assert 16 < said.registers <= 255
    assert found.frame_bytes == said.frame_bytes == 0
    assert found.static_shared_bytes == said.static_shared_bytes == 0
    assert found.max_threads == (16, 1, 1)


@needs_ptxas
def test_spills_are_read(compile_cache: Path) -> None:
    """Registers, frame and stores; the gate fires on them."""
    text = source_text([kernel(None, SPILLS)])
    with_tool = built(text, CUDA, compile_cache, assembler=PTXAS, warn=True)
    (record,) = records(with_tool)
    used = record.footprint
    assert used.registers == 255
    assert used.spill_bytes
    assert used.spill_store_bytes
    assert [g.gate for g in record.gates if g.status == "warned"] == ["spill"]


def test_a_frame_without_spills_is_no_spill() -> None:
    """It holds an array that is indexed at run time."""
    frame = Assembled(
        registers=40,
        frame_bytes=64,
        spill_store_bytes=0,
        spill_load_bytes=0,
        static_shared_bytes=0,
        cubin=b"",
    )
    assert frame.spill_bytes == 0
    assert replace(frame, spill_store_bytes=4).spill_bytes == 64


@needs_ptxas
@pytest.mark.parametrize("old", [".version 99.0", ".target sm_80"])
def test_an_assembler_that_is_too_old_says_nothing(ptx: bytes, old: str) -> None:
    """For a version or an ISA that it does not know."""
    assert PTXAS is not None
    if old.startswith(".version"):
        newer, isa = ptx.replace(b".version 7.0", old.encode()), "sm_80"
        assert newer != ptx
    else:
        newer, isa = ptx, "sm_999"
    assert assemble(newer, isa, PTXAS, 60.0, where="x") is None


@needs_ptxas
def test_wrong_code_fails_by_name(ptx: bytes) -> None:
    assert PTXAS is not None
    wrong = ptx.replace(b"fma.rn.f32", b"fma.nonsense", 1)
    with pytest.raises(CompileError, match="the assembler refused the module"):
        assemble(wrong, "sm_80", PTXAS, 60.0, where="x")


def script(folder: Path, text: str) -> Path:
    """A tool that does what ``text`` says."""
    file = folder / "tool"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_the_deadline_holds_for_the_assembler(tmp_path: Path) -> None:
    tool = script(tmp_path, "sleep 60")
    with pytest.raises(DeadlineError, match=r"the assembler ran past its deadline of 0.2 s"):
        assemble(b"", "sm_80", tool, 0.2, where="x")


def test_an_assembler_that_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cannot run the assembler: No such file"):
        assemble(b"", "sm_80", tmp_path / "none", 1.0, where="x")


def test_an_assembler_that_says_nothing(tmp_path: Path) -> None:
    tool = script(tmp_path, 'for last; do :; done; : > "$(dirname "$last")/kernel.cubin"')
    with pytest.raises(CompileError, match="did not say what the kernel takes"):
        assemble(b"", "sm_80", tool, 10.0, where="x")


@needs_ptxas
def test_every_cut_of_a_cubin_is_refused(cubin: bytes) -> None:
    for size in {*range(0, 70), *range(70, len(cubin), len(cubin) // 30), len(cubin) - 1}:
        with pytest.raises(FormatError, match="x: "):
            read_cubin(cubin[:size], where="x")


def test_other_elf_files_are_no_cubin(result: Build) -> None:
    with pytest.raises(FormatError, match="no cubin: an ELF of EM_X86_64"):
        read_cubin(code_of(result, records(result)[2]), where="x")


def test_host_code(result: Build) -> None:
    """It says which processor it is for, and nothing of registers."""
    found = read_host_elf(code_of(result, records(result)[2]), where="x")
    assert found.machine == "x86_64"
    assert found.code_bytes > 100


def test_listing_of_amd_code(result: Build) -> None:
    """The software tile has no matrix instruction, and its listing is in the pack."""
    record = records(result)[1]
    assert record.files is not None
    assert record.files.assembly is not None
    listing = result.files[record.files.assembly]
    assert b"v_fma" in listing
    assert count_matrix_instructions(listing) == 0
    assert [g.count for g in record.groups] == [0]


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", 1),
        ("\tv_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]", 1),
        ("\tv_swmmac_f32_16x16x32_f16 v[0:7], v[8:11], v[12:19], v20", 1),
        ("\tv_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", 1),
        ("; v_wmma_f32_16x16x16_f16 in a remark", 0),
        ("\tv_fma_f32 v0, v1, v2, v3", 0),
    ],
)
def test_matrix_instructions_of_amd(line: str, count: int) -> None:
    assert count_matrix_instructions(f"{line}\n".encode()) == count


def test_aligned_instructions_are_counted_as_they_are_written() -> None:
    """What the writer of kernels counted is what the reader finds in its text."""
    ir = PtxText()
    texts = (
        "wgmma.fence.sync.aligned;",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        "{ .reg .pred p; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {}, $0, $1, p; }",
        "wgmma.fence.sync.aligned;",
    )
    for text in texts:
        ir.asm(text)
    found = read_ptx("\n".join(texts).encode()).aligned
    assert found == dict(sorted(ir.aligned.items()))
    assert found["wgmma.fence.sync.aligned"] == 2
    assert found["wgmma.mma_async.sync.aligned"] == 1


def test_directives_of_ptx() -> None:
    text = b".version 8.3\n.target sm_90a\n.entry f()\n.maxntid 64, 2, 1\n.minnctapersm 3\n"
    found = read_ptx(text + b".maxnreg 96\n{ bar.sync 0; }")
    assert (found.version, found.target, found.max_threads) == ((8, 3), "sm_90a", (64, 2, 1))
    assert (found.min_resident, found.max_registers, found.aligned) == (3, 96, {})


@pytest.mark.parametrize("name", ["ptxas", "spirv-dis", "no-such-tool"])
def test_tools_are_found_or_absent(name: str) -> None:
    found = find_tool(name)
    assert found is None or (found.name == name and found.is_file())
    assert name != "no-such-tool" or found is None


READERS: tuple[Callable[..., object], ...] = (read_cubin, read_host_elf)


@given(content=st.binary(max_size=120))
def test_other_bytes_are_no_code(content: bytes) -> None:
    for read in READERS:
        with pytest.raises(FormatError):
            read(content, where="x")
