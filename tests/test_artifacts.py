"""Readers of what the back ends made: right on real code, a typed error on anything else."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.errors import FormatError
from kernel_sources import TILE, built, code_of, kernel, records
from lowering.artifacts.elf import elf_hash, read_hsaco
from lowering.artifacts.ptx import ptx_hash, read_ptx
from lowering.artifacts.spirv import read_spirv
from lowering.build import BuildOptions, lower
from lowering.builder import dense, source_text
from lowering.compile import CompileOptions, Job, compile_one
from lowering.target import parse_target

SPIRV, PTX, HSACO = "vulkan", "cuda:sm_80", "rocm:gfx1100"
KERNEL = kernel(dense("f16"))


@pytest.fixture(scope="module")
def code(compile_cache: Path) -> dict[str, bytes]:
    """Device code of one kernel for each back end."""
    targets = [parse_target(t) for t in ("cpu:x86-64-v3", SPIRV, PTX, HSACO)]
    result = built(source_text([KERNEL]), targets, compile_cache)
    return {r.identity.target: code_of(result, r) for r in records(result)}


def refusal(read: Callable[..., object], content: bytes) -> FormatError | None:
    """What a reader raises, when it does; nothing but this error may come out of it."""
    try:
        read(content, where="code")
    except FormatError as error:
        return error
    return None


def test_spirv(code: dict[str, bytes]) -> None:
    """Sizes are what the emitter asked for: 16 lanes, two tiles of 16 x 16 f32."""
    found = read_spirv(code[SPIRV], where="code")
    assert found.local_size == (16, 1, 1)
    assert found.workgroup_bytes == 2 * 2 * TILE.m * TILE.k * 4
    assert found.matrix_instructions == 0
    assert 1 in found.capabilities  # Shader
    assert found.version >= (1, 3)


def test_every_cut_of_spirv_is_refused(code: dict[str, bytes]) -> None:
    """By words and by bytes; at least the function's end is missing."""
    whole = code[SPIRV]
    cuts = {*range(0, 40), *range(20, len(whole), 4 * 7), len(whole) - 4, len(whole) - 1}
    for size in cuts:
        with pytest.raises(FormatError, match=r"code: .*(cut off|damaged|starts with)"):
            read_spirv(whole[:size], where="code")


@settings(max_examples=200)
@given(data=st.data())
def test_garbage_spirv(code: dict[str, bytes], data: st.DataObject) -> None:
    """Words that were changed at random are read, or refused with a typed error."""
    words = list(struct.unpack(f"<{len(code[SPIRV]) // 4}I", code[SPIRV]))
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(words) - 1))
        words[position] = data.draw(st.integers(0, 80) | st.integers(0, 2**32 - 1))
    error = refusal(read_spirv, struct.pack(f"<{len(words)}I", *words))
    assert error is None or error.where == "code"


def test_types_that_hold_themselves() -> None:
    """An array of itself has no size."""
    header = [0x07230203, 0x10600, 0, 10, 0]
    array = [4 << 16 | 28, 5, 5, 5]
    pointer = [4 << 16 | 32, 6, 4, 5]
    variable = [4 << 16 | 59, 6, 7, 4]
    end = [1 << 16 | 56]
    words = [*header, *array, *pointer, *variable, *end]
    with pytest.raises(FormatError, match="code: damaged SPIR-V"):
        read_spirv(struct.pack(f"<{len(words)}I", *words), where="code")


def test_ptx(code: dict[str, bytes]) -> None:
    found = read_ptx(code[PTX])
    assert (found.target, found.version) == ("sm_80", (7, 0))
    assert found.max_threads in ((16,), (16, 1, 1))
    assert found.matrix_instructions == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}", 1),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16\nwmma.mma.sync.aligned", 2),
        ("// nothing of the sort\nwgmma.fence.sync.aligned;", 0),
    ],
)
def test_matrix_instructions_in_ptx(text: str, count: int) -> None:
    assert read_ptx(text.encode()).matrix_instructions == count


@given(st.binary(max_size=300))
def test_any_bytes_are_read_as_ptx(content: bytes) -> None:
    """PTX is text that the driver checks: what is not there is None."""
    read_ptx(content)
    assert re.fullmatch(r"[0-9a-f]{64}", ptx_hash(content))
    assert read_ptx(b"").target is None


def test_ptx_hash_is_of_code(code: dict[str, bytes]) -> None:
    """Comments, blank lines and source positions do not count, a changed instruction does."""
    text = code[PTX].decode()
    remarks = '// made elsewhere\n.file 1 "x.mlir"\n\n' + text.replace("{\n", "{\n.loc 1 2 3\n", 1)
    assert ptx_hash(remarks.encode()) == ptx_hash(code[PTX])
    assert ptx_hash(text.replace("fma.rn.f32", "fma.rz.f32", 1).encode()) != ptx_hash(code[PTX])


def test_hsaco(code: dict[str, bytes]) -> None:
    found = read_hsaco(code[HSACO], where="code")
    assert (found.isa, found.wave_width, found.threads) == ("gfx1100", 32, 16)
    assert found.static_shared_bytes == 2 * 2 * TILE.m * TILE.k * 4
    assert found.spill_bytes == 0
    assert 16 < found.registers <= 256
    assert 0 < found.sgprs <= 108


def test_elf_without_metadata(code: dict[str, bytes]) -> None:
    """A processor's code object is one, but no AMD GPU's."""
    with pytest.raises(FormatError, match=r"code: .*no AMD GPU metadata note"):
        read_hsaco(code["cpu:x86-64-v3"], where="code")


@pytest.mark.parametrize("target", [HSACO, "cpu:x86-64-v3"])
def test_cut_off_elf(code: dict[str, bytes], target: str) -> None:
    """The section table is at the end, so a cut of any length shows."""
    whole = code[target]
    for size in {*range(0, 80), *range(80, len(whole), len(whole) // 40), len(whole) - 1}:
        for read in (read_hsaco, elf_hash):
            with pytest.raises(FormatError, match="code: "):
                read(whole[:size], where="code")


@settings(max_examples=150)
@given(data=st.data())
def test_garbage_elf(code: dict[str, bytes], data: st.DataObject) -> None:
    spoilt = bytearray(code[HSACO])
    for _ in range(data.draw(st.integers(1, 6))):
        # most of it is machine code, the ends are what can lead a reader astray
        end = len(spoilt)
        position = data.draw(st.integers(0, 1400) | st.integers(end - 2400, end - 1))
        spoilt[position] = data.draw(st.integers(0, 255))
    for read in (read_hsaco, elf_hash):
        error = refusal(read, bytes(spoilt))
        assert error is None or error.where == "code"


@given(content=st.binary(max_size=200))
def test_other_bytes_are_no_code_object(content: bytes) -> None:
    for read in (read_hsaco, elf_hash, read_spirv):
        with pytest.raises(FormatError):
            read(content, where="code")


def test_elf_hash_does_not_see_names(compile_cache: Path) -> None:
    """The same kernel under a longer entry name: another file, another layout, the same hash."""
    (candidate,), _ = lower(source_text([KERNEL]), "x", parse_target(HSACO), BuildOptions())
    texts = [candidate.text, candidate.text.replace("@gemm(", "@an_entry_with_a_long_name(")]
    texts[1] = texts[1].replace("export public @gemm ", "export public @an_entry_with_a_long_name ")
    texts[1] = texts[1].replace("::@gemm[", "::@an_entry_with_a_long_name[")
    options = CompileOptions(cache=compile_cache)
    first, renamed = (compile_one(Job(name="x", text=t), options).code for t in texts)
    assert first is not None
    assert renamed is not None
    assert b"an_entry_with_a_long_name" in renamed
    assert first != renamed
    assert elf_hash(first, where="x") == elf_hash(renamed, where="x")


@pytest.mark.parametrize("section", [".text", ".rodata"])
def test_elf_hash_sees_every_byte_of_code(code: dict[str, bytes], section: str) -> None:
    """Of the kernels, which have no symbols of their own, and of the constants that they read."""
    whole = code["cpu:x86-64-v3"]
    found = ELFFile(io.BytesIO(whole)).get_section_by_name(section)
    assert found is not None
    start, size = found["sh_offset"], found["sh_size"]
    good = elf_hash(whole, where="x")
    for position in {0, size // 3, size // 2, size - 1}:
        spoilt = bytearray(whole)
        spoilt[start + position] ^= 1
        assert elf_hash(bytes(spoilt), where="x") != good
