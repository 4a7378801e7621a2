"""Access modes come from what the device code does, whatever the kernel is said to compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from dialects.manifest import Access
from dialects.member import Tile
from dialects.operands import EpilogueStep, Operand
from facts_files import FOLDER
from kernel_sources import TILE, built, kernel, records, source
from lowering.access import derive_access
from lowering.build import BuildOptions, lower
from lowering.builder import dense, source_text
from lowering.ir import context, parse_module
from lowering.target import parse_target

WAVES = Tile(m=16, n=16, k=16, waves_m=1, waves_n=1)
COOP = str(FOLDER / "vulkan-h200.json")
LAYOUT = (
    "#hal.pipeline.layout<constants = 0, bindings = [#hal.pipeline.binding<storage_buffer>,"
    " #hal.pipeline.binding<storage_buffer>]>"
)
BUFFER = "memref<64xf32, #hal.descriptor_type<storage_buffer>>"


def module(body: str) -> str:
    """A module that dispatches one kernel on buffers ``x`` and ``y``; ``body`` is the kernel's."""
    return f"""
hal.executable.source private @device {{
  hal.executable.export public @f ordinal(0) layout({LAYOUT}) count(%d: !hal.device)
      -> (index, index, index) {{
    %one = arith.constant 1 : index
    hal.return %one, %one, %one : index, index, index
  }}
  builtin.module {{
    func.func @f() {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      %zero = arith.constant 0.0 : f32
      %x = hal.interface.binding.subspan layout({LAYOUT}) binding(0) : {BUFFER}
      %y = hal.interface.binding.subspan layout({LAYOUT}) binding(1) : {BUFFER}
{body}
      return
    }}
  }}
}}
util.func public @g(%a: !hal.buffer, %b: !hal.buffer) -> !hal.buffer {{
  %x = hal.tensor.import %a "x" : !hal.buffer -> tensor<64xf32>
  %y = hal.tensor.import consume %b "y" : !hal.buffer -> tensor<64xf32>
  %r = flow.dispatch @device::@f(%x, %y) : (tensor<64xf32>, tensor<64xf32>) -> %y
  %out = hal.tensor.export %r "out" : tensor<64xf32> -> !hal.buffer
  util.return %out : !hal.buffer
}}
"""


def access(body: str) -> dict[str, tuple[str, str]]:
    """Mode and origin by parameter."""
    with context() as ctx:
        found = derive_access(parse_module(module(body), "x", ctx).operation)
    return {a.param: (a.mode, a.origin.removeprefix("device code: ")) for a in found}


def modes(text: str, target: str) -> dict[str, str]:
    """Mode by parameter of a source's first candidate."""
    (candidate, *_), _ = lower(text, "x", parse_target(target), BuildOptions())
    return {a.param: a.mode for a in candidate.info.access}


def operands(found: dict[str, str]) -> dict[str, str]:
    """The modes without that of the workspace, where slices of K meet."""
    return {name: mode for name, mode in found.items() if name != "workspace"}


@pytest.mark.parametrize(
    ("target", "tile"), [("cuda:sm_80", TILE), ("vulkan", TILE), (COOP, WAVES)]
)
def test_a_result_that_is_added_to_is_read(target: str, tile: Tile) -> None:
    """C += A * B reads what C = A * B only writes."""
    plain = operands(modes(source(dense("f16"), tile), target))
    assert plain == {"a": "read", "b": "read", "c": "write"}
    added = operands(modes(source(dense("f16", accumulate=True), tile), target))
    assert added == {**plain, "c": "readwrite"}


def test_every_buffer_of_the_host_is_there() -> None:
    """Panels on the CPU are written by one kernel and read by the next; sums wait in C."""
    found = modes(source(), "cpu:x86-64-v3")
    assert found["workspace"] == "readwrite"
    assert (found["a"], found["b"]) == ("read", "read")
    assert found["c"] in ("write", "readwrite")


def test_operands_of_the_epilogue_are_read() -> None:
    bias = Operand(name="bias", type="f32", dims=("N",))
    contraction = dense("f16", extras=(bias,), epilogue=(EpilogueStep(op="add", operand="bias"),))
    assert modes(source(contraction), "vulkan")["bias"] == "read"


def test_records_carry_what_was_derived(compile_cache: Path) -> None:
    (record,) = records(built(source(), "vulkan", compile_cache))
    assert record.access[0] == Access(param="a", mode="read", origin="device code: memref.load")


def test_an_operand_that_is_never_read() -> None:
    found = access(f"memref.store %zero, %y[%c0] : {BUFFER}")
    assert found == {"x": ("none", "never used"), "y": ("write", "memref.store")}


def test_an_output_that_the_epilogue_reads_back() -> None:
    """Stored, read again, stored once more."""
    found = access(f"""
      memref.store %zero, %y[%c0] : {BUFFER}
      %v = memref.load %y[%c0] : {BUFFER}
      %w = arith.maximumf %v, %zero : f32
      memref.store %w, %y[%c0] : {BUFFER}""")
    assert found["y"] == ("readwrite", "memref.load, memref.store")


def test_an_atomic_accumulates() -> None:
    update = f"memref.atomic_rmw addf %zero, %y[%c0] : (f32, {BUFFER}) -> f32"
    assert access(f"%r = {update}")["y"] == ("accumulate", "memref.atomic_rmw")
    both = access(f"%r = {update}\n      %v = memref.load %y[%c0] : {BUFFER}")
    assert both["y"] == ("readwrite", "memref.atomic_rmw, memref.load")


def test_an_atomic_whose_value_comes_from_memory() -> None:
    """The buffer that the value was loaded from is read, not updated."""
    found = access(f"""
      %v = memref.load %x[%c0] : {BUFFER}
      %r = memref.atomic_rmw addf %v, %y[%c0] : (f32, {BUFFER}) -> f32""")
    assert found == {"x": ("read", "memref.load"), "y": ("accumulate", "memref.atomic_rmw")}


def test_through_views_and_loops() -> None:
    """A window of a buffer, and an address that a loop carries."""
    window = "memref<8xf32, strided<[1], offset: ?>, #hal.descriptor_type<storage_buffer>>"
    found = access(f"""
      %s = memref.subview %x[%c8] [8] [1] : {BUFFER} to {window}
      %v = vector.load %s[%c0] : {window}, vector<4xf32>
      %p = memref.extract_aligned_pointer_as_index %y : {BUFFER} -> index
      %q = scf.for %i = %c0 to %c8 step %c1 iter_args(%a = %p) -> (index) {{
        %n = arith.addi %a, %c8 : index
        %w = arith.index_cast %n : index to i64
        %ptr = llvm.inttoptr %w : i64 to !llvm.ptr
        llvm.store %zero, %ptr : f32, !llvm.ptr
        scf.yield %n : index
      }}""")
    assert found == {"x": ("read", "vector.load"), "y": ("write", "llvm.store")}


def asm(text: str, operands: str = "%address, %shared", types: str = "i64, i32") -> str:
    """Inline PTX that is given the address of ``x`` and one of workgroup memory."""
    constraints = ",".join({"i64": "l", "i32": "r"}[t] for t in types.split(", "))
    return f"""
      %p = memref.extract_aligned_pointer_as_index %x : {BUFFER} -> index
      %address = arith.index_cast %p : index to i64
      %shared = arith.index_cast %c0 : index to i32
      llvm.inline_asm has_side_effects "{text}", "{constraints}" {operands} : ({types}) -> ()"""


@pytest.mark.parametrize(
    ("text", "mode", "origin"),
    [
        ("cp.async.cg.shared.global [$1], [$0], 16;", "read", "cp.async.cg.shared.global"),
        ("@p cp.async.ca.shared.global [$1], [$0], 4;", "read", "cp.async.ca.shared.global"),
        ("ld.global.v4.u32 {a,b,c,d}, [$0+16];", "read", "ld.global.v4.u32"),
        ("{ .reg .pred p; @!p ld.global.u32 a, [$0]; }", "read", "ld.global.u32"),
        ("st.global.f32 [$0], f;", "write", "st.global.f32"),
        ("red.global.add.f32 [$0], f;", "accumulate", "red.global.add.f32"),
        ("cp.async.bulk.global.shared::cta [$0], [$1], 16;", "write",
         "cp.async.bulk.global.shared::cta"),
        ("nothing.known [$0];", "readwrite", "nothing.known?"),
        ("mov.u64 a, $0;", "readwrite", "llvm.inline_asm?"),
    ],
)  # fmt: skip
def test_addresses_in_inline_assembly(text: str, mode: str, origin: str) -> None:
    assert access(asm(text))["x"] == (mode, origin)


REPLACE = "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [$1], $0;"
PUBLISH = "tensormap.cp_fenceproxy.global.shared::cta.sync.aligned [$0], [$1], 128;"
ENGINE = "cp.async.bulk.tensor.2d"


@pytest.mark.parametrize(
    ("copies", "mode"),
    [
        ((f"{ENGINE}.shared::cluster.global.tile [$1], [$0, {{b}}], [$1];",), "read"),
        ((f"{ENGINE}.global.shared::cta.bulk_group [$0, {{b}}], [$1];",), "write"),
        (
            (
                "fence.proxy.tensormap::generic.acquire.gpu [$0], 128;",
                f"{ENGINE}.shared::cluster.global.tile [$1], [$0], [$1];",
                f"{ENGINE}.global.shared::cta.tile [$0], [$1];",
            ),
            "readwrite",
        ),
        (("unknown.copy [$0];",), "readwrite"),
        ((), "readwrite"),
    ],
)
def test_addresses_in_tensor_maps(copies: tuple[str, ...], mode: str) -> None:
    """The copies that name the published map say what it is for; without any, nothing is known."""
    body = asm(REPLACE, "%address, %shared", "i64, i32")
    body = body.replace(
        "llvm.inline_asm", "%map = arith.constant 64 : i64\n      llvm.inline_asm", 1
    )
    for text in (PUBLISH, *copies):
        body += f'\n      llvm.inline_asm has_side_effects "{text}", "l,r" %map, %shared '
        body += ": (i64, i32) -> ()"
    assert access(body)["x"][0] == mode


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("{ .reg .b64 b; sub.s64 b, $0, 4; ld.global.v4.b32 {x, y, z, w}, [b]; }", "read"),
        ("{ .reg .b64 b, c; mov.b64 b, $0; add.s64 c, 8, b; st.global.b32 [c+4], x; }", "write"),
        ("{ .reg .b64 b; sub.s64 b, $0, 4; unknown.copy [b]; }", "readwrite"),
        ("{ .reg .b64 b; mul.s64 b, $0, 4; }", "readwrite"),
        ("{ .reg .pred p; setp.ge.u64 p, 8, $0; ld.global.b32 x, [$0]; }", "read"),
    ],
)
def test_addresses_that_the_text_makes_of_others(text: str, mode: str) -> None:
    assert access(asm(text, "%address", "i64"))["x"][0] == mode


def test_an_address_that_is_only_compared_is_no_access() -> None:
    """The end of a buffer, beside the address that is read."""
    text = "{ .reg .pred p; setp.le.u64 p, $0, $1; @p ld.global.b32 x, [$0]; }"
    assert access(asm(text, "%address, %address", "i64, i64"))["x"][0] == "read"


def test_kernels_differ_by_what_they_read() -> None:
    """Two kernels of a module do not share their modes."""
    text = source_text([kernel(name="one"), kernel(dense("f32", accumulate=True), name="two")])
    one, two = lower(text, "x", parse_target("vulkan"), BuildOptions())[0]
    assert [c.info.access[2].mode for c in (one, two)] == ["write", "readwrite"]
