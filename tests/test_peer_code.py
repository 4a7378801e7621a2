"""The compiler's own default, read beside ours: each of its kernels by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialects.manifest import Footprint
from facts_files import FOLDER
from kernel_sources import built, kernel
from lowering.artifacts.reading import Reader, code_entries, read_artifact
from lowering.build import Build
from lowering.builder import dense, source_text
from lowering.compile import Artifact, CompileOptions, Job, compile_one
from lowering.peers import peer_entries
from lowering.table import footprint_table
from lowering.target import compiler_flags, module_attributes, parse_target

GFX1151 = str(FOLDER / "rocm-gfx1151.json")
TARGETS = ("rocm:gfx1100", GFX1151, "cuda:sm_80", "vulkan", "cpu:x86-64-v3")
READER = Reader(deadline_s=60)
# a product on matrix cores, which the compiler's default takes where sizes are static, and a sum
STATIC = """
func.func @product(%a: tensor<256x256xf16>, %b: tensor<256x256xf16>) -> tensor<256x256xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<256x256xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<256x256xf32>) -> tensor<256x256xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<256x256xf16>, tensor<256x256xf16>)
                     outs(%init : tensor<256x256xf32>) -> tensor<256x256xf32>
  return %0 : tensor<256x256xf32>
}
func.func @sum(%a: tensor<256xf32>) -> tensor<256xf32> {
  %0 = arith.addf %a, %a : tensor<256xf32>
  return %0 : tensor<256xf32>
}
"""


def static(target_name: str, cache: Path) -> Artifact:
    """The two kernels by the compiler's default, for targets that link them into one object."""
    target = parse_target(target_name)
    attributes = module_attributes(target, peer="default")
    job = Job(
        name="static",
        text=f"module attributes {{{attributes}}} {{{STATIC}}}",
        flags=compiler_flags(target),
        in_place=False,
    )
    return compile_one(job, CompileOptions(cache=cache))


@pytest.mark.parametrize("name", ["rocm:gfx1100", "rocm:gfx942", "cuda:sm_80"])
def test_each_kernel_of_an_object_is_read_by_itself(name: str, compile_cache: Path) -> None:
    """The first has matrix instructions, registers, and on RDNA 3 spills; the second none."""
    target, artifact = parse_target(name), static(name, compile_cache)
    assert artifact.code is not None
    assert artifact.more == ()
    entries = sorted(code_entries(target, artifact.code, where="code"))
    assert [e.partition("_dispatch_")[0] for e in entries] == ["product", "sum"]
    product, plain = (
        read_artifact(target, artifact, Footprint(), READER, where="code", entry=e, alone=True)
        for e in entries
    )
    assert (product.matrix_instructions or 0) > 0
    assert plain.matrix_instructions == 0
    if target.backend == "rocm":
        assert (product.footprint.registers or 0) > (plain.footprint.registers or 0) > 0
        assert product.footprint.matrix_permille
        assert plain.footprint.matrix_permille is None
        assert plain.footprint.spill_bytes == 0
        assert bool(product.footprint.spill_bytes) == (target.isa == "gfx1100")
        # a gate asks for all of them together, whichever is launched
        whole = read_artifact(target, artifact, Footprint(), READER, where="code", entry=entries[1])
        assert whole.footprint.spill_bytes == product.footprint.spill_bytes
        assert whole.matrix_instructions == 0


@pytest.fixture(scope="module")
def result(compile_cache: Path) -> Build:
    """Two kernels, one of whose names starts like the other's, everywhere."""
    kernels = [
        kernel(dense("f16"), name="gemm"),
        kernel(dense("i8", "i32"), name="gemm_dispatch_9"),
    ]
    targets = [parse_target(t) for t in TARGETS]
    return built(source_text(kernels), targets, compile_cache, peers=("iree_default",))


def test_dispatches_belong_to_their_kernels(result: Build) -> None:
    """On a GPU what the code says of each; a processor's code says nothing of launches."""
    for entry in result.manifest.kernels:
        backends = [p.target.partition(":")[0] for p in entry.peers]
        assert backends == ["rocm", "rocm", "cuda", "vulkan", "cpu"]
        *gpus, cpu = entry.peers
        assert cpu.dispatches == ()
        for peer in gpus:
            (found,) = peer.dispatches
            assert found.entry.startswith(f"{entry.kernel}_dispatch_0_matmul")
            assert found.matrix_instructions == 0  # sizes are dynamic
            assert found.footprint.threads_per_group
            known = peer.target.startswith("rocm")
            assert (found.footprint.registers is not None) == known
            assert (found.footprint.resident_groups is not None) == (peer.target == "rocm:gfx1151")


def test_the_table_has_both(result: Build) -> None:
    """A row a record and one a dispatch, its matrix instructions in the last column."""
    table = footprint_table(result.manifest)
    names = list(table.columns[1].cells)
    assert sum(str(name).startswith("iree_default dispatch_0_matmul") for name in names) == 8
    assert len(names) == 2 * (len(TARGETS) + 4)
    counts = [str(c) for c in table.columns[-1].cells]
    assert table.columns[-1].header == "matrix"
    assert counts.count("-") == 2  # of the processor's members
    assert counts.count("0") == len(counts) - 2


def test_code_that_is_not_read_is_a_note(compile_cache: Path) -> None:
    """The peer can be timed still."""
    target = parse_target("rocm:gfx1100")
    notes: list[str] = []
    jobs = {("iree_default", target.name, ("gemm",)): Job(name="peer", text="")}
    broken = Artifact(vmfb=b"module", code=b"no ELF", code_suffix=".hsaco")
    found = peer_entries(jobs, [broken], [target], READER, {}, notes)
    assert [p.dispatches for p in found["gemm"]] == [()]
    assert notes == [
        "peer iree_default on rocm:gfx1100: no ELF code object: Magic number does not match"
    ]
