"""Small kernels that tests of the lowering share, and ways to lower them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dialects.declarations import Declarations
from dialects.manifest import Record
from dialects.member import Member, Tile
from dialects.operands import Contraction
from lowering.build import GENERALIZE, Build, BuildOptions, build
from lowering.builder import KernelSource, dense, source_text
from lowering.compile import CompileOptions
from lowering.ir import context, parse_module
from lowering.passes import PASSES
from lowering.pipeline import Report, parse_pipeline, run_pipeline
from lowering.target import Target, parse_target
from lowering.tiles import FragmentsBody, TileBody, body_named

NAME = "test.mlir"
TILE = Tile(m=16, n=16, k=16, thread_m=4, thread_n=4)  # takes 4 KiB of workgroup memory in f32
SMALL = Tile(m=4, n=4, k=4, thread_m=2, thread_n=2)  # takes 256 B
READ = f"{GENERALIZE},group-operands"


def kernel(
    contraction: Contraction | None = None,
    *tiles: Tile,
    name: str = "gemm",
    **declared: Any,
) -> KernelSource:
    """A kernel with these members, ``TILE`` alone when none is given."""
    contraction = contraction or dense("f32")
    members = tuple(Member(tile=t) for t in tiles or (TILE,))
    declarations = Declarations(dims=contraction.dims, members=members)
    return KernelSource(
        name=name, contraction=contraction, declarations=replace(declarations, **declared)
    )


def source(contraction: Contraction | None = None, *tiles: Tile, **more: Any) -> str:
    """The module text of one :func:`kernel`."""
    return source_text([kernel(contraction, *tiles, **more)])


def tile_body(name: str) -> TileBody:
    """The template body of that name."""
    body = body_named(name)
    assert not isinstance(body, FragmentsBody)
    return body


def whole_pipeline(target: str) -> str:
    """All our passes for a target, as text."""
    ours = ",".join(f"{p}{{target={target}}}" for p in ("select-tier", "instantiate", "emit-body"))
    return f"verify-declarations,{READ},{ours}"


def lowered(text: str, pipeline: str, notes: list[str] | None = None) -> str:
    """The module after a pipeline, as text. ``notes`` receives what the passes say."""
    report = Report(source=NAME)
    with context() as ctx:
        module = parse_module(text, NAME, ctx)
        run_pipeline(module, parse_pipeline(pipeline, PASSES), report)
        if notes is not None:
            notes += report.notes
        return str(module)


def built(
    text: str,
    target: str | Target | Sequence[Target],
    cache: Path,
    *,
    name: str = NAME,
    **options: Any,
) -> Build:
    """A real build of one text with the tests' compile cache."""
    targets = [parse_target(target)] if isinstance(target, str) else target
    targets = [targets] if isinstance(targets, Target) else list(targets)
    given = BuildOptions(compile=CompileOptions(cache=cache), **options)
    return build(text, name, targets, given)


def records(result: Build) -> tuple[Record, ...]:
    """The records of a build of one kernel."""
    (entry,) = result.manifest.kernels
    return entry.members


def code_of(result: Build, record: Record) -> bytes:
    """The device code of a record."""
    assert record.files is not None
    assert record.files.code_object is not None
    return result.files[record.files.code_object]
