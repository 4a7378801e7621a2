"""JSON of frozen dataclasses: what goes out comes back, and whatever else is refused by path."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.codec import decode, dumps, encode, loads
from dialects.errors import FormatError


@dataclass(frozen=True, kw_only=True)
class Leaf:
    size: int
    mode: Literal["read", "write"] = "read"


@dataclass(frozen=True, kw_only=True)
class Tree:
    zeta: str
    alpha: bool
    share: float = 0.5
    leaf: Leaf
    leaves: tuple[Leaf, ...] = ()
    pair: tuple[int, int] = (1, 2)
    table: dict[str, Leaf] | None = None
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Gap:
    size: int | None
    note: str | None = None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = st.builds(Leaf, size=st.integers(), mode=st.sampled_from(["read", "write"]))
TREES = st.builds(
    Tree,
    zeta=TEXTS,
    alpha=st.booleans(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    leaf=LEAVES,
    leaves=st.lists(LEAVES, max_size=3).map(tuple),
    pair=st.tuples(st.integers(), st.integers()),
    table=st.none() | st.dictionaries(TEXTS, LEAVES, max_size=3),
    note=st.none() | TEXTS,
)
PLAIN: dict[str, Any] = {"zeta": "z", "alpha": True, "leaf": {"size": 1}}


@given(TREES)
def test_a_value_survives_a_round_trip_through_text(tree: Tree) -> None:
    text = dumps(tree)
    assert decode(Tree, loads(text, where="t"), where="t") == tree
    assert decode(Tree, loads(text.encode(), where="t"), where="t") == tree


def test_text_has_the_fields_in_their_order_and_ends_in_a_newline() -> None:
    tree = Tree(zeta="ü", alpha=False, leaf=Leaf(size=1), pair=(3, 4), table={"b": Leaf(size=2)})
    assert list(encode(tree)) == [
        "zeta", "alpha", "share", "leaf", "leaves", "pair", "table", "note",
    ]  # fmt: skip
    assert dumps(tree) == dumps(tree)
    assert dumps(Leaf(size=1)) == '{\n "size": 1,\n "mode": "read"\n}\n'
    assert '"ü"' in dumps(tree)
    assert encode(tree)["table"] == {"b": {"size": 2, "mode": "read"}}


def test_what_is_left_out_has_its_default() -> None:
    assert decode(Tree, PLAIN, where="t") == Tree(zeta="z", alpha=True, leaf=Leaf(size=1))


def test_a_whole_number_may_stand_for_a_float() -> None:
    share = decode(Tree, {**PLAIN, "share": 2}, where="t").share
    assert (share, type(share)) == (2.0, float)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"zeta": 1}, "'zeta' must be a string, found 1"),
        ({"zeta": None}, "'zeta' must be a string, found null"),
        ({"alpha": 1}, "'alpha' must be true or false, found 1"),
        ({"share": True}, "'share' must be a number, found true"),
        ({"share": "1"}, "'share' must be a number, found \"1\""),
        ({"share": 10**400}, f"'share' must be a number, found 1{'0' * 59}"),
        ({"leaf": []}, "'leaf' must be an object, found []"),
        ({"leaf": {}}, "key 'leaf.size' is missing"),
        ({"leaf": {"size": True}}, "'leaf.size' must be an integer, found true"),
        ({"leaf": {"size": 1.0}}, "'leaf.size' must be an integer, found 1.0"),
        ({"leaf": {"size": 1, "mode": "w"}}, "'leaf.mode' must be one of ['read', 'write'], found"),
        ({"leaf": {"size": 1, "mode": ["read"]}}, "'leaf.mode' must be one of ['read', 'write'], "),
        ({"leaves": {}}, "'leaves' must be a list, found {}"),
        ({"leaves": [{"size": 1}, 7]}, "'leaves[1]' must be an object, found 7"),
        ({"leaves": [{"size": 1, "bytes": 2}]}, "unknown key 'leaves[0].bytes'"),
        ({"pair": [1]}, "'pair' must be a list of 2, found [1]"),
        ({"pair": [1, "2"]}, "'pair[1]' must be an integer, found \"2\""),
        ({"table": []}, "'table' must be an object, found []"),
        ({"table": {"x": {}}}, "key 'table.x.size' is missing"),
        ({"other": 1}, "unknown key 'other'"),
    ],
)
def test_a_value_of_another_form_is_refused_with_its_path(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(FormatError) as caught:
        decode(Tree, {**PLAIN, **change}, where="file.json")
    assert caught.value.where == "file.json"
    assert caught.value.message.startswith(message)


def test_what_may_be_null_may_be_left_out() -> None:
    assert decode(Gap, {}, where="t") == Gap(size=None)
    assert encode(Gap(size=None)) == {"size": None, "note": None}


@pytest.mark.parametrize("missing", sorted(PLAIN))
def test_a_key_without_a_default_must_be_there(missing: str) -> None:
    value = {k: v for k, v in PLAIN.items() if k != missing}
    with pytest.raises(FormatError, match=f"key '{missing}' is missing"):
        decode(Tree, value, where="t")


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_the_outermost_value_must_be_an_object(value: object) -> None:
    with pytest.raises(FormatError, match="'' must be an object"):
        decode(Tree, value, where="t")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": 1} 2',
        "[" * 100_000,
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        r'{"a": "\ud800"}',
        r'{"\udfff": 1}',
        b'{"a": "\xff"}',
    ],
)
def test_text_that_is_no_json_of_ours_is_refused_by_its_file(text: str | bytes) -> None:
    with pytest.raises(FormatError) as caught:
        loads(text, where="file.json")
    assert str(caught.value).startswith("file.json: not valid JSON: ")


def test_dumps_writes_no_number_that_json_lacks() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps({"a": float("nan")})
    assert json.loads(dumps({1: (True, None)})) == {"1": [True, None]}
