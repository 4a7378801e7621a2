"""What a choice is filed under: buckets, devices, builds, file names."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.errors import FormatError
from dialects.facts import DeviceFacts
from dialects.member import MAX_SIZE, Problem
from runtime.store import (
    Location,
    bucket_rows,
    build_id,
    choice_key,
    device_key,
    location,
)
from stored_choices import FACTS, KEY, PLACE, places

ROWS_AND_BUCKETS = {
    **{m: m for m in range(17)},
    **{17: 24, 24: 24, 25: 32, 33: 48, 49: 64, 512: 512, 513: 768, 769: 1024, 1025: 1536},
    MAX_SIZE: 1 << 31,
}


@pytest.mark.parametrize(("m", "bucket"), ROWS_AND_BUCKETS.items())
def test_rows_are_bucketed_up(m: int, bucket: int) -> None:
    assert bucket_rows(m) == bucket


@given(st.integers(0, MAX_SIZE), st.integers(0, MAX_SIZE))
def test_buckets_are_monotone_idempotent_and_close(a: int, b: int) -> None:
    low, high = sorted((a, b))
    assert bucket_rows(low) <= bucket_rows(high)
    assert bucket_rows(bucket_rows(a)) == bucket_rows(a)
    assert a <= bucket_rows(a) <= 1.5 * a


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((500, 4096, 4097), "512x4096x4097"),
        ((17, 500, 4096, 4096), "17x512x4096x4096"),
        ((500, 500), "500x500"),
        ((500,), "500"),
        ((17, 17, 17, 17, 17), "17x17x17x17x17"),
    ],
)
def test_only_the_rows_of_a_contraction_are_bucketed(sizes: tuple[int, ...], text: str) -> None:
    problem = Problem(dims=("s",) * len(sizes), sizes=sizes)
    assert choice_key("0123abcd", "k", problem, "nn") == f"0123abcd.k.{text}.nn"


def test_a_location_reads_as_the_design_says() -> None:
    device, name = PLACE.path.parts
    assert device == "cuda-m132-w32-r65536-l233472-t2048"
    assert name == f"0123abcd.matmul_f16.512x4096x4096.nn-a4-acc0.{PLACE.identity}"
    assert len(PLACE.identity) == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"uuid": "GPU-2"},
        {"driver": "580.2"},
        {"driver": None},
        {"uuid": None},
        {"uuid": None, "name": "card"},
    ],
)
def test_another_device_or_driver_has_its_own_file(changes: dict[str, Any]) -> None:
    other = dataclasses.replace(FACTS, **changes)
    assert device_key(other) == device_key(FACTS)
    assert location(other, KEY).path != PLACE.path


def test_the_name_stands_for_an_unknown_uuid() -> None:
    cards = [dataclasses.replace(FACTS, uuid=None, name=name) for name in (None, "one", "two")]
    assert len({location(card, KEY).identity for card in cards}) == 3
    named = dataclasses.replace(FACTS, name="one")
    assert location(named, KEY) == PLACE


@pytest.mark.parametrize(
    ("facts", "key"),
    [
        (DeviceFacts(backend="vulkan"), "vulkan-unknown"),
        (DeviceFacts(backend="vulkan", uuid="u", driver="d", name="n"), "vulkan-unknown"),
        (DeviceFacts(backend="vulkan", wave_widths=(8,), shared_bytes_per_block=32768)
         , "vulkan-w8-l32768"),
        (DeviceFacts(backend="rocm", multiprocessors=20, simds_per_multiprocessor=4,
                     wave_widths=(64, 32)), "rocm-m20x4-w32.64"),
        (DeviceFacts(backend="cpu", multiprocessors=2), "cpu-m2"),
        (DeviceFacts(backend="cuda", features=("fp16",)), "cuda-unknown"),
    ],
)  # fmt: skip
def test_device_keys(facts: DeviceFacts, key: str) -> None:
    assert device_key(facts) == key


def test_cpu_workers_and_flags_change_the_device_key() -> None:
    cpu = DeviceFacts(backend="cpu", multiprocessors=2, features=("avx2", "fma"))
    keys = [
        device_key(dataclasses.replace(cpu, **change))
        for change in ({}, {"features": ("avx2",)}, {"features": ()}, {"multiprocessors": 4})
    ]
    assert len(set(keys)) == 4
    assert len(keys[0].rsplit("-i", 1)[1]) == 8
    turned = dataclasses.replace(cpu, features=("fma", "avx2", "fma"))
    assert device_key(turned) == keys[0]


def test_a_build_is_uuid_driver_and_every_code_hash_in_order() -> None:
    builds = [
        build_id(FACTS, ["a", "b"]),
        build_id(FACTS, ["b", "a"]),
        build_id(FACTS, ["ab"]),
        build_id(FACTS, ["a"]),
        build_id(dataclasses.replace(FACTS, uuid="GPU-2"), ["a", "b"]),
        build_id(dataclasses.replace(FACTS, driver="581"), ["a", "b"]),
        build_id(dataclasses.replace(FACTS, uuid=None), ["a", "b"]),
    ]
    assert len(set(builds)) == len(builds)
    clocked = dataclasses.replace(FACTS, clock_khz=1, memory_clock_khz=2)
    assert build_id(clocked, ("a", "b")) == builds[0]


def test_an_identity_must_be_eight_hex_digits() -> None:
    with pytest.raises(FormatError, match=r"'\.\./\.\./etc' is not 8 hex digits"):
        Location(device="cpu-m2", key="k", identity="../../etc")


@given(places, places)
def test_two_locations_never_share_a_file(one: Location, two: Location) -> None:
    assert (one.path == two.path) == (one == two)
