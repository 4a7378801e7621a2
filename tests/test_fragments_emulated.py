"""Native tiles, lane by lane on the host: AMD's maps of lanes, matrix ops, edges, races."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coop_kernels import Coop, coop_text
from emulated_ir import read_program
from emulated_launch import Case, check
from facts_files import FOLDER
from lowering.build import BuildOptions, lower
from lowering.target import parse_target

LISTED = str(FOLDER / "vulkan-h200.json")
SAMPLE = (FOLDER.parent.parent.parent / "samples" / "06_coop_matrix.mlir").read_text()
DOUBLED = "%last = gpu.subgroup_mma_elementwise addf %sum, %sum : ({acc}, {acc}) -> {acc}"
HALVED = (
    "%h = arith.constant 0.5 : f32\n%hm = gpu.subgroup_mma_constant_matrix %h : {acc}\n"
    "%two = gpu.subgroup_mma_elementwise addf %sum, %sum : ({acc}, {acc}) -> {acc}\n"
    "%last = gpu.subgroup_mma_elementwise mulf %two, %hm : ({acc}, {acc}) -> {acc}"
)
BYTES = Coop(type="i8", accumulator="i32")
TURNED = Coop(transposed_b=True, accumulate=True, between=HALVED, waves_n=2)


def cases(text: str, target: str) -> list[Case]:
    """Every candidate of a source for a target, ready to be emulated."""
    resolved = parse_target(target)
    candidates, _ = lower(text, "test.mlir", resolved, BuildOptions())
    return [
        Case(
            contraction=c.info.contraction,
            program=read_program(c.text),
            launch=c.info.launch,
            needs=c.info.needs,
            wave=c.info.needs.wave_width or resolved.wave,
        )
        for c in candidates
    ]


@pytest.mark.parametrize(
    ("target", "coop", "native"),
    [
        ("rocm:gfx1100", Coop(), True),
        ("rocm:gfx1100", Coop(accumulator="f16"), True),
        ("rocm:gfx1100", BYTES, True),
        ("rocm:gfx1100", TURNED, True),
        ("rocm:gfx1100", Coop(m=8, n=8, k=8), False),
        ("rocm:gfx1201", Coop(), True),
        ("rocm:gfx1201", TURNED, True),
        ("rocm:gfx942", Coop(), True),
        ("rocm:gfx942", Coop(type="i8", accumulator="i32", k=32), True),
        ("rocm:gfx942", TURNED, True),
        ("cuda:sm_80", Coop(), True),
        ("cuda:sm_80", replace(TURNED, between=""), True),
        (LISTED, Coop(n=8, k=8, waves_m=2), True),
        (LISTED, Coop(type="i8", accumulator="i32", k=32), True),
    ],
)
def test_a_launch_is_exact(target: str, coop: Coop, native: bool) -> None:
    """On sizes that divide and that do not; a native candidate takes matrix instructions."""
    found = cases(coop_text(coop), target)
    assert len(found) == 1 + native
    for number, case in enumerate(found):
        products = [check(case, sizes, slack=3) for sizes in ((16, 16, 32), (19, 21, 9))]
        assert all(bool(p) == (native and number == 0) for p in products)


@pytest.mark.parametrize("target", ["rocm:gfx1100", "rocm:gfx942", "cuda:sm_80", LISTED])
def test_the_sample_is_exact_on_every_back_end(target: str) -> None:
    """Mixed tiers included. The emulator's loops have the same bounds in every lane."""
    own = "scf.for %e = %lane to %c256 step %lanes {"
    same = "scf.for %at = %c0 to %c256 step %lanes {\n%e = arith.addi %at, %lane : index"
    assert own in SAMPLE
    for case in cases(SAMPLE.replace(own, same), target):
        check(case, (17, 18, 19))
