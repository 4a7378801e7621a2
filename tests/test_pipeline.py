"""Pipelines as text: what is read back is what was written, and what cannot be read is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.errors import DeclarationError, Error, Failures, UsageError
from kernel_sources import NAME, READ, kernel, lowered, source, whole_pipeline
from lowering.builder import source_text
from lowering.ir import context, mlir, parse_module, split_input
from lowering.passes import PASSES, Instantiate, SelectTier
from lowering.pipeline import (
    Printing,
    Report,
    option_fields,
    parse_pipeline,
    pipeline_text,
    run_pipeline,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A pass with an option of each type."""

    name: ClassVar[str] = "probe"
    path: str = "cpu"
    tile_m: int = 8
    fast: bool = False
    hidden: object = field(default=None, repr=False)

    def run(self, module: mlir.Operation, report: Report) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A pass with a fault of its own."""

    name: ClassVar[str] = "broken"

    def run(self, module: mlir.Operation, report: Report) -> None:
        """Fall over."""
        raise ZeroDivisionError("a fault of ours")


@given(path=TEXTS, tile_m=st.integers(-(10**18) + 1, 10**18 - 1), fast=st.booleans())
def test_options_round_trip(path: str, tile_m: int, fast: bool) -> None:
    """Whatever the values hold: blanks, commas, brackets, quotes, other scripts."""
    items = [Probe(path=path, tile_m=tile_m, fast=fast), "canonicalize{top-down=true}", Probe()]
    text = pipeline_text(items)
    assert parse_pipeline(text, [Probe]) == items
    assert pipeline_text(parse_pipeline(text, [Probe])) == text


def test_text_of_options() -> None:
    """Defaults are left out, plain values stand as they are, others in quotes."""
    probe = Probe(path="a facts.json", tile_m=-1, fast=True)
    items = [SelectTier(target="cuda:sm_90a"), "func.func(cse)", probe, Probe()]
    assert pipeline_text(items) == (
        "builtin.module(select-tier{target=cuda:sm_90a},func.func(cse),"
        'probe{path="a facts.json" tile_m=-1 fast=true},probe)'
    )


def test_options_of_our_passes_are_texts_and_known() -> None:
    """What is for callers in Python alone is neither listed nor read."""
    assert [*option_fields(Instantiate)] == ["target", "tier", "body"]
    with pytest.raises(UsageError, match="has no option 'resolved=x', options are: target"):
        parse_pipeline("select-tier{resolved=x}", PASSES)


@pytest.mark.parametrize("text", ["", "builtin.module()", " , ", "builtin.module( )"])
def test_empty_pipelines(text: str) -> None:
    assert parse_pipeline(text, PASSES) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("canonicalize(", "pass pipeline 'canonicalize(' has unbalanced brackets"),
        ("a}{", "pass pipeline 'a}{' has unbalanced brackets"),
        ('probe{path="x}', "pass pipeline 'probe{path=\"x}' has unbalanced quotes"),
        ("probe{path=x}y", "pass 'probe{path=x}y': expected '}' at the end of its options"),
        ("probe{path}", "pass 'probe' has no option 'path', options are: path, tile_m, fast"),
        ("probe{name=x}", "pass 'probe' has no option 'name=x', options are: path, tile_m, fast"),
        ("probe{tile_m=4.5}", "pass 'probe': tile_m must be an integer, found '4.5'"),
        ("probe{tile-m=--4}", "pass 'probe': tile_m must be an integer, found '--4'"),
        ("probe{tile_m=²}", "pass 'probe': tile_m must be an integer, found '²'"),
        ("probe{fast=yes}", "pass 'probe': fast must be true or false, found 'yes'"),
        ("func.func(cse,probe)", "pass 'probe' runs on the module, found 'func.func(cse,probe)'"),
        ("probe(cse)", "pass 'probe' runs on the module, found 'probe(cse)'"),
    ],
)
def test_refused_text(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        parse_pipeline(text, [Probe])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none", "pass 'none': 'none' does not refer to a registered pass or pass pipeline"),
        ("func.func(none)", "'none' does not refer to a registered pass or pass pipeline"),
        ("canonicalize{top=1}", "pass 'canonicalize{top=1}': .*no such option top"),
    ],
)
def test_the_compiler_refuses_its_own_passes_in_its_own_words(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lowered(source(), text)


def test_a_failing_pass_of_the_compiler_points_into_the_source() -> None:
    with pytest.raises(Error, match=r"test.mlir:\d+:\d+: pass pipeline failed: failed to legalize"):
        lowered(source(), "iree-stream-conversion")


def test_a_fault_in_a_pass_comes_out_as_itself() -> None:
    """A fault of ours must not pass for the user's, and must not unwind through the compiler."""
    with context() as ctx:
        module = parse_module(source(), NAME, ctx)
        with pytest.raises(ZeroDivisionError, match="a fault of ours"):
            run_pipeline(module, [Broken()], Report(source=NAME))


def test_all_offenders_are_named() -> None:
    """A pass goes on after one failure, the passes after it do not run."""
    text = source_text([kernel(name=n) for n in ("one", "two")]).replace("xpu.dims", "xpu.sizes")
    with pytest.raises(Failures) as caught:
        lowered(text, whole_pipeline("cpu"))
    assert [type(e) for e in caught.value.errors] == [DeclarationError] * 2
    second = text.count("\n", 0, text.index("@two")) + 1
    assert [e.where for e in caught.value.errors] == ["test.mlir:1:1", f"test.mlir:{second}:1"]


def test_notes_are_told_once() -> None:
    notes: list[str] = []
    lowered(source_text([kernel(name=n) for n in "ab"]), f"{READ},select-tier", notes)
    assert notes == ["f32*f32->f32 on cpu:x86-64: software, no matrix instruction for f32*f32->f32"]


@pytest.mark.parametrize("place", ["file/dumps", "file", ""])
def test_dumps_that_cannot_be_written_are_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / place) if place else ""
    with context() as ctx:
        module = parse_module(source(), NAME, ctx)
        with pytest.raises(UsageError, match="cannot write IR dumps"):
            run_pipeline(module, [], Report(source=NAME), Printing(tree_dir=folder))


def test_split_input_keeps_line_numbers() -> None:
    text = "one\n// -----\ntwo\nthree\n// ----- a remark\nfour"
    parts = split_input(text)
    assert [p.strip() for p in parts] == ["one", "two\nthree", "four"]
    assert [p.split("\n").index(w) for p, w in zip(parts, ("one", "two", "four"), strict=True)] == [
        0,
        2,
        5,
    ]
