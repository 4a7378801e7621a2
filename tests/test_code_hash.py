"""The code hash changes with anything that is emitted, and with nothing that code is called."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.declarations import Occupancy
from dialects.expressions import Expression
from dialects.member import Tile
from dialects.operands import EpilogueStep
from kernel_sources import TILE, built, code_of, kernel, records
from lowering.artifacts.elf import elf_hash
from lowering.artifacts.ptx import ptx_hash
from lowering.artifacts.spirv import spirv_hash, spirv_instructions, spirv_words
from lowering.build import Build, BuildOptions, Source, build_sources, lower
from lowering.builder import dense, source_text
from lowering.compile import CompileOptions, Job, compile_one
from lowering.target import parse_target

CUDA, VULKAN, ROCM, CPU = "cuda:sm_80", "vulkan", "rocm:gfx1100", "cpu:x86-64-v3"
TARGETS = (CUDA, VULKAN, ROCM, CPU)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,14}", fullmatch=True)
# Opcodes of remarks, and of the entry point, whose name does not count (SPIR-V 1.6, section 3)
REMARKS = {2, 3, 4, 5, 6, 7, 8, 317, 330}
ENTRY_POINT = 15


@pytest.fixture(scope="module")
def result(compile_cache: Path) -> Build:
    return built(source_text([kernel()]), [parse_target(t) for t in TARGETS], compile_cache)


@pytest.fixture(scope="module")
def ptx(result: Build) -> str:
    return code_of(result, records(result)[0]).decode()


@pytest.fixture(scope="module")
def spirv(result: Build) -> bytes:
    return code_of(result, records(result)[1])


@settings(max_examples=100)
@given(name=NAMES)
def test_renaming_ptx_does_not_change_it(ptx: str, name: str) -> None:
    """The entry and its parameters, even where the new name is a mnemonic."""
    renamed = re.sub(r"\bgemm(?=\(|_param_\d)", name, ptx)
    assert ptx_hash(renamed.encode()) == ptx_hash(ptx.encode())
    assert name == "gemm" or renamed != ptx


@settings(max_examples=150)
@given(data=st.data())
def test_any_change_of_ptx_changes_it(ptx: str, data: st.DataObject) -> None:
    """Another character in any line of code, a line less, a line twice, two lines swapped."""
    lines = ptx.splitlines()
    code = [
        i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("//")
    ]
    place = data.draw(st.sampled_from(code))
    how = data.draw(st.sampled_from(["character", "drop", "repeat", "swap"]))
    line = lines[place]
    if how == "character":
        column = data.draw(st.integers(0, len(line.rstrip()) - 1))
        if lines[place][column] in "gem" and "gemm" in line:
            return  # what it is called
        lines[place] = line[:column] + ("x" if line[column] != "x" else "y") + line[column + 1 :]
    elif how == "drop":
        del lines[place]
    elif how == "repeat":
        lines.insert(place, line)
    else:
        other = data.draw(st.sampled_from(code))
        if lines[other] == line:
            return
        lines[place], lines[other] = lines[other], line
    assert ptx_hash("\n".join(lines).encode()) != ptx_hash(ptx.encode())


def rebuilt(spirv: bytes, name: str) -> bytes:
    """The module with other names and other remarks."""
    words = list(spirv_words(spirv, where="x"))
    made = [words[0], words[1], 99, *words[3:5]]
    text = name.encode() + bytes(4 - len(name) % 4)
    literal = struct.unpack(f"<{len(text) // 4}I", text)
    remark = (len(literal) + 1 << 16 | 330, *literal)
    for opcode, operands in spirv_instructions(tuple(words), where="x"):
        if opcode in REMARKS:
            continue
        if opcode == ENTRY_POINT:
            size = next(
                i + 1
                for i, w in enumerate(operands[2:])
                if 0 in struct.unpack("4B", struct.pack("<I", w))
            )
            operands = (*operands[:2], *literal, *operands[2 + size :])
        made += [len(operands) + 1 << 16 | opcode, *operands]
    return struct.pack(f"<{len(made) + len(remark)}I", *made, *remark)


@settings(max_examples=60)
@given(name=NAMES)
def test_renaming_spirv_does_not_change_it(spirv: bytes, name: str) -> None:
    assert spirv_hash(rebuilt(spirv, name), where="x") == spirv_hash(spirv, where="x")


@settings(max_examples=150)
@given(data=st.data())
def test_any_change_of_spirv_changes_it(spirv: bytes, data: st.DataObject) -> None:
    """Any bit of any operand or opcode that is not a remark."""
    words = list(spirv_words(spirv, where="x"))
    places, position = [], 5
    while position < len(words):
        count, opcode = words[position] >> 16, words[position] & 0xFFFF
        if opcode not in REMARKS and opcode != ENTRY_POINT:
            places += range(position + 1, position + count)
        position += count
    place = data.draw(st.sampled_from(places))
    words[place] ^= 1 << data.draw(st.integers(0, 31))
    changed = struct.pack(f"<{len(words)}I", *words)
    assert spirv_hash(changed, where="x") != spirv_hash(spirv, where="x")


@pytest.mark.parametrize("target", [CUDA, VULKAN, ROCM])
def test_a_longer_entry_name_does_not_change_it(target: str, compile_cache: Path) -> None:
    """Compiled anew under another name, by every back end that lets device code be told apart.

    A host library keeps the names of its entries, which our emitters fix, among its constants.
    """
    resolved = parse_target(target)
    (candidate,), _ = lower(source_text([kernel()]), "x", resolved, BuildOptions())
    renamed = re.sub(r"@gemm(?=[( \[])", "@quite_another_entry", candidate.text)
    renamed = renamed.replace("util.func public @quite_another_entry", "util.func public @gemm")
    jobs = [Job(name="x", text=t) for t in (candidate.text, renamed)]
    codes = [compile_one(j, CompileOptions(cache=compile_cache)).code for j in jobs]
    first, second = (c or b"" for c in codes)
    assert b"quite_another_entry" in second
    hashes: dict[str, Callable[[bytes], str]] = {
        CUDA: ptx_hash,
        VULKAN: partial(spirv_hash, where="x"),
        ROCM: partial(elf_hash, where="x"),
    }
    assert hashes[target](first) == hashes[target](second)


@settings(max_examples=4)
@given(
    change=st.sampled_from(["thread_m", "thread_n", "k", "constant", "min_resident"]),
    name=NAMES.filter(lambda n: not n.startswith("gemm")),
)
def test_what_is_emitted_decides(
    result: Build, compile_cache: Path, change: str, name: str
) -> None:
    """A parameter, a constant or a declared bound changes it; another kernel name does not."""
    epilogue = (EpilogueStep(op="mul", constant=1.5),) if change == "constant" else ()
    tile: Tile = TILE
    if change in ("thread_m", "thread_n"):
        tile = replace(TILE, **{change: 2})
    elif change == "k":
        tile = replace(TILE, k=8)
    bound = Expression("2") if change == "min_resident" else None
    made = kernel(
        dense("f32", epilogue=epilogue), tile, name=f"k_{name}",
        occupancy=Occupancy(min_resident=bound),
    )  # fmt: skip
    changed = built(source_text([made]), CUDA, compile_cache)
    assert records(changed)[0].identity.code_hash != records(result)[0].identity.code_hash
    plain = built(source_text([kernel(name=f"k_{name}")]), CUDA, compile_cache)
    assert records(plain)[0].identity.code_hash == records(result)[0].identity.code_hash


def test_order_and_files_do_not_matter(result: Build, compile_cache: Path) -> None:
    """Kernels and sources in another order, at other paths."""
    texts = [source_text([kernel(name="one")]), source_text([kernel(dense("f16"), name="two")])]
    options = BuildOptions(compile=CompileOptions(cache=compile_cache))

    def hashes(sources: list[Source]) -> dict[str, str | None]:
        made = build_sources(sources, [parse_target(VULKAN)], options).manifest
        return {k.kernel: k.members[0].identity.code_hash for k in made.kernels}

    first = hashes([Source(text=t, name=f"{i}.mlir") for i, t in enumerate(texts)])
    second = hashes([Source(text=t, name="/else/where.mlir") for t in reversed(texts)])
    assert first == second
    assert first["one"] == records(result)[1].identity.code_hash
