"""Device code for Vulkan: valid SPIR-V, native where the driver lists the config, and amended."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.errors import CompileError, FormatError
from dialects.facts import facts_from_json
from dialects.manifest import Record
from dialects.member import Tile
from kernel_sources import kernel
from lowering.artifacts.spirv import read_spirv
from lowering.artifacts.spirv_legalize import legalize_spirv
from lowering.build import Build, BuildOptions, build
from lowering.builder import dense, source_text
from lowering.compile import CompileOptions
from lowering.relink import with_objects
from lowering.target import parse_target, target_from_facts

HERE = Path(__file__).parent
SAMPLES = HERE.parent / "samples"
FACTS = HERE / "fixtures" / "facts"
VULKAN_MEMORY_MODEL = 5345
COOPERATIVE_MATRIX = 6022
MATRIX, SHADER = 0, 1


def built(sample: str, facts: str, cache: Path) -> Build:
    target = parse_target(str(FACTS / f"{facts}.json"))
    options = BuildOptions(compile=CompileOptions(cache=cache))
    return build((SAMPLES / sample).read_text(), sample, [target], options)


def code_of(result: Build, record: Record) -> bytes:
    assert record.files is not None
    assert record.files.code_object is not None
    return result.files[record.files.code_object]


@pytest.mark.parametrize(
    ("sample", "facts"),
    [
        ("01_matmul_f32.mlir", "vulkan-swiftshader"),
        ("02_matmul_f16.mlir", "vulkan-h200"),
        ("02_matmul_f16.mlir", "vulkan-lavapipe-26.2"),
        ("05_matmul_bias_relu.mlir", "vulkan-lavapipe-22.3"),
    ],
)
def test_code_is_valid_and_of_its_tier(
    sample: str, facts: str, compile_cache: Path, tmp_path: Path
) -> None:
    result = built(sample, facts, compile_cache)
    validator = Path(sys.executable).parent / "spirv-val"
    records = [r for r in result.manifest.kernels[0].members if r.files is not None]
    assert records
    for record in records:
        code = code_of(result, record)
        path = tmp_path / "code.spv"
        path.write_bytes(code)
        done = subprocess.run(
            [str(validator), "--target-env", "vulkan1.3", str(path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{record.name}: {done.stdout}{done.stderr}"
        reading = read_spirv(code, where=record.name)
        assert (reading.matrix_instructions > 0) == (record.tier == "native")
        assert record.groups[0].count == reading.matrix_instructions
        native = COOPERATIVE_MATRIX in reading.capabilities
        assert native == (record.tier == "native")
        assert not native or VULKAN_MEMORY_MODEL in reading.capabilities


def test_a_part_without_narrow_types_reads_words(compile_cache: Path) -> None:
    """8-bit integers and bf16 come in 32-bit words; f16 is refused by the rule, as is an f16 scale.

    The part lists no narrow arithmetic, and its storage is unknown.
    """
    facts = facts_from_json((FACTS / "vulkan-swiftshader.json").read_bytes(), where="facts")
    target = target_from_facts(replace(facts, storage_features=()))
    options = BuildOptions(warn=True, compile=CompileOptions(cache=compile_cache))
    tile = Tile(m=16, n=16, k=8, thread_m=4, thread_n=4)
    kernels = {
        "words_i8": dense("i8", "i32"),
        "words_bf16": dense("bf16", transposed_b=True),
        "half": dense("f16"),
        "scaled": dense("f32", transposed_b=True, source_b="q8_0"),
        "narrow_result": dense("bf16", "bf16"),
    }
    text = source_text([kernel(c, tile, name=name) for name, c in kernels.items()])
    result = build(text, "words.mlir", [target], options)
    made = {k.kernel: k.members[0] for k in result.manifest.kernels}
    for name in ("words_i8", "words_bf16"):
        assert made[name].needs.features == ()
        code = code_of(result, made[name])
        assert set(read_spirv(code, where=name).capabilities) <= {SHADER, MATRIX}
    refused = {name: r.refused.message for name, r in made.items() if r.refused is not None}
    assert refused == {
        "half": "needs fp16 (feature)",
        "scaled": "needs fp16 (feature)",
        "narrow_result": "needs b16, int16 (feature)",
    }


def test_native_members_follow_the_drivers_list(compile_cache: Path) -> None:
    """16x16x16 where it is listed, 8x8x8 where only that is, none where nothing is."""
    shapes = {}
    for facts in ("vulkan-h200", "vulkan-lavapipe-26.2", "vulkan-lavapipe-22.3"):
        members = built("02_matmul_f16.mlir", facts, compile_cache).manifest.kernels[0].members
        shapes[facts] = {m.groups[0].shape for m in members if m.tier == "native"}
    assert shapes["vulkan-h200"] == {(16, 16, 16)}
    assert shapes["vulkan-lavapipe-26.2"] == {(8, 8, 8)}
    assert shapes["vulkan-lavapipe-22.3"] == set()


def test_amended_code_is_what_the_module_loads(compile_cache: Path) -> None:
    result = built("02_matmul_f16.mlir", "vulkan-h200", compile_cache)
    for record in result.manifest.kernels[0].members:
        if record.files is not None:
            code = code_of(result, record)
            assert code in result.files[record.files.vmfb]
            assert legalize_spirv(code, where=record.name) == code


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b"\x03\x02\x23\x07" * 3])
def test_no_spirv_is_refused(damage: bytes) -> None:
    with pytest.raises(FormatError):
        legalize_spirv(damage, where="code")


def test_relinking_wants_an_object_for_each_executable_and_a_target() -> None:
    with pytest.raises(CompileError, match="target"):
        with_objects("module {\n}\n", {}, where="m")
    text = "module attributes {t = #hal.executable.target<a, b>} {\n}\n"
    with pytest.raises(CompileError, match=r"executables \[\] with objects of \['x'\]"):
        with_objects(text, {"x": "x.spv"}, where="m")
    text = text[:-2] + "hal.executable.source private @x {\n  builtin.module {\n  }\n}\n}\n"
    with pytest.raises(CompileError, match=r"executables \['x'\] with objects of \[\]"):
        with_objects(text, {}, where="m")
    relinked = with_objects(text, {"x": "of_x.spv"}, where="m")
    assert 'path = "of_x.spv"' in relinked
    assert "builtin.module" not in relinked
