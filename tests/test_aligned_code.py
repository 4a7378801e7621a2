"""Inline assembly behind a lane's own branch is copied by the back end, and the gate says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gate_cases import CUDA, group, subject
from lowering.artifacts.ptx import PtxReading, read_ptx
from lowering.compile import CompileOptions, Job, compile_one
from lowering.gate_table import GATES
from lowering.gates import GateError, apply_gates
from lowering.target import module_attributes
from lowering.tiles.host_entry import executable
from lowering.tiles.ptx_text import PtxText

BARRIER = "barrier.sync.aligned"
BUFFER = "memref<64xi32, #hal.descriptor_type<storage_buffer>>"
LAYOUT = "#hal.pipeline.layout<constants = 0, bindings = [#hal.pipeline.binding<storage_buffer>]>"
HOST = """util.func public @g(%a: !hal.buffer) -> !hal.buffer {
  %x = hal.tensor.import consume %a "x" : !hal.buffer -> tensor<64xi32>
  %r = flow.dispatch @__kernel::@gemm(%x) : (tensor<64xi32>) -> %x
  %out = hal.tensor.export %r "out" : tensor<64xi32> -> !hal.buffer
  util.return %out : !hal.buffer
}"""


def compiled(cache: Path, *, branches: bool) -> tuple[dict[str, int], PtxReading]:
    """A kernel with one barrier, and with ``branches`` a store of lane 0 before and after it.

    What the writer counted, and what is in the PTX.
    """
    ir = PtxText()
    lane = ir.from_index(ir.value("gpu.thread_id x"))
    buffer = ir.value(
        f"hal.interface.binding.subspan layout({LAYOUT}) binding(0) alignment(4)"
        f" offset({ir.index(0)}) : {BUFFER}"
    )
    first = ir.compare_w("eq", lane, 0)

    def store(place: int) -> None:
        if branches:
            with ir.when(first):
                ir.emit(f"memref.store {lane}, {buffer}[{ir.index(place)}] : {BUFFER}")

    store(0)
    ir.asm(f"{BARRIER} 0;")
    store(1)
    ir.emit("return")
    code = executable(
        name="kernel",
        entry="gemm",
        layout=LAYOUT,
        workload=0,
        grid=lambda *_: [1, 1, 1],
        block=(64, 1, 1),
        body=ir.text(),
    )
    text = f"module attributes {{{module_attributes(CUDA)}}} {{\n{code}{HOST}\n}}"
    artifact = compile_one(Job(name="x", text=text, in_place=False), CompileOptions(cache=cache))
    assert artifact.code is not None
    return dict(ir.aligned), read_ptx(artifact.code)


@pytest.mark.parametrize(("branches", "count"), [(False, 1), (True, 2)])
def test_copies_are_found(branches: bool, count: int, compile_cache: Path) -> None:
    """One lane reaches the one barrier, the others its copy: on a device, the kernel hangs."""
    emitted, found = compiled(compile_cache, branches=branches)
    assert emitted == {BARRIER: 1}
    assert found.aligned == {BARRIER: count}
    case = group(subject(aligned=emitted, reading={"aligned": found.aligned}))
    if count == 1:
        (record,) = apply_gates([case], GATES, warn=False).records
        assert {g.status for g in record.gates} == {"ok"}
        return
    with pytest.raises(GateError) as caught:
        apply_gates([case], GATES, warn=False)
    assert caught.value.message == (
        f"gate aligned: duplicated {BARRIER}: 1 emitted, 2 in the artifact"
    )


def test_a_version_below_the_need_is_found(compile_cache: Path) -> None:
    """Without features the back end takes the oldest PTX version that has the ISA."""
    _, found = compiled(compile_cache, branches=False)
    assert found.version == (8, 0)
    reading = {"version": found.version}
    case = group(subject(ptx_version=(8, 3), reading=reading))
    with pytest.raises(GateError, match=r"needs PTX ISA 8\.3, the artifact says 8\.0"):
        apply_gates([case], GATES, warn=False)
    kept = replace(case.subjects[0].info, ptx_version=(8, 0))
    case = group(replace(case.subjects[0], info=kept))
    assert apply_gates([case], GATES, warn=False).records
