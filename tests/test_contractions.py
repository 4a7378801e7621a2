"""What is read out of IR is what was written into it, and nothing is read that is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dialects.block_formats import DECODED_TYPES
from dialects.declarations import Declarations
from dialects.errors import Error, FormatError, UnsupportedError
from dialects.operands import Contraction, EpilogueStep, Operand, Product, check_contraction
from kernel_sources import NAME, READ, lowered, whole_pipeline
from lowering.attributes import contraction_of, is_kernel
from lowering.builder import KernelSource, dense, source_text
from lowering.ir import context, functions, parse_module
from lowering.passes import PASSES
from lowering.pipeline import Report, parse_pipeline, run_pipeline

FLOATS = {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "f32": ("f32", "f64"), "f64": ("f64",)}
INTEGERS = {"i8": ("i8", "i16", "i32"), "u8": ("i16", "i32"), "i16": ("i32",), "i32": ("i32",)}
TYPES = [(a, acc) for table in (FLOATS, INTEGERS) for a, sums in table.items() for acc in sums]
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda n: n not in ("workspace", "packed") and n.isidentifier()
)
WIDER = {"f16": "f32", "bf16": "f32", "f32": "f16", "f64": "f32", "i8": "i32", "i16": "i8"}
KEYWORDS = {"if", "is", "in", "or", "as", "and", "not", "for", "def", "del", "try", "None", "True"}


@st.composite
def contractions(draw: st.DrawFn) -> Contraction:
    """Any contraction that the IR can say: types, sources, transposes, batch, epilogue, names."""
    a, accumulator = draw(st.sampled_from(TYPES))
    batched, accumulate = draw(st.booleans()), draw(st.booleans())
    names = draw(st.lists(NAMES.filter(lambda n: n not in KEYWORDS), min_size=4, max_size=4))
    dims = [f"{n}{i}" for i, n in enumerate(names)]
    batch, (m, n, k) = (dims[0], dims[1:]) if batched else (None, dims[:3])
    lead = (batch,) if batch else ()
    flip = draw(st.tuples(st.booleans(), st.booleans()))
    labels = draw(st.lists(NAMES.filter(lambda n: n not in KEYWORDS), min_size=4, max_size=4))
    a_name, b_name, c_name, x_name = (f"{n}{i}" for i, n in enumerate(labels))
    result: tuple[str, ...] = (*lead, m, n)
    extra_dims = draw(st.sampled_from([(n,), (m,), (m, n), result]))
    b_dims = (*lead, *((n, k) if flip[1] else (k, n)))
    blocks = a in DECODED_TYPES and flip[1] and draw(st.booleans())
    extra = Operand(name=x_name, type=accumulator, dims=extra_dims)
    steps = draw(epilogues(accumulator, extra, cast=not accumulate))
    uses_extra = any(s.operand for s in steps)
    casts = [s.type for s in steps if s.type]
    return Contraction(
        batch=batch,
        m=m,
        n=n,
        k=k,
        a=Operand(name=a_name, type=a, dims=(*lead, *((k, m) if flip[0] else (m, k)))),
        b=Operand(name=b_name, type=a, dims=b_dims, source="q8_0" if blocks else None),
        c=Operand(
            name=c_name if accumulate else "c",
            type=casts[-1] if casts else accumulator,
            dims=result,
        ),
        accumulator=accumulator,
        accumulate=accumulate,
        extras=(extra,) if uses_extra else (),
        epilogue=tuple(steps),
    )


@st.composite
def epilogues(draw: st.DrawFn, type_: str, extra: Operand, *, cast: bool) -> list[EpilogueStep]:
    """Steps on a value of that type, a cast last."""
    ops = st.sampled_from(["add", "mul", "max", "min"])
    numbers = st.sampled_from([3.0, -7.0, 100.0] if type_[0] == "i" else [0.125, -3.0, 0.0])
    steps: list[EpilogueStep] = []
    for _ in range(draw(st.integers(0, 3))):
        op: Any = draw(ops)
        if draw(st.booleans()):
            steps.append(EpilogueStep(op=op, operand=extra.name))
        else:
            steps.append(EpilogueStep(op=op, constant=float(draw(numbers))))
    if cast and type_ in WIDER and draw(st.booleans()):
        steps.append(EpilogueStep(op="cast", type=WIDER[type_]))
    return steps


def read_back(contraction: Contraction) -> Contraction:
    """Written by the builder, read by the passes."""
    declared = Declarations(dims=contraction.dims)
    text = source_text([KernelSource(name="f", contraction=contraction, declarations=declared)])
    with context() as ctx:
        module = parse_module(text, NAME, ctx)
        run_pipeline(module, parse_pipeline(READ, PASSES), Report(source=NAME))
        (function,) = filter(is_kernel, functions(module.operation))
        return contraction_of(function, where=NAME)


@settings(max_examples=60)
@given(contraction=contractions())
def test_builder_and_reader_agree(contraction: Contraction) -> None:
    """For every contraction that there is."""
    assert read_back(contraction) == contraction


def test_constants_keep_the_bits_of_their_type() -> None:
    """Six digits would not tell two neighbours apart."""
    for type_, value in (("f64", 1 / 3), ("f32", 0.3333333432674408), ("f16", 0.333251953125)):
        step = EpilogueStep(op="mul", constant=value)
        assert read_back(dense(type_, type_, epilogue=(step,))).epilogue == (step,)


@pytest.mark.parametrize("name", ["c", "out", "c0"])
def test_the_result_has_a_name_of_its_own(name: str) -> None:
    """Unless an argument took it, it is c."""
    extras = tuple(Operand(name=n, type="f32", dims=("N",)) for n in sorted({"c", name}))
    steps = tuple(EpilogueStep(op="add", operand=e.name) for e in extras)
    base = dense("f32", extras=extras, epilogue=steps)
    contraction = Contraction(
        **{**vars(base), "c": Operand(name="result", type="f32", dims=("M", "N"))}
    )
    found = read_back(contraction)
    assert found.c.name not in {o.name for o in found.operands[:-1]}
    assert found.c.name.isidentifier()


BODY = """
func.func @f(%a: tensor<?x?x{a}>, %b: tensor<?x?x{a}>, %c: tensor<?x?x{c}>) -> tensor<?x?x{c}>
    attributes {{xpu.kernel, xpu.dims = ["M", "N", "K"]}} {{
  %0 = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
      affine_map<(m, n, k) -> (k, n)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}}
      ins(%a, %b : tensor<?x?x{a}>, tensor<?x?x{a}>) outs(%c : tensor<?x?x{c}>) {{
    ^bb0(%x: {a}, %y: {a}, %z: {c}):
{ops}
  }} -> tensor<?x?x{c}>
  return %0 : tensor<?x?x{c}>
}}
"""
SUM = "%s = arith.addf %z, %p : f32 linalg.yield %s : f32"


@pytest.mark.parametrize(
    ("a", "c", "ops"),
    [
        ("f32", "f32", f"%p = arith.mulf %x, %x : f32 {SUM}"),
        ("f32", "f32", f"%p = arith.mulf %x, %z : f32 {SUM}"),
        ("f32", "f32", f"%p = arith.addf %x, %y : f32 {SUM}"),
        ("f32", "f32", f"%q = arith.mulf %x, %y : f32 %p = arith.mulf %q, %q : f32 {SUM}"),
        ("f32", "f32", "%p = arith.mulf %x, %y : f32 %s = arith.addf %p, %p : f32 "
         "linalg.yield %s : f32"),
        ("f32", "f32", "%p = arith.mulf %x, %y : f32 %s = arith.subf %z, %p : f32 "
         "linalg.yield %s : f32"),
        ("f32", "f32", "%p = arith.mulf %x, %y : f32 %s = arith.maximumf %z, %p : f32 "
         "linalg.yield %s : f32"),
        ("f32", "f32", "%p = arith.mulf %x, %y : f32 linalg.yield %p : f32"),
        ("f32", "f32", "linalg.yield %z : f32"),
        ("f32", "f32", f"%n = arith.negf %x : f32 %p = arith.mulf %n, %y : f32 {SUM}"),
        ("i8", "f32", "%u = arith.sitofp %x : i8 to f32 %v = arith.sitofp %y : i8 to f32 "
         f"%p = arith.mulf %u, %v : f32 {SUM}"),
        ("f64", "f32", "%u = arith.truncf %x : f64 to f32 %v = arith.truncf %y : f64 to f32 "
         f"%p = arith.mulf %u, %v : f32 {SUM}"),
        ("i8", "i32", "%h = arith.extsi %x : i8 to i16 %u = arith.extui %h : i16 to i32 "
         "%v = arith.extsi %y : i8 to i32 %p = arith.muli %u, %v : i32 "
         "%s = arith.addi %z, %p : i32 linalg.yield %s : i32"),
    ],
)  # fmt: skip
def test_other_bodies_are_no_contraction(a: str, c: str, ops: str) -> None:
    """The right ops in the wrong places among them: what they read decides."""
    with pytest.raises(UnsupportedError, match=r"a contraction computes c \+ a \* b, found"):
        lowered(BODY.format(a=a, c=c, ops=ops), "group-operands")


def test_unsigned_is_known_for_bytes_alone() -> None:
    ops = (
        "%u = arith.extui %x : i16 to i32 %v = arith.extui %y : i16 to i32 "
        "%p = arith.muli %u, %v : i32 %s = arith.addi %z, %p : i32 linalg.yield %s : i32"
    )
    with pytest.raises(UnsupportedError, match="operand 'a' is unsigned i16, only i8 may be"):
        lowered(BODY.format(a="i16", c="i32", ops=ops), "group-operands")


EPILOGUE = """
#mn = affine_map<(m, n) -> (m, n)>
#n = affine_map<(m, n) -> (n)>
#m = affine_map<(m, n) -> (m)>
#one = affine_map<(m, n) -> ()>
func.func @f(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %x0: {type}, %c: tensor<?x?xf32>)
    -> tensor<?x?xf32> attributes {{xpu.kernel, xpu.dims = ["M", "N", "K"]}} {{
  %k = arith.constant 0.5 : f32
  %inf = arith.constant 0x7F800000 : f32
  %splat = arith.constant dense<1.0> : tensor<4xf32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf32>, tensor<?x?xf32>) outs(%c : tensor<?x?xf32>)
      -> tensor<?x?xf32>
  %1 = linalg.generic {{indexing_maps = [#mn, {map}, #mn],
      iterator_types = ["parallel", "parallel"]}}
      ins(%0, {name} : tensor<?x?xf32>, {type2}) outs(%c : tensor<?x?xf32>) {{
    ^bb0(%x: f32, %y: {scalar}, %z: f32):
{ops}
  }} -> tensor<?x?xf32>
  return %1 : tensor<?x?xf32>
}}
"""
ADD = "%s = arith.addf %x, %y : f32 linalg.yield %s : f32"


def epilogue(ops: str, **changes: str) -> str:
    """A kernel with an epilogue of these ops on x, what it reads y, and its own output z."""
    type_ = changes.get("type", "tensor<?xf32>")
    values = {"map": "#n", "name": "%x0", "scalar": "f32", "type": type_, "type2": type_}
    return EPILOGUE.format(**{**values, **changes, "ops": ops})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (epilogue("%s = math.tanh %x : f32 linalg.yield %s : f32"), "epilogue op 'math.tanh' is"),
        (epilogue("%s = arith.maxnumf %x, %y : f32 linalg.yield %s : f32"), "'arith.maxnumf' is"),
        (epilogue("%s = arith.addf %x, %x : f32 linalg.yield %s : f32"), "running value twice"),
        (epilogue("%s = arith.addf %x, %z : f32 linalg.yield %s : f32"), "found its own output"),
        (epilogue("%s = arith.addf %x, %y : f32 linalg.yield %y : f32"), "must yield what it"),
        (epilogue("%s = arith.addf %x, %y : f32 %t = arith.mulf %x, %s : f32 "
                  "linalg.yield %t : f32"), "found 'linalg.generic'"),
        (epilogue("%t = arith.truncf %y : f32 to f16 %u = arith.extf %t : f16 to f32 "
                  "%s = arith.addf %x, %u : f32 linalg.yield %s : f32"), "found 'arith.truncf'"),
        (epilogue("%s = arith.mulf %x, %inf : f32 linalg.yield %s : f32"), "must be finite"),
        (epilogue(ADD, map="#one", type="f32"), "expected a tensor, found f32"),
        (epilogue(ADD, map="#one", type="tensor<f32>"), "'x0' has rank 0"),
        (epilogue(ADD, type="tensor<?xf32, 1 : i32>"), "'x0' has the encoding 1 : i32"),
        (epilogue(ADD, type="tensor<8xf32>"), "size N of 'x0' is fixed at 8"),
        (epilogue(ADD, name="%splat", type2="tensor<4xf32>"), "constant must be a number, found"),
        (epilogue(ADD, name="%a", map="#mn", type2="tensor<?x?xf32>"), "'a' has two roles"),
        (epilogue(ADD, name="%c", map="#mn", type2="tensor<?x?xf32>"), "'c' has two roles"),
        (epilogue("%w = arith.extui %y : i8 to i32 %f = arith.sitofp %w : i32 to f32 "
                  "%s = arith.addf %x, %f : f32 linalg.yield %s : f32", type="tensor<?xi8>",
                  scalar="i8"), "found 'arith.extui'"),
    ],
)  # fmt: skip
def test_epilogues_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message) as caught:
        lowered(text, READ)
    assert caught.value.where == "test.mlir:6:1"


def test_one_operand_in_two_ways_is_refused() -> None:
    """As a row it is one operand, as a column another."""
    text = (
        epilogue(ADD)
        .replace("return %1", "return %2")
        .replace(
            "  return",
            "  %2 = linalg.generic {indexing_maps = [#mn, #m, #mn], "
            'iterator_types = ["parallel", "parallel"]}\n'
            "      ins(%1, %x0 : tensor<?x?xf32>, tensor<?xf32>) outs(%c : tensor<?x?xf32>) {\n"
            f"    ^bb0(%x: f32, %y: f32, %z: f32): {ADD}\n  }} -> tensor<?x?xf32>\n  return",
        )
    )
    with pytest.raises(UnsupportedError, match="argument 'x0' has two roles, 'x1' too"):
        lowered(text, READ)
    again = lowered(text.replace("[#mn, #m, #mn]", "[#mn, #n, #mn]"), READ)
    assert 'epilogue = [{op = "add", operand = "x0"}, {op = "add", operand = "x0"}]' in again


@pytest.mark.parametrize(
    "changes",
    [
        {"k": "M"},
        {"a": Operand(name="b", type="f32", dims=("M", "K"))},
        {"a": Operand(name="a", type="f32", dims=("M", "M"))},
        {"a": Operand(name="a", type="f32", dims=())},
        {"a": Operand(name="a", type="f33", dims=("M", "K"))},
        {"c": Operand(name="c", type="f32", dims=("M", "Q"))},
        {"accumulator": "f"},
        {"epilogue": (EpilogueStep(op="add"),)},
        {"epilogue": (EpilogueStep(op="add", operand="bias"),)},
        {"epilogue": (EpilogueStep(op="add", operand="a", constant=1.0),)},
        {"epilogue": (EpilogueStep(op="cast"),)},
        {"epilogue": (EpilogueStep(op="cast", type="f99"),)},
        {"epilogue": (EpilogueStep(op="mul", type="f16"),)},
        {"epilogue": (EpilogueStep(op="mul", constant=float("inf")),)},
    ],
    ids=str,
)
def test_contractions_that_make_no_sense(changes: dict[str, Any]) -> None:
    """However they came about: the builder, the passes and the manifest check the same."""
    check_contraction(dense("f32"))
    with pytest.raises((FormatError, UnsupportedError)):
        check_contraction(Contraction(**{**vars(dense("f32")), **changes}))


@pytest.mark.parametrize(
    "operand",
    [
        dense("u8", "u32"),
        dense("f32", "f32", result="u8"),
        dense("f32", extras=(Operand(name="x", type="u8", dims=("N",)),)),
    ],
)
def test_the_builder_refuses_signs_that_ir_cannot_say(operand: Contraction) -> None:
    """Integers are signless there: what came back would be another kernel."""
    with pytest.raises(Error, match="only a and b can be unsigned"):
        read_back(operand)


TWO = """
  %zero = arith.constant 0.0 : f32
  %izero = arith.constant 0 : i32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %ie = tensor.empty(%m, %n) : tensor<?x?xi32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %iinit = linalg.fill ins(%izero : i32) outs(%ie : tensor<?x?xi32>) -> tensor<?x?xi32>
  %0 = linalg.matmul ins(%a, %b : tensor<?x?xf16>, tensor<?x?xf16>)
       outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  %1 = linalg.matmul ins(%p, %q : tensor<?x?xi8>, tensor<?x?xi8>)
       outs(%iinit : tensor<?x?xi32>) -> tensor<?x?xi32>
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
       ins(%0, %1 : tensor<?x?xf32>, tensor<?x?xi32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: i32, %old: f32):
    %w = arith.sitofp %y : i32 to f32
    %s = arith.addf %x, %w : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
       ins(%2 : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %old: f32):
    %s = arith.maximumf %x, %zero : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  return %3 : tensor<?x?xf32>"""


def two_products(body: str = TWO) -> str:
    """A kernel of two products in types of their own, and a step after their sum."""
    arguments = (
        "%a: tensor<?x?xf16>, %b: tensor<?x?xf16>, "
        '%p: tensor<?x?xi8> {xpu.name = "p"}, %q: tensor<?x?xi8>'
    )
    return (
        "#id = affine_map<(m, n) -> (m, n)>\n"
        f"func.func @two({arguments}) -> tensor<?x?xf32> attributes {{xpu.kernel, "
        'xpu.dims = ["M", "N", "K"], xpu.instantiate = [{m = 4, n = 4, k = 4, thread_m = 2, '
        f"thread_n = 2}}]}} {{{body}\n}}"
    )


def test_two_products_are_read_in_the_order_of_the_arguments() -> None:
    text = lowered(two_products(), READ)
    found = (
        'more = [{a = {dims = ["M", "K"], name = "p", type = "i8"}, accumulator = "i32", '
        'b = {dims = ["K", "N"], name = "b1", type = "i8"}}]'
    )
    assert found in text
    assert 'a = "f16", acc = "f32"' in text
    assert 'a = "i8", acc = "i32"' in text


@pytest.mark.parametrize("target", ["cpu", "vulkan", "cuda:sm_90a", "rocm:gfx1100"])
def test_no_template_has_more_than_one_product(target: str) -> None:
    """Refused by name, with the form that works."""
    with pytest.raises(UnsupportedError, match="has 2: write it in cooperative-matrix IR"):
        lowered(two_products(), whole_pipeline(target))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("outs(%iinit :", "outs(%ie :", "a further product must start at zero"),
        ("arith.addf %x, %w", "arith.mulf %x, %w", "adds the second, converted, to the first"),
        ("arith.addf %x, %w", "arith.addf %w, %w", "adds the second, converted, to the first"),
        ("ins(%0, %1 :", "ins(%0, %ie :", "must be an argument or a product|no contraction|tensor"),
    ],
)
def test_other_sums_of_products_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        lowered(two_products(TWO.replace(old, new)), READ)


def test_the_builder_writes_one_product() -> None:
    further = Product(
        a=Operand(name="p", type="i8", dims=("M", "K")),
        b=Operand(name="q", type="i8", dims=("K", "N")),
        accumulator="i32",
    )
    both = replace(dense("f16"), more=(further,))
    declared = Declarations(dims=both.dims)
    with pytest.raises(UnsupportedError, match="the builder writes one product, found 2"):
        source_text([KernelSource(name="f", contraction=both, declarations=declared)])


def test_a_product_after_the_epilogue_is_refused() -> None:
    body = TWO.replace("ins(%0, %1 :", "ins(%3, %1 :")
    first, second = body.split("  %2 = ")
    joined, step = second.split("  %3 = ")
    step, tail = step.split("  return")
    moved = step.replace("ins(%2 :", "ins(%0 :")
    text = f"{first}  %3 = {moved}  %2 = {joined}  return{tail.replace('%3', '%2')}"
    with pytest.raises(UnsupportedError, match="further products are added before the epilogue"):
        lowered(two_products(text), READ)
