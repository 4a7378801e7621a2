"""A part that the compiler does not know: CUDA builds for a baseline and says so, ROCm refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.errors import CompileError, Error, TargetError
from dialects.facts import DeviceFacts
from dialects.manifest import manifest_from_text, manifest_text
from kernel_sources import SMALL, built, code_of, records, source
from lowering.target import PTX_SPECIFIC, PTX_TARGETS, parse_target, target_from_facts


@pytest.mark.parametrize(
    ("isa", "code"),
    [
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90a"),
        ("sm_100", "sm_100"),
        ("sm_103", "sm_103"),
        ("sm_120f", "sm_120f"),
        ("sm_130", "sm_121"),
        ("sm_131a", "sm_121"),
        ("sm_110", "sm_103"),  # the compiler would write the name it had before
        ("sm_91", "sm_90"),
        ("sm_89a", "sm_89"),
    ],
)
def test_the_newest_baseline_that_the_capability_covers(isa: str, code: str) -> None:
    target = parse_target(f"cuda:{isa}")
    assert (target.name, target.isa) == (f"cuda:{isa}", code)
    assert target.baseline == (None if isa == code else code)
    assert target_from_facts(DeviceFacts(backend="cuda", isa=isa)).isa == code


def test_a_part_that_is_too_old_is_refused() -> None:
    with pytest.raises(TargetError, match="isa 'sm_20' is older than sm_30, the oldest known"):
        parse_target("cuda:sm_20")


def test_the_manifest_says_what_the_code_is_for(compile_cache: Path) -> None:
    result = built(source(None, SMALL), "cuda:sm_130", compile_cache)
    (record,) = records(result)
    assert (record.identity.target, record.identity.isa) == ("cuda:sm_130", "sm_121")
    assert re.search(rb"^\.target sm_121$", code_of(result, record), re.M)
    assert "cuda:sm_130: not known to the compiler, built for sm_121" in result.notes
    text = manifest_text(result.manifest)
    assert manifest_from_text(text, where="test").kernels[0].members[0].identity.isa == "sm_121"
    (known,) = records(built(source(None, SMALL), "cuda:sm_121", compile_cache))
    assert known.identity.isa is None
    assert known.identity.code_hash == record.identity.code_hash


@pytest.mark.parametrize("isa", ["sm_130", "sm_131a"])
def test_an_isa_that_the_back_end_lowers_silently_fails_by_name(
    isa: str, compile_cache: Path
) -> None:
    """What the compiler was asked is only a wish: the artifact says what it is for."""
    target = replace(parse_target(f"cuda:{isa}"), isa=isa)
    with pytest.raises(CompileError, match=f"artifact is for sm_20, required {isa}") as caught:
        built(source(None, SMALL), target, compile_cache)
    assert caught.value.where == f"gemm 4x4x4_t2x2/software cuda:{isa}"


def test_rocm_refuses_by_name(compile_cache: Path) -> None:
    with pytest.raises(Error, match="'gfx9999' is not a valid") as caught:
        built(source(None, SMALL), "rocm:gfx9999", compile_cache)
    assert caught.value.where == "gemm 4x4x4_t2x2/software rocm:gfx9999"


@pytest.mark.full
@pytest.mark.parametrize(
    "isa",
    [f"sm_{n}" for n in PTX_TARGETS]
    + [f"sm_{n}{s}" for s, all_ in PTX_SPECIFIC.items() for n in all_],
)
def test_the_compiler_knows_every_target_that_we_say_it_does(isa: str, compile_cache: Path) -> None:
    result = built(source(None, SMALL), f"cuda:{isa}", compile_cache)
    assert re.search(rf"^\.target {isa}$".encode(), code_of(result, records(result)[0]), re.M)
