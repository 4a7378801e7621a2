"""Whatever stands in an attribute is read, or refused by name and place: nothing else comes out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dialects.declarations import Declarations, Hold, Occupancy
from dialects.errors import DeclarationError, Error, Failures, ParseError
from dialects.expressions import Expression
from dialects.member import Member, Tile
from dialects.operands import Contraction
from facts_files import FOLDER
from kernel_sources import NAME, kernel, lowered, source, whole_pipeline
from lowering.attributes import AUTHOR_NAMES, PIPELINE_NAMES, declarations
from lowering.builder import dense, source_text
from lowering.ir import MAX_NESTING, context, functions, parse_module

LISTED = FOLDER / "vulkan-h200.json"  # lists cooperative matrices
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
WORDS = st.sampled_from(
    [
        *("m", "n", "k", "thread_m", "waves_m", "stages", "body", "backends", "width", "tracked"),
        *("max_threads", "max_waves", "members", "dims", "name", "type", "op", "a", "b", "c"),
    ]
)
TERMS = st.sampled_from(["m % 2 == 0", "1", "wave", "m //", "M", "software", "cpu", "cuda", "f32"])
NUMBERS = st.sampled_from([0, 1, -1, 4, 16, 64, 65536, 65537, 2**31, 2**63 - 1, -(2**63)])


def quoted(text: str) -> str:
    """A string attribute of any text."""
    return '"' + "".join(f"\\{b:02X}" for b in text.encode()) + '"'


SCALARS = st.one_of(
    NUMBERS.map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda f: f"{f:e}"),
    (TEXT | TERMS).map(quoted),
    st.sampled_from(
        [
            *("unit", "true", "false", "f32", "@symbol", "affine_map<(d0) -> (d0)>"),
            *("array<i64: 1>", "dense<1> : tensor<2xi8>", 'loc("a")', "[]", "{}", "1 : i1"),
            *("-1 : si8", "255 : ui8", r'"\FF\FE"', f"{2**70} : i128", "0x7FC00000 : f32"),
            *("[[[[]]]]", '{"a b" = 1}'),
        ]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda v: f"[{', '.join(v)}]"),
        st.dictionaries(WORDS, inner, max_size=4).map(
            lambda d: "{" + ", ".join(f"{k} = {v}" for k, v in d.items()) + "}"
        ),
    ),
    max_leaves=8,
)
MEMBER = st.fixed_dictionaries(
    {"m": NUMBERS, "n": NUMBERS, "k": NUMBERS},
    optional={p: NUMBERS for p in ("thread_m", "thread_n", "waves_m", "waves_n", "stages")},
)


def refusal(text: str, pipeline: str) -> Error | None:
    """What lowering a text raises, when it raises what it may."""
    try:
        lowered(text, pipeline)
    except Error as error:
        return error
    return None


def check(error: Error | None) -> None:
    """An error says where, in one line each."""
    for one in error.errors if isinstance(error, Failures) else [error]:
        if one is not None:
            assert one.where is not None
            assert one.where.startswith(NAME)
            assert one.message
            assert all("\n" not in line for line in one.lines())


def with_attribute(name: str, value: str, contraction: Contraction | None = None) -> str:
    """A kernel with one attribute more, or another value for one that it has."""
    text = source(contraction)
    start = text.index(f"xpu.{name} =") if f"xpu.{name} =" in text else None
    if start is None:
        return text.replace("xpu.kernel,", f"xpu.kernel, xpu.{name} = {value},", 1)
    begin = start + len(f"xpu.{name} = ")
    depth, end = 0, begin
    while depth or text[end] not in ",}":
        depth += (text[end] in "[{") - (text[end] in "]}")
        end += 1
    return text[:begin] + value + text[end:]


@settings(max_examples=150)
@given(name=st.sampled_from([*AUTHOR_NAMES[1:], *PIPELINE_NAMES, "nonsense"]), value=VALUES)
@example(name="instantiate", value="[{m = 16, n = 16, k = 16, thread_m = 4, thread_n = 4}]")
@example(name="dims", value=r'["\FF", "N", "K"]')
@example(name="wave", value=r'{width = 32, "\FF" = 1}')
@example(name="occupancy", value='{max_threads = loc("a")}')
@example(name="spills", value='{tracked = "a location: loc(1)"}')
@example(name="dims", value='["M", "N"]')
@example(name="requires", value=quoted("(" * 90 + "m" + ")" * 90))
def test_any_value_of_any_declaration(name: str, value: str) -> None:
    """Through the whole pipeline: wrong kinds, sizes that are negative or huge, other scripts."""
    check(refusal(with_attribute(name, value), whole_pipeline("cpu")))


HUGE = {"m": 65536, "n": 65536, "k": 65536}


@settings(max_examples=60)
@given(members=st.lists(MEMBER, max_size=3), target=st.sampled_from(["cpu", "vulkan", str(LISTED)]))
@example(members=[{**HUGE, "thread_m": 65536, "thread_n": 65536}], target="cpu")
@example(members=[{**HUGE, "thread_m": 65536, "thread_n": 65536}], target="vulkan")
@example(members=[{**HUGE, "thread_m": 1, "thread_n": 65536}], target="vulkan")
@example(members=[{**HUGE, "waves_m": 1, "waves_n": 1}], target=str(LISTED))
@example(members=[{"m": 16, "n": 16, "k": 65536, "waves_m": 1, "waves_n": 1}], target=str(LISTED))
def test_any_members(members: list[dict[str, int]], target: str) -> None:
    """No size makes the emitters run away: what would be too much text is refused."""
    entries = [", ".join(f"{k} = {v}" for k, v in m.items()) for m in members]
    value = "[" + ", ".join(f"{{{e}}}" for e in entries) + "]"
    text = with_attribute("instantiate", value, dense("f16"))
    check(refusal(text, whole_pipeline(target)))


@settings(max_examples=60)
@given(name=TEXT, dims=st.lists(TEXT | WORDS, min_size=3, max_size=3), argument=TEXT | WORDS)
@example(name="kernel", dims=["a", "b", "c"], argument="v")
@example(name="mmt4d", dims=["v1", "c0", "p"], argument="c")
@example(name="gemm", dims=["a_0", "buf", "wg"], argument="x")
@example(name="f", dims=["if", "N", "K"], argument="lambda")
def test_any_names(name: str, dims: list[str], argument: str) -> None:
    """A name is refused where it is declared, or it clashes with nothing that is emitted."""
    text = source().replace("@gemm", f"@{quoted(name)}")
    text = text.replace('"M", "N", "K"', ", ".join(quoted(d) for d in dims))
    text = text.replace('{xpu.name = "a"}', f"{{xpu.name = {quoted(argument)}}}")
    for target in ("cpu", "vulkan"):
        error = refusal(text, whole_pipeline(target))
        assert not isinstance(error, ParseError)
        check(error)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", NAME),
        ("nonsense", f"{NAME}:1:1"),
        ("module {\n  func.func @f( {\n}", f"{NAME}:2:16"),
        ("module {\n  %1 = arith.addi %0, %0 : i32\n}", f"{NAME}:2:19"),
        ('\nmodule attributes {"a\\FF" = 1} {}', f"{NAME}:2"),
        ("module\0", f"{NAME}:1:7"),
        ("module \ud800", NAME),
        ("[" * (MAX_NESTING + 1), f"{NAME}:1"),
        ("\n\nmodule attributes {a = " + "[" * 100000, f"{NAME}:3"),
        ("module attributes {a = " + "{a = " * 5000, f"{NAME}:1"),
    ],
    ids=str,
)
def test_texts_that_are_no_module(text: str, where: str) -> None:
    """Whatever would make the parser fall over is refused before it."""
    error = refusal(text, whole_pipeline("cpu"))
    assert isinstance(error, ParseError | DeclarationError)
    assert error.where == where


def test_nesting_by_aliases_is_refused_too() -> None:
    """Brackets do not show it."""
    lines = ["#a0 = [1]", *(f"#a{i} = [#a{i - 1}]" for i in range(1, 1500))]
    text = "\n".join(lines) + "\n" + with_attribute("occupancy", "#a1499")
    error = refusal(text, whole_pipeline("cpu"))
    assert isinstance(error, DeclarationError)
    assert error.message == "an attribute nests too deep"


DECLARED: dict[str, Any] = {
    "occupancy": Occupancy(max_threads=Expression("waves_m * wave"), min_resident=Expression("2")),
    "wave_width": 64,
    "fast_math": True,
    "members": (
        Member(tile=Tile(m=64, n=32, k=16, thread_m=4, thread_n=2)),
        Member(tile=Tile(m=64, n=64, k=16, stages=3), body="software", backends=("cuda", "rocm")),
    ),
    "requires": Expression("m % 16 == 0 and wave == 32"),
    "holds": (
        Hold(cause="unlowered", tracked='a "quoted" plan \\ item\n', backends=("cpu",)),
        Hold(cause="spills", tracked="é", members=("64x64x16_s3",)),
    ),
}


def test_all_declarations_round_trip() -> None:
    """Written by the builder, read from the IR."""
    given_ = kernel(**DECLARED)
    with context() as ctx:
        module = parse_module(source_text([given_]), NAME, ctx)
        (function,) = functions(module.operation)
        assert declarations(function, where=NAME) == given_.declarations
    assert isinstance(given_.declarations, Declarations)
