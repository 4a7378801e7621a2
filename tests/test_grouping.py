"""Operand groups: tiles that meet share one tier, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dialects.grouping import Matrices, MultiplyAdd, TileGroup, group_tiles, select_tiers

HALF = MultiplyAdd(a="f16", b="f16", acc="f32", shape=(16, 16, 16))
SMALL = replace(HALF, shape=(8, 8, 8))
BYTES = MultiplyAdd(a="i8", b="i8", acc="i32", shape=(16, 16, 32))
EVERY = (HALF, SMALL, BYTES, replace(HALF, acc="f16"), MultiplyAdd(a="f32", b="f32", acc="f32"))

links = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=20)
multiplies = st.lists(st.sampled_from(EVERY), min_size=1, max_size=4, unique=True).map(tuple)
uses = st.lists(st.sampled_from(("addf", "maxf")), max_size=2, unique=True).map(tuple)
groups = st.builds(TileGroup, multiplies=multiplies, uses=uses)
listed = st.frozensets(st.sampled_from(EVERY))


def having(found: frozenset[MultiplyAdd]) -> Matrices:
    """A target with these products and the elementwise addf."""

    def instruction(m: MultiplyAdd) -> tuple[str, tuple[int, ...]] | str:
        return (f"op of {m.text}", m.shape or (1, 1, 1)) if m in found else f"no {m.text}"

    def obstacle(use: str) -> str | None:
        return None if use == "addf" else f"{use} is not native"

    return Matrices(instruction=instruction, obstacle=obstacle)


def reachable(tile: int, links: Sequence[Sequence[int]]) -> set[int]:
    """The tiles of one group, by walking from one to the next."""
    seen, edge = {tile}, [tile]
    while edge:
        here = edge.pop()
        for link in links:
            if here in link:
                edge += [t for t in link if t not in seen]
                seen.update(link)
    return seen


@given(links)
def test_tiles_that_meet_are_one_group(links: list[list[int]]) -> None:
    """The groups are the connected components, and each is called by its least tile."""
    found = group_tiles(links)
    assert set(found) == {t for link in links for t in link}
    for tile, group in found.items():
        members = reachable(tile, links)
        assert group == min(members)
        assert {t for t, g in found.items() if g == group} == members


@given(links, links)
def test_the_order_of_the_links_does_not_matter(a: list[list[int]], b: list[list[int]]) -> None:
    assert group_tiles([*a, *b]) == group_tiles([*b[::-1], *a[::-1]])


@given(st.lists(groups, max_size=4), listed)
def test_a_group_is_native_whole_or_not_at_all(
    several: list[TileGroup], found: frozenset[MultiplyAdd]
) -> None:
    """Native exactly when all of its products are listed and all its uses have a native form."""
    for group, rows in zip(several, select_tiers(several, having(found)), strict=True):
        native = set(group.multiplies) <= found and "maxf" not in group.uses
        assert [r.tier for r in rows] == ["native" if native else "software"] * len(rows)
        assert [(r.a, r.b, r.acc) for r in rows] == [(m.a, m.b, m.acc) for m in group.multiplies]
        assert all((r.instruction is not None) == native and r.reason for r in rows)


@given(st.lists(groups, min_size=2, max_size=4), groups, listed)
def test_a_group_changes_no_other(
    several: list[TileGroup], other: TileGroup, found: frozenset[MultiplyAdd]
) -> None:
    before = select_tiers(several, having(found))
    after = select_tiers([other, *several[1:]], having(found))
    assert after[1:] == before[1:]


def test_a_straddling_group_says_what_demoted_it() -> None:
    group = TileGroup(multiplies=(HALF, SMALL))
    (rows,) = select_tiers([group], having(frozenset({HALF})))
    assert [(r.tier, r.shape, r.instruction) for r in rows] == [
        ("software", (16, 16, 16), None),
        ("software", (8, 8, 8), None),
    ]
    assert {r.reason for r in rows} == {
        "demoted whole, though f16*f16->f32 16x16x16 is listed: no f16*f16->f32 8x8x8"
    }


def test_a_use_without_a_native_form_demotes() -> None:
    group = TileGroup(multiplies=(HALF,), uses=("addf", "maxf"))
    (rows,) = select_tiers([group], having(frozenset({HALF})))
    assert [r.tier for r in rows] == ["software"]
    assert rows[0].reason.endswith("is listed: maxf is not native")


def test_what_is_not_listed_at_all_is_not_called_demoted() -> None:
    (rows,) = select_tiers([TileGroup(multiplies=(BYTES,))], having(frozenset()))
    assert [r.reason for r in rows] == ["no i8*i8->i32 16x16x32"]
