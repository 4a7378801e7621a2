"""Values and places for the tests of the store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import strategies as st

from dialects.facts import DeviceFacts
from dialects.member import Problem
from runtime.files import SYSTEM
from runtime.store import Location, Store, StoredChoice, choice_key, location

FACTS = DeviceFacts(
    backend="cuda",
    uuid="GPU-1",
    driver="580.1",
    wave_widths=(32,),
    registers_per_multiprocessor=65536,
    shared_bytes_per_block=49152,
    shared_bytes_per_multiprocessor=233472,
    threads_per_multiprocessor=2048,
    multiprocessors=132,
)
KEY = choice_key(
    "0123abcd",
    "matmul_f16",
    Problem(dims=("M", "N", "K"), sizes=(500, 4096, 4096)),
    "nn-a4-acc0",
)
PLACE = location(FACTS, KEY)
NO_SYNC = dataclasses.replace(SYSTEM, fsync=lambda handle: None)  # for tests that write a lot


def made(member: str = "64x64x16", margin: int = 41) -> StoredChoice:
    """A choice that won by ``margin`` per mille."""
    return StoredChoice(
        kernel="matmul_f16",
        member=member,
        body="software",
        code_hash="ab" * 32,
        margin_permille=margin,
        tie=margin < 30,
        samples={f"{member}/software": (10.5, 10.25), "128x128x32/wgmma": (11.0, 1e-05)},
        taken=(f"{member}/software", "128x128x32/wgmma") * 2,
        clocks={"sm": 1980000},
        timer="host",
    )


def file_of(directory: Path, place: Location = PLACE) -> Path:
    """Where a choice lies."""
    return directory / place.path


def filled(directory: Path, count: int = 3) -> list[Location]:
    """Write choices of members m0, m1, ... of build b; their places."""
    places = [dataclasses.replace(PLACE, key=f"0123abcd.k{i}.1x2x3.nn") for i in range(count)]
    for i, place in enumerate(places):
        assert Store(directory, NO_SYNC).remember(place, "b", made(f"m{i}")) is None
    return places


texts = st.text(max_size=300)
places = st.builds(
    Location, device=texts, key=texts, identity=st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
)
_finite = st.floats(allow_nan=False, allow_infinity=False)
choices = st.builds(
    StoredChoice,
    kernel=texts,
    member=texts,
    body=texts,
    code_hash=texts,
    margin_permille=st.integers(),
    tie=st.booleans(),
    samples=st.dictionaries(texts, st.lists(_finite, max_size=5).map(tuple), max_size=4),
    taken=st.lists(texts, max_size=4).map(tuple),
    clocks=st.none() | st.dictionaries(texts, st.integers(), max_size=3),
    timer=texts,
)
