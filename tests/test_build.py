"""Builds: the same bytes every time, identities of code alone, refusals and failures by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dialects.errors import CompileError, Failures, UnsupportedError, UsageError
from dialects.facts import DeviceFacts
from dialects.manifest import manifest_from_text, manifest_text
from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep
from facts_files import PATHS
from kernel_sources import NAME, SMALL, TILE, built, code_of, kernel, records, source
from lowering.build import Build, BuildOptions, build
from lowering.builder import dense, source_text
from lowering.compile import CompileOptions
from lowering.gates import GateError
from lowering.target import Target, parse_target, target_from_facts

CPU = "cpu:x86-64-v3"
TARGETS = (CPU, "vulkan", "cuda:sm_80", "rocm:gfx1100")
TOO_LARGE = Tile(m=128, n=128, k=128, thread_m=8, thread_n=8)  # more than any Vulkan device has
SPILLS = Tile(m=64, n=64, k=8, thread_m=16, thread_n=16)  # 256 sums a lane


def tiny_vulkan(shared_bytes: int) -> Target:
    """A Vulkan device with that much workgroup memory."""
    return target_from_facts(DeviceFacts(backend="vulkan", shared_bytes_per_block=shared_bytes))


def hashes(result: Build) -> list[str | None]:
    """The code hash of every record."""
    return [r.identity.code_hash for k in result.manifest.kernels for r in k.members]


def scaled(factor: float) -> Contraction:
    """A product that differs from the plain one in a constant alone."""
    return dense("f32", epilogue=(EpilogueStep(op="mul", constant=factor),))


def test_two_builds_give_identical_bytes(compile_cache: Path) -> None:
    """Of the manifest and of every file, cached or compiled afresh, whatever finishes first."""
    targets = [parse_target(t) for t in (CPU, "vulkan")]
    first = built(source(), targets, compile_cache)
    again = build(source(), NAME, targets, BuildOptions(compile=CompileOptions()))
    assert manifest_text(again.manifest) == manifest_text(first.manifest)
    assert again.files == first.files
    assert manifest_from_text(manifest_text(first.manifest), where="test").kernels


def test_records_of_every_target_are_whole(compile_cache: Path) -> None:
    """One record a target, in the order that was asked for, with what its artifact says."""
    result = built(source(), [parse_target(t) for t in TARGETS], compile_cache)
    made = records(result)
    assert [r.identity.target for r in made] == [*TARGETS]
    assert [r.identity.body for r in made] == ["cpu_mmt4d", "software", "software", "software"]
    assert len({r.identity.code_hash for r in made}) == 4
    assert {p for r in made if r.files for p in r.files.sha256} == set(result.files)
    cpu, vulkan, cuda, rocm = (r.footprint for r in made)
    assert (cpu.registers, cpu.threads_per_group, cpu.shared_bytes) == (None, None, None)
    assert (vulkan.registers, vulkan.threads_per_group) == (None, 16)
    assert (vulkan.static_shared_bytes, vulkan.dynamic_shared_bytes) == (4096, 0)
    assert (cuda.static_shared_bytes, cuda.dynamic_shared_bytes) == (0, 4096)
    assert (rocm.spill_bytes, rocm.threads_per_group, rocm.wave_width) == (0, 16, 32)
    assert rocm.registers


@pytest.mark.parametrize("target", TARGETS)
def test_code_hash_is_of_the_code(target: str, compile_cache: Path) -> None:
    """Names of files and functions do not change it; a tile, a type or a constant does."""
    kernels = [
        kernel(name="gemm"),
        kernel(name="another_kernel_with_a_long_name"),
        kernel(None, replace(TILE, thread_n=2), name="tile"),
        kernel(scaled(0.79788446), name="constant"),
        kernel(scaled(0.79788454), name="next_float"),
    ]
    plain, renamed, *others = hashes(built(source_text(kernels), target, compile_cache))
    assert renamed == plain
    assert len({plain, *others}) == 4
    assert hashes(built(source(), target, compile_cache, name="moved/elsewhere.mlir")) == [plain]
    assert hashes(built("\n// a remark\n" + source(), target, compile_cache)) == [plain]


def test_a_preflight_refusal_is_a_record(compile_cache: Path) -> None:
    """Its rule, need and limit, and no files; the members that fit are built."""
    result = built(source(None, TILE, SMALL), tiny_vulkan(1024), compile_cache)
    refused, fits = records(result)
    assert refused.refused is not None
    assert (refused.refused.rule, refused.refused.need, refused.refused.limit) == ("R3", 4096, 1024)
    assert "shared 4096 B > 1024 B per block" in refused.refused.message
    assert (refused.files, refused.launch, refused.identity.code_hash) == (None, None, None)
    assert refused.gates == ()
    assert fits.files is not None
    assert {g.status for g in fits.gates} == {"ok"}
    assert set(result.files) == set(fits.files.sha256)


def test_all_refused_is_a_failure_that_names_all(compile_cache: Path) -> None:
    with pytest.raises(GateError) as caught:
        built(source(None, TILE, SMALL), tiny_vulkan(64), compile_cache)
    message = caught.value.message
    assert message.startswith("gate code: no device code of kernel 'gemm' for vulkan: ")
    assert "16x16x16_t4x4/software: shared 4096 B > 64 B per block (R3)" in message
    assert "4x4x4_t2x2/software: shared 256 B > 64 B per block (R3)" in message


def test_code_of_one_kernel_does_not_excuse_another(compile_cache: Path) -> None:
    """Two kernels, and a device on which only one of them has a member."""
    text = source_text([kernel(None, SMALL, name="fits"), kernel(None, TILE, name="does_not")])
    with pytest.raises(GateError, match="no device code of kernel 'does_not' for vulkan"):
        built(text, tiny_vulkan(1024), compile_cache)


def test_failing_candidates_are_listed_together(compile_cache: Path) -> None:
    """All of them, by kernel, candidate and target, and none that is right."""
    text = source(None, TOO_LARGE, TILE, replace(TOO_LARGE, m=64))
    with pytest.raises(Failures) as caught:
        built(text, "vulkan", compile_cache, body="software")
    assert [(type(e), e.where) for e in caught.value.errors] == [
        (CompileError, "gemm 128x128x128_t8x8/software vulkan"),
        (CompileError, "gemm 64x128x128_t8x8/software vulkan"),
    ]
    assert all("shared memory" in e.message for e in caught.value.errors)
    assert [f["kind"] for f in caught.value.failures()] == ["compile", "compile"]


def test_gates_that_warn(compile_cache: Path) -> None:
    """A sweep goes on: a failed gate is a note and a status, a failed compile a note and a gap."""
    text = source(None, SPILLS, TILE)
    with pytest.raises(GateError, match=r"gate spill: spills [0-9]+ B") as caught:
        built(text, "rocm:gfx1100", compile_cache)
    assert caught.value.where == "gemm 64x64x8_t16x16/software rocm:gfx1100"
    result = built(text, "rocm:gfx1100", compile_cache, warn=True)
    spills, fine = records(result)
    assert [g.gate for g in spills.gates if g.status == "warned"] == ["spill"]
    assert {g.status for g in fine.gates} == {"ok"}
    assert spills.files is not None
    assert f"spills {spills.footprint.spill_bytes} B" in result.notes[-1]

    text = source(None, TOO_LARGE, TILE)
    swept = built(text, "vulkan", compile_cache, warn=True, body="software")
    gap, good = records(swept)
    assert (gap.files, gap.launch, gap.gates) == (None, None, ())
    assert gap.refused is not None
    assert gap.refused.rule == "code"
    assert good.files is not None
    assert "exceeded the limit" in swept.notes[-1]


def test_peers_are_compiled_beside(compile_cache: Path) -> None:
    """One file a target for all kernels of the source, with its digest, in every kernel's entry."""
    text = source_text([kernel(name="one"), kernel(dense("f16"), name="two")])
    plain = built(text, CPU, compile_cache)
    result = built(text, CPU, compile_cache, peers=("iree_default",))
    assert [k.peers for k in plain.manifest.kernels] == [(), ()]
    (one,), (two,) = (k.peers for k in result.manifest.kernels)
    assert one == two
    assert (one.name, one.target) == ("iree_default", CPU)
    assert set(result.files) == {*plain.files, one.vmfb}
    assert hashes(result) == hashes(plain)


def test_a_peer_that_does_not_compile_is_a_note(compile_cache: Path) -> None:
    """It is only there to be compared with."""
    text = source() + "func.func private @nowhere(tensor<?xf32>) -> tensor<?xf32>\n"
    text += "func.func @calls(%a: tensor<?xf32>) -> tensor<?xf32> {\n"
    text += "  %0 = call @nowhere(%a) : (tensor<?xf32>) -> tensor<?xf32>\n"
    text += "  return %0 : tensor<?xf32>\n}\n"
    result = built(text, CPU, compile_cache, peers=("iree_default",))
    (entry,) = result.manifest.kernels
    assert entry.peers == ()
    assert result.notes[-1].startswith(f"peer iree_default on {CPU}: the compiler failed")


def test_unknown_peer(compile_cache: Path) -> None:
    with pytest.raises(UsageError, match="peer 'cublas' is not one of iree_default"):
        built(source(), CPU, compile_cache, peers=("cublas",))


def test_targets_of_one_name_are_refused(compile_cache: Path) -> None:
    """Their records and files would be told apart by nothing."""
    facts = next(p for p in PATHS if p.stem.startswith("vulkan"))
    targets = [parse_target("vulkan"), parse_target(str(facts))]
    with pytest.raises(UsageError, match="two targets are called 'vulkan'"):
        built(source(), targets, compile_cache)
    with pytest.raises(UsageError, match="at least one target"):
        built(source(), [], compile_cache)


def test_restrictions(compile_cache: Path) -> None:
    """--tier and --body build a part; a member that names another body is left out, no error."""
    members = (kernel(None, TILE).declarations.members[0],)
    text = source(members=(*members, replace(members[0], tile=SMALL, body="software")))
    result = built(text, "vulkan", compile_cache, tier="software")
    assert [r.name for r in records(result)] == ["16x16x16_t4x4/software", "4x4x4_t2x2/software"]
    with pytest.raises(UnsupportedError, match="no member can be built for vulkan"):
        built(text, "vulkan", compile_cache, tier="native")
    with pytest.raises(UnsupportedError, match="no member can be built for vulkan"):
        built(text, "vulkan", compile_cache, body="cpu_mmt4d")


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_100", "rocm:gfx1100", "rocm:gfx942"])
def test_the_software_tile_builds(target: str, compile_cache: Path) -> None:
    """Compile only: no such part is needed, and no part is in a table."""
    types = (("f32", "f32"), ("f16", "f32"), ("i8", "i32"))
    kernels = [kernel(dense(a, acc), name=f"gemm_{a}") for a, acc in types]
    kernels.append(kernel(dense("f16", transposed_b=True, source_b="q8_0"), name="gemm_q8"))
    result = built(source_text(kernels), target, compile_cache)
    assert [k.kernel for k in result.manifest.kernels] == [k.name for k in kernels]
    for entry in result.manifest.kernels:
        (record,) = entry.members
        assert (record.name, record.tier) == ("16x16x16_t4x4/software", "software")
        assert record.footprint.threads_per_group == 16
        assert {g.status for g in record.gates} == {"ok"}
        assert code_of(result, record)
