"""What an author bounds: the numbers of each member, the back end's output, a build that fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.declarations import MOST, Hold, Limits, Occupancy, member_limits
from dialects.errors import DeclarationError, Failures
from dialects.expressions import Expression
from dialects.member import Member, Tile
from dialects.operands import EpilogueStep
from facts_files import FOLDER
from kernel_sources import TILE, code_of, records, source
from kernel_sources import built as built_by_all
from lowering.artifacts.ptx import read_ptx
from lowering.build import Build, BuildOptions, build
from lowering.builder import dense
from lowering.compile import CompileOptions
from lowering.gates import GateError
from lowering.instructions import waves_by_registers
from lowering.target import parse_target

MEMBER = Tile(m=64, n=64, k=4, thread_m=8, thread_n=8)  # 64 threads
HEAVY = Tile(m=128, n=64, k=8, thread_m=8, thread_n=8)  # 128, and 12 KiB of workgroup memory
WAVES = Tile(m=64, n=32, k=16, waves_m=2, waves_n=1)


def built(text: str, target: Any, cache: Path, **options: Any) -> Build:
    """A build with one candidate a member on a GPU target."""
    gpu = not isinstance(target, list | tuple) and not str(target).startswith("cpu")
    return built_by_all(text, target, cache, body="software" if gpu else "", **options)


def occupancy(**texts: str) -> Occupancy:
    """A declaration from expressions."""
    return Occupancy(**{name: Expression(text) for name, text in texts.items()})


@pytest.mark.parametrize(
    ("declared", "tile", "wave", "limits"),
    [
        ({}, MEMBER, 32, Limits()),
        ({"max_threads": "256"}, MEMBER, 32, Limits(max_threads=256)),
        ({"max_waves": "4"}, MEMBER, 32, Limits(max_threads=128)),
        ({"max_waves": "4"}, MEMBER, 64, Limits(max_threads=256)),
        ({"max_threads": "waves_m * waves_n * wave"}, WAVES, 32, Limits(max_threads=64)),
        # a member without waves: the expression says nothing of it
        ({"max_threads": "waves_m * waves_n * wave"}, MEMBER, 32, Limits()),
        ({"min_resident": "m // 32", "max_registers": "k * 8"}, MEMBER, 32,
         Limits(min_resident=2, max_registers=32)),
    ],
)  # fmt: skip
def test_limits_follow_the_member(
    declared: dict[str, str], tile: Tile, wave: int, limits: Limits
) -> None:
    assert member_limits(occupancy(**declared), tile, wave, where=None) == limits


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"max_threads": "0 - m"}, r"member 64x64x4_t8x8: occupancy.max_threads '0 - m' is -64"),
        ({"max_waves": str(MOST)}, "not within 0 and"),
        ({"min_resident": "m // waves_m"}, "min_resident of member 64x64x4_t8x8: .* by zero"),
    ],
)
def test_limits_that_make_no_sense(declared: dict[str, str], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        member_limits(occupancy(**declared), MEMBER, 32, where="x")


def test_bounds_stand_in_the_ptx(compile_cache: Path) -> None:
    declared = occupancy(max_threads="64", min_resident="3", max_registers="255")
    result = built(source(None, MEMBER, occupancy=declared), "cuda:sm_90a", compile_cache)
    (record,) = records(result)
    found = read_ptx(code_of(result, record))
    assert (found.max_threads, found.min_resident, found.max_registers) == ((64, 1, 1), 3, 255)
    assert {g.status for g in record.gates} == {"ok"}


@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx1100", "vulkan"])
def test_a_block_above_the_ceiling_is_refused(target: str, compile_cache: Path) -> None:
    """The body's block contradicts the declaration: no code for that member, by name."""
    declared = occupancy(max_threads="thread_m * 4")
    text = source(None, TILE, MEMBER, occupancy=declared)
    result = built(text, target, compile_cache)
    fits, refused = records(result)
    assert fits.refused is None
    assert refused.refused is not None
    assert refused.refused.message == "block of 64 threads > 32, max_threads (occupancy)"
    with pytest.raises(GateError, match=r"no device code .* > 32, max_threads"):
        built(source(None, MEMBER, occupancy=declared), target, compile_cache)


def test_what_the_back_end_drops_fails_by_name(compile_cache: Path) -> None:
    """AMD's back end takes waves_per_eu as a hint: what it did not reach shows in the registers."""
    declared = occupancy(min_resident="12")  # 12 waves a SIMD: 128 registers at most
    with pytest.raises(GateError) as caught:
        built(source(None, HEAVY, occupancy=declared), "rocm:gfx1100", compile_cache)
    message = caught.value.message
    assert message.startswith("gate declaration: min_resident 12 is 12 waves a SIMD, ")
    assert "registers leave room for" in message
    kept = occupancy(min_resident="6")
    (record,) = records(built(source(None, HEAVY, occupancy=kept), "rocm:gfx1100", compile_cache))
    assert {g.status for g in record.gates} == {"ok"}


def test_facts_decide_what_is_resident(compile_cache: Path) -> None:
    """With a device's limits known, shared memory and threads count too."""
    text = source(None, MEMBER, occupancy=occupancy(min_resident="64"))
    facts = str(FOLDER / "rocm-gfx1151.json")
    with pytest.raises(GateError, match=r"min_resident 64, but \d+ are resident: registers"):
        built(text, facts, compile_cache)


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx1100", "cpu:x86-64-v3", "vulkan"])
def test_fast_math_reaches_the_code(target: str, compile_cache: Path) -> None:
    """Adding a zero changes the sign of a zero, so only a kernel that asks for it loses the add."""
    plus_zero = dense("f32", epilogue=(EpilogueStep(op="add", constant=0.0),))
    exact, fast, plain = (
        built(text, target, compile_cache)
        for text in (source(plus_zero), source(plus_zero, fast_math=True), source())
    )
    (a,), (b,), (c,) = records(exact), records(fast), records(plain)
    assert a.identity.code_hash not in (b.identity.code_hash, c.identity.code_hash)
    if target.startswith("cuda"):
        counts = [code_of(x, r).count(b"add.rn.f32") for x, r in ((exact, a), (fast, b))]
        assert counts[0] > 0
        assert counts[1] == 0


@pytest.mark.parametrize("width", [32, 64])
def test_wave_width_reaches_the_code(width: int, compile_cache: Path) -> None:
    """RDNA runs either; the notes of the code object say which it is."""
    result = built(source(None, MEMBER, wave_width=width), "rocm:gfx1100", compile_cache)
    (record,) = records(result)
    assert (record.footprint.wave_width, record.needs.wave_width) == (width, width)
    assert {g.status for g in record.gates} == {"ok"}


@pytest.mark.parametrize(
    ("target", "width", "message"),
    [
        ("cuda:sm_80", 64, "xpu.wave {width = 64}: cuda:sm_80 has waves of 32"),
        ("rocm:gfx942", 32, "rocm:gfx942 has waves of 64"),
        ("rocm:gfx1100", 16, "rocm:gfx1100 has waves of 32 and 64"),
        (str(FOLDER / "vulkan-h200.json"), 64, "vulkan has waves of 32"),
    ],
)
def test_a_width_that_the_target_lacks(
    target: str, width: int, message: str, compile_cache: Path
) -> None:
    with pytest.raises(DeclarationError) as caught:
        built(source(None, MEMBER, wave_width=width), target, compile_cache)
    assert message in caught.value.message


def test_a_wave_width_is_a_need_where_the_driver_chooses(compile_cache: Path) -> None:
    """And it says nothing on the CPU, whose bodies index no lanes."""
    (vulkan,) = records(built(source(None, MEMBER, wave_width=16), "vulkan", compile_cache))
    (cpu,) = records(built(source(None, TILE, wave_width=16), "cpu:x86-64-v3", compile_cache))
    assert (vulkan.needs.wave_width, cpu.needs.wave_width) == (16, None)


def test_duplicates_are_built_once(compile_cache: Path) -> None:
    """Two equal entries, and an entry that names the only body there is."""
    members = (Member(tile=TILE), Member(tile=TILE), Member(tile=TILE, body="software"))
    made = records(built(source(members=members), "vulkan", compile_cache))
    assert [r.name for r in made] == ["16x16x16_t4x4/software"]


def test_the_cap_counts_distinct_entries(tmp_path: Path) -> None:
    tiles = [Tile(m=16, n=16, k=2 * i + 2, thread_m=4, thread_n=4) for i in range(9)]
    text = re.sub(r"xpu\.instantiate_max = \d+( : i64)?, ", "", source(None, *tiles, TILE))
    with pytest.raises(DeclarationError, match="instantiates 9 members > 8"):
        built(text, "vulkan", tmp_path)


@pytest.mark.parametrize("backends", [(), ("cpu",)])
def test_a_stale_hold_fails_the_build(backends: tuple[str, ...], compile_cache: Path) -> None:
    held = Hold(cause="unlowered", tracked="item-1", backends=backends)
    with pytest.raises(GateError, match=r"STALE xpu.unlowered of kernel 'gemm' \[tracked: item-1"):
        built(source(holds=(held,)), "cpu:x86-64-v3", compile_cache)


def test_a_kernel_that_may_have_no_code(compile_cache: Path) -> None:
    """No member for the CPU, and a hold that says so: a note, and a pack for the rest."""
    members = (Member(tile=TILE, backends=("vulkan",)),)
    held = Hold(cause="unlowered", tracked="item-1", backends=("cpu",))
    targets = [parse_target(t) for t in ("cpu:x86-64-v3", "vulkan")]
    result = built(source(members=members, holds=(held,)), targets, compile_cache)
    assert [r.identity.target for r in records(result)] == ["vulkan"]
    assert result.notes[-1].startswith("gate code: no device code of kernel 'gemm' for cpu")
    assert result.notes[-1].endswith("[tracked: item-1]")
    none = built(source(members=members, holds=(held,)), "cpu:x86-64-v3", compile_cache)
    assert none.manifest.kernels == ()


def test_a_held_spill_is_built(compile_cache: Path) -> None:
    """The record keeps its code and its spill, which the filter at run time still prunes."""
    spills = Tile(m=64, n=64, k=8, thread_m=16, thread_n=16)
    held = Hold(cause="spills", tracked="item-2", backends=("rocm",), members=(spills.name,))
    (record,) = records(built(source(None, spills, holds=(held,)), "rocm:gfx1100", compile_cache))
    assert [g.gate for g in record.gates if g.status == "held"] == ["spill"]
    assert record.footprint.spill_bytes


def test_a_deadline_is_a_gate(tmp_path: Path) -> None:
    """All of the kernel's candidates are named, each with the lever."""
    options = BuildOptions(body="software", compile=CompileOptions(deadline_s=0.01))
    with pytest.raises(Failures) as caught:
        build(source(None, TILE, MEMBER), "x", [parse_target("vulkan")], options)
    assert [e.message for e in caught.value.errors] == [
        "gate deadline: the compiler ran past its deadline of 0.01 s"
    ] * 2


def test_held_members_must_exist(tmp_path: Path) -> None:
    held = Hold(cause="spills", tracked="x", members=("64x64x64",))
    with pytest.raises(DeclarationError, match=r"xpu\.spills\.members: '64x64x64' is not one of"):
        built(source(holds=(held,)), "vulkan", tmp_path)


# LLVM's guide to the AMDGPU back end, "occupancy": registers of a SIMD by ISA and wave
@pytest.mark.parametrize(
    ("isa", "wave", "registers", "waves"),
    [
        ("gfx1100", 32, 96, 16),
        ("gfx1100", 32, 97, 12),
        ("gfx1100", 64, 96, 8),
        ("gfx1102", 32, 128, 8),
        ("gfx942", 64, 128, 4),
        ("gfx942", 64, 129, 3),
        ("gfx906", 64, 64, 4),
        ("gfx1100", 32, 0, None),
        ("sm_90a", 32, 32, None),
    ],
)
def test_waves_by_registers(isa: str, wave: int, registers: int, waves: int | None) -> None:
    assert waves_by_registers(isa, wave, registers) == waves


@given(
    causes=st.lists(st.sampled_from(["cpu", "cuda", "rocm", "vulkan"]), max_size=3),
    backend=st.sampled_from(["cpu", "cuda", "rocm", "vulkan"]),
    names=st.lists(st.sampled_from(["a", "a/x", "b"]), max_size=2),
)
def test_what_a_hold_covers(causes: list[str], backend: str, names: list[Any]) -> None:
    held = Hold(cause="spills", tracked="x", backends=tuple(causes), members=tuple(names))
    assert held.covers(backend, "a", "a/x") == (
        (not causes or backend in causes) and (not names or bool({"a", "a/x"} & set(names)))
    )
