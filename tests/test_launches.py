"""Launch sites pin the block of a kernel, in every module of a build, down to the PTX directive."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_lines import run_main
from dialects.declarations import Occupancy
from dialects.errors import DeclarationError, Error
from dialects.expressions import Expression
from dialects.launches import LaunchPin, LaunchSite, pin_launches
from dialects.member import Tile
from kernel_sources import built, code_of, records, source
from lowering.artifacts.ptx import read_ptx
from lowering.build import BuildOptions, Source, build_sources
from lowering.cli import main
from lowering.compile import CompileOptions
from lowering.gates import GateError
from lowering.ir import context, parse_module
from lowering.launches import launch_sites
from lowering.target import parse_target

CUDA = "cuda:sm_80"
HALF = Tile(m=32, n=64, k=4, thread_m=4, thread_n=4)  # 128 threads
FULL = Tile(m=64, n=64, k=4, thread_m=4, thread_n=4)  # 256
LARGE = Tile(m=64, n=128, k=4, thread_m=4, thread_n=4)  # 512


def host(*blocks: str, kernel: str = "gemm") -> str:
    """A module that launches ``kernel`` once for each block; ``%n`` is known only when it runs."""
    sites = "\n".join(
        f"    gpu.launch_func @device::@{kernel} blocks in (%n, %one, %one)"
        f" threads in ({block}, %one, %one)"
        for block in blocks
    )
    constants = "\n".join(
        f"    %c{size} = arith.constant {size} : index" for size in (64, 128, 256)
    )
    return (
        "module attributes {gpu.container_module} {\n"
        f"  gpu.module @device {{ gpu.func @{kernel}() kernel {{ gpu.return }} }}\n"
        "  func.func @host(%n: index) {\n"
        "    %one = arith.constant 1 : index\n"
        f"{constants}\n{sites}\n    return\n  }}\n}}\n"
    )


def site(*block: int, open_at: str = "") -> LaunchSite:
    """A site of one kernel; with ``open_at`` one whose block is no constant."""
    return LaunchSite(kernel="f", where=open_at, block=None if open_at else block)


@pytest.mark.parametrize(
    ("sites", "pin"),
    [
        ([], LaunchPin()),
        ([site(128, 1, 1)], LaunchPin(sites=1, threads=128, block=(128, 1, 1))),
        ([site(128, 1, 1), site(256, 1, 1)], LaunchPin(sites=2, threads=256)),
        # the same product by other triples: a bound, but no one triple
        ([site(16, 8, 1), site(128, 1, 1)], LaunchPin(sites=2, threads=128)),
        ([site(64, 1, 1), site(open_at="h:1:1")], LaunchPin(sites=2, unbounded=("h:1:1",))),
        # the body chooses the block of a call, which bounds nothing and opens nothing
        ([site()], LaunchPin(sites=1)),
        ([site(), site(32, 2, 1)], LaunchPin(sites=2, threads=64, block=(32, 2, 1))),
    ],
)
def test_the_largest_block_is_pinned(sites: list[LaunchSite], pin: LaunchPin) -> None:
    assert pin_launches(sites) == pin


FOLDS = {
    "arith.addi %c64, %c64": 128,
    "arith.subi %c128, %c64": 64,
    "arith.muli %c2, %c64": 128,
    "arith.divui %c128, %c2": 64,
    "arith.divsi %c128, %c2": 64,
    "arith.ceildivui %c3, %c2": 2,
    "arith.remui %c3, %c2": 1,
    "arith.minui %c3, %c64": 3,
    "arith.maxui %c3, %c64": 64,
    "arith.divui %c3, %zero": None,
    "arith.subi %c2, %c64": None,
    "arith.addi %c64, %n": None,
    "arith.xori %c64, %c64": None,
}


@pytest.mark.parametrize(("expression", "value"), FOLDS.items())
def test_blocks_that_fold(expression: str, value: int | None) -> None:
    """Arithmetic on constants is one; a block that is not positive is no block."""
    constants = "\n".join(f"%c{i} = arith.constant {i} : index" for i in (2, 3))
    text = host("%x").replace(
        "    gpu.launch_func",
        f"    {constants}\n    %zero = arith.constant 0 : index\n    %x = {expression} : index\n"
        "    gpu.launch_func",
    )
    with context() as ctx:
        (found,) = launch_sites(parse_module(text, "h", ctx).operation, ["gemm"], "h")
    assert found.block == (None if value is None else (value, 1, 1))


def test_casts_fold_too() -> None:
    text = host("%x").replace(
        "    gpu.launch_func",
        "    %i = arith.constant 96 : i32\n    %x = arith.index_cast %i : i32 to index\n"
        "    gpu.launch_func",
    )
    with context() as ctx:
        (found,) = launch_sites(parse_module(text, "h", ctx).operation, ["gemm"], "h")
    assert found.block == (96, 1, 1)


def built_from(cache: Path, *texts: str, **options: object):
    """A build of several sources for one CUDA target."""
    sources = [Source(text=t, name=f"{i}.mlir") for i, t in enumerate(texts)]
    given = BuildOptions(compile=CompileOptions(cache=cache), **options)  # type: ignore[arg-type]
    return build_sources(sources, [parse_target(CUDA)], given)


def test_sites_of_128_and_256_pin_256(compile_cache: Path) -> None:
    """Members within the pin state their own block in PTX, a larger one is refused by name."""
    result = built_from(compile_cache, source(None, HALF, FULL, LARGE), host("%c128", "%c256"))
    half, full, large = records(result)
    bounds = [read_ptx(code_of(result, r)).max_threads for r in (half, full)]
    assert bounds == [(128, 1, 1), (256, 1, 1)]
    assert {g.status for r in (half, full) for g in r.gates} == {"ok"}
    assert large.refused is not None
    assert (large.refused.rule, large.refused.need, large.refused.limit) == ("occupancy", 512, 256)
    assert "block of 512 threads > 256, the largest block of a launch site" in large.refused.message


def test_an_unknown_block_fires_the_gate(compile_cache: Path) -> None:
    """With the place; a warned build still has the block that the body chose in its PTX."""
    texts = (source(None, HALF), host("%c128", "%n"))
    with pytest.raises(
        GateError, match=r"gate unbounded: .*at 1 of 2 launch sites \(1\.mlir:9:5\)"
    ):
        built_from(compile_cache, *texts)
    result = built_from(compile_cache, *texts, warn=True)
    (record,) = records(result)
    assert read_ptx(code_of(result, record)).max_threads == (128, 1, 1)
    assert [g.gate for g in record.gates if g.status == "warned"] == ["unbounded"]


def test_a_ceiling_of_the_author_beats_the_scan(compile_cache: Path) -> None:
    """It closes an open site, and it allows more than the sites pin."""
    declared = Occupancy(max_threads=Expression("m * n // 16"))
    open_ = built_from(compile_cache, source(None, HALF, occupancy=declared), host("%n"))
    (record,) = records(open_)
    assert {g.status for g in record.gates} == {"ok"}
    pinned = built_from(compile_cache, source(None, FULL, occupancy=declared), host("%c64"))
    (record,) = records(pinned)
    assert read_ptx(code_of(pinned, record)).max_threads == (256, 1, 1)


def test_sites_and_kernels_in_one_module(compile_cache: Path) -> None:
    text = host("%c64")
    inner = source(None, HALF)
    text = text.replace("  gpu.module", f"{inner}\n  gpu.module", 1)
    result = built(text, CUDA, compile_cache, warn=True)
    (record,) = records(result)
    assert record.refused is not None
    assert record.refused.limit == 64


def test_two_sources_with_one_kernel_are_refused(compile_cache: Path) -> None:
    with pytest.raises(DeclarationError, match=r"kernel 'gemm' is in 0\.mlir too") as caught:
        built_from(compile_cache, source(), source())
    assert caught.value.where == "1.mlir"


def test_only_hosts_are_no_build(compile_cache: Path) -> None:
    with pytest.raises(Error, match=r"no function with xpu\.kernel"):
        built_from(compile_cache, host("%n"), host("%c64"))


def test_the_command_line_takes_several_sources(
    tmp_path: Path, compile_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel, launcher = tmp_path / "kernel.mlir", tmp_path / "host.mlir"
    kernel.write_text(source(None, HALF))
    launcher.write_text(host("%n"))
    more = ("--target", CUDA, "--cache", compile_cache)
    assert run_main(main, capsys, "compile", kernel, *more).code == 0
    found = run_main(main, capsys, "compile", kernel, launcher, *more)
    found.check_refused(1, f"launch sites ({launcher}:8:5)")
    twice = run_main(main, capsys, "compile", kernel, kernel, *more)
    twice.check_refused(2, "is given twice")
