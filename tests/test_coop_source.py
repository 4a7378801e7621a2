"""Kernels in cooperative-matrix IR: what is read of them, and what is refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from coop_kernels import Coop, coop_text
from dialects.errors import Error
from dialects.grouping import Matrices, MultiplyAdd, TileGroup, select_tiers
from dialects.operands import OperandGroup
from facts_files import FOLDER
from kernel_sources import READ, lowered, source
from lowering.attributes import groups_of
from lowering.build import BuildOptions, lower
from lowering.builder import dense
from lowering.ir import context, functions, parse_module
from lowering.passes import PASSES
from lowering.pipeline import Report, parse_pipeline, run_pipeline
from lowering.target import parse_target

LISTED = str(FOLDER / "vulkan-h200.json")
A, B = '!gpu.mma_matrix<16x16xf16, "AOp">', '!gpu.mma_matrix<16x16xf16, "BOp">'
C = '!gpu.mma_matrix<16x16xf32, "COp">'
OP = "gpu.subgroup_mma_"
TEXT = coop_text(Coop())


def groups(text: str, target: str) -> tuple[OperandGroup, ...]:
    """The groups of the module's kernel after tier selection."""
    report = Report(source="test.mlir")
    with context() as ctx:
        module = parse_module(text, "test.mlir", ctx)
        items = parse_pipeline(f"{READ},select-tier{{target={target}}}", PASSES)
        run_pipeline(module, items, report)
        (kernel,) = [f for f in functions(module.operation) if "xpu.groups" in f.attributes]
        return groups_of(kernel, where="")


def tiers(text: str, target: str = LISTED) -> list[tuple[str, str, str]]:
    """(operand type, accumulator, tier) of each group's records."""
    return [(g.a, g.acc, g.tier) for g in groups(text, target)]


def between(lines: str, before: str = "") -> str:
    """The kernel with lines between its sum and its store."""
    return coop_text(Coop(between=lines, before=before))


def product(result: str, k: int, type_: str, a: str, b: str, c: str) -> str:
    """One more product of 16 x k x 16."""
    types = (f'!gpu.mma_matrix<16x{k}x{type_}, "AOp">', f'!gpu.mma_matrix<{k}x16x{type_}, "BOp">')
    return f"{result} = {OP}compute {a}, {b}, {c} : {types[0]}, {types[1]} -> {C}\n"


def filled(name: str, use: str) -> str:
    """A tile of f32 zeros."""
    return f'{name} = {OP}constant_matrix %q : !gpu.mma_matrix<16x16xf32, "{use}">\n'


FLOATS = (
    "%q = arith.constant 0.0 : f32\n"
    + filled("%qa", "AOp")
    + filled("%qb", "BOp")
    + filled("%qc", "COp")
    + product("%qd", 16, "f32", "%qa", "%qb", "%qc")
)
ROOM = "%room = memref.alloc() : memref<16x16xf32, #gpu.address_space<workgroup>>\n"
IN_ROOM = "%room[%c0, %c0] leadDimension 16"
ROOM_TYPE = "memref<16x16xf32, #gpu.address_space<workgroup>>"


def test_the_shape_is_what_the_linalg_form_leaves_open() -> None:
    """Both forms yield tile groups and a contraction."""
    text = lowered(TEXT, READ)
    (groups_,) = re.findall(r"xpu\.tile_groups = \[(.*)\]\}", text)
    multiply = '{a = "f16", acc = "f32", b = "f16"'
    assert groups_ == f"{{multiplies = [{multiply}, shape = [16, 16, 16]}}], uses = []}}"
    same = lowered(source(dense("f16")), READ)
    (groups_,) = re.findall(r"xpu\.tile_groups = \[(.*)\]\}", same)
    assert groups_ == f"{{multiplies = [{multiply}}}], uses = []}}"
    contractions = [re.findall(r"xpu\.contraction = (\{.*?\}), xpu", t) for t in (text, same)]
    assert contractions[0] == contractions[1] != []


@pytest.mark.parametrize(
    ("coop", "target", "expected"),
    [
        (Coop(), LISTED, "coop_matrix_16x16x16"),
        (Coop(n=8), LISTED, "coop_matrix_16x8x16"),
        (Coop(m=8), LISTED, None),
        (Coop(type="u8", accumulator="i32", k=32), LISTED, "coop_matrix_16x16x32"),
        (Coop(type="i8", accumulator="i32"), LISTED, None),
        (Coop(), "vulkan", None),
        (Coop(), "cuda:sm_75", "wmma.mma.m16n16k16.f32.f16"),
        (Coop(), "cuda:sm_61", None),
        (Coop(m=32, n=8), "cuda:sm_80", "wmma.mma.m32n8k16.f32.f16"),
        (Coop(type="i8", accumulator="i32"), "cuda:sm_80", "wmma.mma.m16n16k16.i32.i8"),
        (Coop(n=8), "cuda:sm_80", None),
        (Coop(type="f32"), "cuda:sm_90a", None),
        (Coop(), "rocm:gfx1100", "wmma_f32_16x16x16_f16"),
        (Coop(n=8), "rocm:gfx1100", None),
        (Coop(), "rocm:gfx1030", None),
        (Coop(), "rocm:gfx942", "mfma_f32_16x16x16_f16"),
        (Coop(), "cpu", None),
    ],
)
def test_native_only_for_exactly_the_types_and_shape(
    coop: Coop, target: str, expected: str | None
) -> None:
    (group,) = groups(coop_text(coop), target)
    assert (group.instruction, group.shape) == (expected, (coop.m, coop.n, coop.k))
    assert group.tier == ("software" if expected is None else "native")


def test_a_straddling_group_is_demoted_whole() -> None:
    """The sum goes on into a product of a shape that the driver does not list."""
    loads = (
        f"%px = {OP}load_matrix %a[%row, %c0] leadDimension 0"
        ' : memref<?x?xf16> -> !gpu.mma_matrix<16x4xf16, "AOp">\n'
        f"%py = {OP}load_matrix %b[%c0, %column] leadDimension 0"
        ' : memref<?x?xf16> -> !gpu.mma_matrix<4x16xf16, "BOp">\n'
    )
    rows = groups(between(loads + product("%last", 4, "f16", "%px", "%py", "%sum")), LISTED)
    assert [(r.shape, r.tier) for r in rows] == [
        ((16, 16, 16), "software"),
        ((16, 16, 4), "software"),
    ]
    assert {r.reason for r in rows} == {
        "demoted whole, though f16*f16->f32 16x16x16 is listed: "
        "no matrix instruction for f16*f16->f32 16x16x4"
    }


def test_groups_that_share_no_tile_keep_their_tiers() -> None:
    """A second product beside the first, in types that are not listed: only it is software."""
    add = f"%last = {OP}elementwise addf %sum, %sum : ({C}, {C}) -> {C}"
    beside = f"{FLOATS}{OP}store_matrix %qd, {IN_ROOM} : {C}, {ROOM_TYPE}\n"
    expected = [("f16", "f32", "native"), ("f32", "f32", "software")]
    assert tiers(between(beside + add, ROOM)) == expected
    joined = beside + add.replace("addf %sum, %sum", "addf %sum, %qd")
    assert {tier for *_, tier in tiers(between(joined, ROOM))} == {"software"}


def test_tiles_are_followed_through_branches() -> None:
    """What an scf.if yields is of the group of both."""
    branch = (
        f"{FLOATS}%p = arith.cmpi eq, %size_M, %c0 : index\n"
        f"%last = scf.if %p -> ({C}) {{ scf.yield %sum : {C} }} else {{ scf.yield %qd : {C} }}"
    )
    rows = tiers(between(branch))
    assert rows == [("f16", "f32", "software"), ("f32", "f32", "software")]


@pytest.mark.parametrize(("target", "kind"), [(LISTED, "maxf"), ("cuda:sm_80", "subf")])
def test_an_elementwise_op_without_a_native_form_demotes(target: str, kind: str) -> None:
    """The compilers lack some; a group with one is software."""
    other = {"maxf": "mulf", "subf": "divf"}[kind]
    for used, tier in ((kind, "software"), (other, "native")):
        text = between(f"%last = {OP}elementwise {used} %sum, %sum : ({C}, {C}) -> {C}")
        (group,) = groups(text, target)
        assert group.tier == tier
        assert ("has no native form" in group.reason) == (tier == "software")


@pytest.mark.parametrize(("lead", "tier"), [(20, "native"), (18, "software")])
def test_rows_that_matrix_loads_cannot_read_demote(lead: int, tier: str) -> None:
    """AMD's loads are of single elements and read any rows."""
    type_ = f"memref<16x{lead}xf32, #gpu.address_space<workgroup>>"
    room = f"%room = memref.alloc() : {type_}\n"
    at = f"%room[%c0, %c0] leadDimension {lead} : "
    lines = (
        f"{OP}store_matrix %sum, {at}{C}, {type_}\n%u = {OP}load_matrix {at}{type_} -> {C}\n{PLUS}"
    )
    for target in (LISTED, "cuda:sm_80"):
        assert tiers(between(lines, room), target) == [("f16", "f32", tier)]
    assert tiers(between(lines, room), "rocm:gfx1100") == [("f16", "f32", "native")]


def test_a_tile_in_two_instructions_is_software_where_each_has_its_own_layout() -> None:
    """The same two shapes are one native group where the compiler converts the tiles itself."""
    loads = (
        f"%px = {OP}load_matrix %a[%row, %c0] leadDimension 0"
        ' : memref<?x?xf16> -> !gpu.mma_matrix<16x8xf16, "AOp">\n'
        f"%py = {OP}load_matrix %b[%c0, %column] leadDimension 0"
        ' : memref<?x?xf16> -> !gpu.mma_matrix<8x8xf16, "BOp">\n'
        f'%last = {OP}compute %px, %py, %sum : !gpu.mma_matrix<16x8xf16, "AOp">, '
        '!gpu.mma_matrix<8x8xf16, "BOp"> -> {acc}\n'
    )
    text = coop_text(Coop(n=8, between=loads))
    assert {g.tier for g in groups(text, LISTED)} == {"native"}
    both = (MultiplyAdd(a="f16", b="f16", acc="f32", shape=(16, 16, k)) for k in (16, 32))
    one = Matrices(
        instruction=lambda m: (m.text, (1, 1, 1)), obstacle=lambda _: None, one_layout=True
    )
    (rows,) = select_tiers([TileGroup(multiplies=tuple(both))], one)
    assert {r.tier for r in rows} == {"software"}
    assert "would lie differently in each instruction" in rows[0].reason


def test_each_choice_is_told_once() -> None:
    """One note a distinct product, shape and target."""
    notes: list[str] = []
    again = coop_text(Coop(), name="again")
    lowered(f"{TEXT}\n{again}", f"{READ},select-tier{{target={LISTED}}}", notes)
    assert notes == [
        "f16*f16->f32 16x16x16 on vulkan: native, the target lists coop_matrix_16x16x16"
    ]


LANE = "%lane = gpu.thread_id x\n"
STORED = f"%last = {OP}elementwise addf %sum, %sum : ({{acc}}, {{acc}}) -> {{acc}}"
PLUS = f"%last = {OP}elementwise addf %sum, %u : ({{acc}}, {{acc}}) -> {{acc}}"
KEPT = "memref.store %kept, %room[%c0, %c0] : memref<16x16xf32, #gpu.address_space<workgroup>>\n"
SHUFFLE = (
    "%w = arith.constant 1.0 : f32\n%o = arith.constant 1 : i32\n%l = arith.constant 8 : i32\n"
    "%kept, %ok = gpu.shuffle xor %w, %o, %l : f32\n"
)
VECTOR = (
    "%v = vector.load %a[%row, %c0] : memref<?x?xf16>, vector<4xf16>\n"
    "%e = vector.extract %v[0] : f16 from vector<4xf16>\n%kept = arith.extf %e : f16 to f32\n"
)
MADE = "%made = memref.alloc() : memref<4xf32, #gpu.address_space<workgroup>>\n"
USED = "memref.store %u, %made[%c0] : memref<4xf32, #gpu.address_space<workgroup>>\n"
U = "%u = arith.constant 1.0 : f32\n"


@pytest.mark.parametrize(
    ("coop", "message"),
    [
        (Coop(before=ROOM + SHUFFLE + KEPT), "'gpu.shuffle' assumes a wave width: declare xpu.wa"),
        (Coop(before=ROOM + VECTOR + KEPT), "'vector.load' takes the argument 'a', what may is me"),
        (Coop(before=U, inside=MADE + USED), "must be static, .* outside of loops"),
        (Coop(before=U + MADE.replace(", #gpu.address_space<workgroup>", "")
              + USED.replace(", #gpu.address_space<workgroup>", "")), "memref.alloc must be stat"),
        (Coop(before="%x0 = memref.load %c[%c0, %c0] : memref<?x?xf32>\n"
              "memref.store %x0, %c[%c0, %c0] : memref<?x?xf32>"),
         "'c' has readwrite access, the reference says write"),
        (Coop(before="%h = arith.constant 1.0 : f16\n"
              "memref.store %h, %a[%c0, %c0] : memref<?x?xf16>"),
         "'a' has readwrite access, the reference says read"),
        (Coop(before=ROOM, between=f"%u = {OP}load_matrix %room[%c0, %c0] leadDimension 8"
              f" : {ROOM_TYPE} -> {{acc}}\n{PLUS}"), "at leadDimension 8 is no part of"),
        (Coop(between=f"%u = {OP}load_matrix %c[%row, %column] leadDimension 16"
              f" : memref<?x?xf32> -> {{acc}}\n{PLUS}"),
         "rows of 'c' are as far apart as the caller says: write leadDimension 0, found 16"),
        (Coop(between=f'%last = "{OP}compute"(%ta, %tb, %sum) <{{b_transpose}}> : ({A}, {B}, {C})'
              f" -> {C}", before="%h = arith.constant 1.0 : f16\n"
              f"%ta = {OP}constant_matrix %h : {A}\n"
              f"%tb = {OP}constant_matrix %h : {B}"), "transposes nothing: load the tile with"),
    ],
)  # fmt: skip
def test_what_no_body_can_rewrite_is_refused(coop: Coop, message: str) -> None:
    """Each message says what was found and what works."""
    with pytest.raises(Error, match=message) as caught:
        lowered(coop_text(coop), READ)
    assert (caught.value.where or "").startswith("test.mlir:")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("xpu.reference = @coop_reference,", "", "says what it computes by xpu.reference = @name"),
        ("@coop_reference,", "@none,", "xpu.reference @none is no function of linalg ops"),
        ("@coop_reference,", "@coop,", "xpu.reference @coop is no function of linalg ops"),
        ("@coop_reference,", "3 : i64,", "xpu.reference must be @name, of a function"),
        (", %size_K: index)", ", %size_K: index, %more: index)", "takes 7 arguments, .* have 6"),
        (", %size_K: index)", ", %more: i64, %size_K: index)", "takes 7 arguments, .* have 6"),
        ("%size_N: index", "%size_N: i64", "argument 4 is the size N and must be an index"),
        ("memref<?x?xf32>", "memref<?x16xf32>", r"must be memref<\?x\?xf32>, found memref<\?x16x"),
        ("memref<?x?xf32>", "memref<?x?xf32, 1>", r"must be memref<\?x\?xf32>, found memref<\?x\?"),
    ],
)
def test_arguments_are_those_of_the_reference(old: str, new: str, message: str) -> None:
    with pytest.raises(Error, match=message):
        lowered(TEXT.replace(old, new), READ)


@pytest.mark.parametrize(
    ("open_", "what"),
    [
        ("%p = arith.cmpi eq, %lane, %c0 : index\nscf.if %p {", "scf.if"),
        ("scf.for %j = %lane to %cm step %ck {", "scf.for"),
        ("%u = memref.load %a[%lane, %c0] : memref<?x?xf16>\n%f = arith.fptosi %u : f16 to i32\n"
         "%g = arith.index_cast %f : i32 to index\n%p = arith.cmpi eq, %g, %c0 : index\n"
         "scf.if %p {", "scf.if"),
        ("%t = scf.for %j = %c0 to %cm step %ck iter_args(%s = %c0) -> (index) {\n"
         "%n = arith.addi %s, %lane : index\nscf.yield %n : index }\n"
         "%p = arith.cmpi eq, %t, %c0 : index\nscf.if %p {", "scf.if"),
    ],
)  # fmt: skip
def test_barriers_under_a_lanes_own_condition_are_refused(open_: str, what: str) -> None:
    """A barrier would wait for lanes that never come."""
    text = coop_text(Coop(between=f"{LANE}{open_}\ngpu.barrier\n}}\n{STORED}"))
    with pytest.raises(Error, match=f"'gpu.barrier' stands in an {what} that depends on the lane"):
        lowered(text, READ)
    lowered(text.replace("gpu.thread_id x", "gpu.block_id x"), READ)


def test_one_tile_is_what_the_author_wrote_for() -> None:
    entry = re.search(r"\[\{m = [^]]*\]", TEXT)
    assert entry is not None
    second = entry[0].replace("]", ", {m = 32, n = 16, k = 16, waves_m = 1, waves_n = 1}]")
    with pytest.raises(Error, match=r"is written for one tile, .* 16x16x16_w1x1, 32x16x16_w1x1"):
        lowered(TEXT.replace(entry[0], second), READ)


def test_a_kernel_in_linalg_has_no_reference() -> None:
    text = (
        "func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %c: tensor<?x?xf32>)"
        ' -> tensor<?x?xf32> attributes {xpu.kernel, xpu.dims = ["M", "N", "K"],'
        " xpu.reference = @g} { %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>)"
        " outs(%c : tensor<?x?xf32>) -> tensor<?x?xf32> return %0 : tensor<?x?xf32> }"
    )
    with pytest.raises(Error, match=r"xpu.reference is for a kernel in cooperative-matrix IR"):
        lowered(text, READ)


@pytest.mark.parametrize(
    ("coop", "target", "options", "message"),
    [
        (Coop(m=8), LISTED, {"tier": "native"}, "no operand group is native: no matrix instruct"),
        (Coop(), LISTED, {"body": "software"}, "fragments was not asked for"),
        (Coop(wave=64), LISTED, {}, r"xpu.wave {width = 64}: vulkan has waves of 32"),
        (Coop(m=512, n=512), "vulkan", {}, r"each lane would hold 8192 > 1024 elements"),
    ],
)
def test_no_candidate_is_a_refusal_by_name(
    coop: Coop, target: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(Error, match=message):
        lower(coop_text(coop), "test.mlir", parse_target(target), BuildOptions(**options))


def test_tier_and_body_restrict() -> None:
    def bodies(**options: Any) -> list[str]:
        target = parse_target(LISTED)
        candidates, _ = lower(TEXT, "test.mlir", target, BuildOptions(**options))
        return [c.info.body for c in candidates]

    assert bodies() == ["fragments", "fragments_software"]
    assert bodies(tier="native") == ["fragments"]
    assert bodies(tier="software") == bodies(body="fragments_software") == ["fragments_software"]
