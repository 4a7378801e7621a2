"""The manifest: the same bytes every time, and no other bytes are believed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from dialects.errors import FormatError
from dialects.manifest import (
    Argument,
    Footprint,
    Manifest,
    Mode,
    Needs,
    Prepared,
    SplitK,
    Step,
    manifest_text,
)
from dialects.manifest import manifest_from_text as read
from dialects.member import Tile
from dialects.operands import EpilogueStep
from records import KERNEL, MANIFEST, RECORD

TEXT = manifest_text(MANIFEST)
BYTES = TEXT.encode()


def with_kernel(**changes: Any) -> str:
    """The text of a pack of one changed kernel, with a digest that fits."""
    return manifest_text(Manifest(kernels=(replace(KERNEL, **changes),)))


LATER = Step(
    entry="reduce",
    grid=("M * Q", "1", "1"),
    block=(256, 1, 1),
    dynamic_shared_bytes=0,
    bindings=(),
    constants=("splits",),
)
assert RECORD.launch is not None
SPLIT = SplitK(k_block=256, workspace="4 * M * splits", launch=RECORD.launch)


def with_record(**changes: Any) -> str:
    """The text of a pack whose one record is changed, with a digest that fits."""
    return with_kernel(members=(replace(RECORD, **changes),))


def signed(text: str) -> str:
    """The text with the digest that fits it."""
    digest = read_digest(text)
    blank = text.replace(f'"digest": "{digest}"', '"digest": ""')
    return blank.replace('"digest": ""', f'"digest": "{sha256(blank.encode()).hexdigest()}"')


def read_digest(text: str) -> str:
    return text.split('"digest": "', 1)[1].split('"', 1)[0]


def refusal(text: str | bytes) -> str:
    """The message with which a text is refused."""
    with pytest.raises(FormatError) as caught:
        read(text, where="pack/manifest.json")
    assert caught.value.where == "pack/manifest.json"
    return caught.value.message


def test_a_manifest_survives_a_round_trip() -> None:
    found = read(TEXT, where="m")
    assert replace(found, digest="") == MANIFEST
    assert read(BYTES, where="m") == found
    assert len(found.digest) == 64


def test_the_bytes_are_deterministic() -> None:
    assert manifest_text(MANIFEST) == TEXT
    assert manifest_text(read(TEXT, where="m")) == TEXT
    assert manifest_text(replace(MANIFEST, digest="whatever was there")) == TEXT
    head = TEXT.splitlines()[:3]
    assert head[:2] == ["{", ' "schema_version": 1,']
    assert head[2] == ' "requires_runtime": "iree 3.13",'
    assert TEXT.endswith("\n}\n")


def test_a_whole_number_that_stands_for_a_float_may_be_written() -> None:
    zero = (EpilogueStep(op="max", constant=0),)
    text = with_kernel(contraction=replace(KERNEL.contraction, epilogue=zero))
    assert read(text, where="m").kernels[0].contraction.epilogue == zero


def test_what_nobody_measured_is_null_and_not_left_out() -> None:
    text = with_record(footprint=Footprint(threads_per_group=256))
    assert '"registers": null' in text
    assert '"spill_bytes": null' in text
    found = read(text, where="m").kernels[0].members[0].footprint
    assert (found.threads_per_group, found.registers, found.shared_bytes) == (256, None, None)


def test_the_digest_is_the_sha256_of_the_text_without_it() -> None:
    digest = read_digest(TEXT)
    assert sha256(TEXT.replace(digest, "", 1).encode()).hexdigest() == digest
    assert signed(TEXT) == TEXT


@pytest.mark.parametrize("digest", ["", "null", "0" * 64, read_digest(TEXT).upper()])
def test_another_digest_is_not_believed(digest: str) -> None:
    text = TEXT.replace(read_digest(TEXT), digest, 1)
    assert refusal(text) == "the manifest's digest does not match its content"


def test_a_change_anywhere_changes_the_digest() -> None:
    digests = [read(TEXT, where="m").digest, read(with_kernel(), where="m").digest]
    digests += [read(with_kernel(family="other"), where="m").digest]
    digests += [read(with_record(workspace="M"), where="m").digest]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("mask", [0x01, 0x20])
def test_no_flipped_byte_is_believed(mask: int) -> None:
    for place in range(len(BYTES)):
        flipped = bytearray(BYTES)
        flipped[place] ^= mask
        with pytest.raises(FormatError):
            read(bytes(flipped), where=f"byte {place}")


def test_no_other_blank_is_believed() -> None:
    places = [i for i, byte in enumerate(BYTES) if byte in b" \n"]
    assert len(places) > 100
    for place in places:
        other = b"\t\r \n"[place % 4]
        blank = other if other != BYTES[place] else ord("\t")
        with pytest.raises(FormatError):
            read(BYTES[:place] + bytes([blank]) + BYTES[place + 1 :], where=f"byte {place}")


def test_no_truncation_is_believed() -> None:
    for length in range(len(BYTES)):
        with pytest.raises(FormatError):
            read(BYTES[:length], where=f"{length} bytes")


@pytest.mark.parametrize("extra", [" ", "\n", "}", "\0", "x"])
def test_nothing_may_follow(extra: str) -> None:
    refusal(TEXT + extra)


def test_a_repeated_key_is_not_believed() -> None:
    # One letter: what is missing has its default, what is doubled keeps its value.
    text = TEXT.replace('"waves_m": 0', '"waves_n": 0', 1)
    assert text != TEXT
    assert refusal(text) == "the manifest's digest does not match its content"


def test_another_spelling_of_the_same_values_is_not_believed() -> None:
    for text in (TEXT.replace('"matmul_f16"', r'"matmul_f\u00316"', 1), TEXT.replace("\n", "\r\n")):
        assert text != TEXT
        assert refusal(text) == "the manifest's digest does not match its content"
    assert refusal(TEXT.encode("utf-16")) == "the manifest's digest does not match its content"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            manifest_text(replace(MANIFEST, schema_version=2)),
            "pack of schema 2, this runtime reads 1",
        ),
        ("{}", "pack of schema null, this runtime reads 1"),
        ('{"schema_version": "1"}', 'pack of schema "1", this runtime reads 1'),
        (
            manifest_text(replace(MANIFEST, requires_runtime="iree 3.12")),
            "pack requires runtime \"iree 3.12\", this one is 'iree 3.13'",
        ),
        (
            '{"schema_version": 1}',
            "pack requires runtime null, this one is 'iree 3.13'",
        ),
        ("[]", "a manifest must be an object"),
        (
            '{"schema_version": 1, "requires_runtime": "iree 3.13"}',
            "the manifest's digest does not match its content",
        ),
        (
            signed('{"schema_version": 1, "requires_runtime": "iree 3.13", "digest": ""}'),
            "key 'kernels' is missing",
        ),
        (
            signed(TEXT.replace('"kernels"', '"kernel"', 1)),
            "unknown key 'kernel'",
        ),
        (
            signed(TEXT.replace('"mode": "read"', '"mode": "peek"', 1)),
            "'kernels[0].args[0].mode' must be one of ['read', 'write', 'readwrite'], "
            'found "peek"',
        ),
    ],
)
def test_another_schema_runtime_or_form_is_refused_by_name(text: str, message: str) -> None:
    assert refusal(text) == message


C_OF_Q = replace(KERNEL.contraction.c, dims=("M", "Q"))
NAME = "128x128x32_t8x8/software"
SIZES = "not one of ['M', 'N', 'K']"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (with_kernel(workspace="4 * P"), f"workspace '4 * P' names ['P'], {SIZES}"),
        (
            with_kernel(workspace="4 * P", members=()),
            f"workspace '4 * P' names ['P'], {SIZES}",
        ),
        (with_record(workspace="m * M"), f"member {NAME}: 'm * M' names ['m'], {SIZES}"),
        (
            with_record(prepared=Prepared(operand="b", bytes="Q + R")),
            f"member {NAME}: 'Q + R' names ['Q', 'R'], {SIZES}",
        ),
        (
            with_record(launch=replace(RECORD.launch, grid=("1", "ceildiv(m, 2)", "1"))),  # type: ignore[type-var]
            f"member {NAME}: 'ceildiv(m, 2)' names ['m'], {SIZES}",
        ),
        (
            with_record(workspace="M / 2"),
            "expression 'M / 2': '/' is not supported, use '//' or ceildiv",
        ),
        (
            with_kernel(args=(Argument(name="a", type="f16", dims=("M", "P"), mode="read"),)),
            f"operand a names ['P'], {SIZES}",
        ),
        (
            with_kernel(args=(Argument(name="a", type="f12", dims=("M",), mode="read"),)),
            "element type 'f12' is not one of f64, f32, f16, bf16, f8e4m3, f8e5m2, i32, u32, i16, "
            "i8, u8",
        ),
        (with_kernel(args=()), "has no arguments"),
        (
            with_kernel(contraction=replace(KERNEL.contraction, k="L")),
            f"contraction names ['L'], {SIZES}",
        ),
        (
            with_kernel(contraction=replace(KERNEL.contraction, c=C_OF_Q)),
            f"operand c names ['Q'], {SIZES}",
        ),
        (
            with_record(needs=Needs(alignment={"a.0": 0})),
            f"member {NAME}: alignment of a.0 is 0",
        ),
        (
            with_record(needs=Needs(waves=(2, 0))),
            f"member {NAME}: needs waves or rows of 0 lanes",
        ),
        (
            with_record(split=replace(SPLIT, k_block=0)),
            f"member {NAME}: splits K in blocks of 0, at most 16",
        ),
        (
            with_record(split=replace(SPLIT, max_splits=1 << 30)),
            f"member {NAME}: splits K in blocks of 256, at most 1073741824",
        ),
        (
            with_record(split=replace(SPLIT, workspace="P * splits")),
            f"member {NAME}: 'P * splits' names ['P'], {SIZES}",
        ),
        (
            with_record(workspace="4 * splits"),
            f"member {NAME}: '4 * splits' names ['splits'], {SIZES}",
        ),
        (
            with_record(split=replace(SPLIT, launch=replace(SPLIT.launch, then=(LATER,)))),
            f"member {NAME}: 'M * Q' names ['Q'], {SIZES}",
        ),
        (
            with_record(tile=Tile(m=0, n=1, k=1)),
            "member 0x1x1: m = 0 is not within 1 and 65536",
        ),
    ],
)
def test_content_that_no_rule_could_use_is_refused(text: str, message: str) -> None:
    assert refusal(text) == f"kernel 'matmul_f16': {message}"


@pytest.mark.parametrize(("mode", "names"), [("write", ["a", "b"]), ("readwrite", ["a", "b", "c"])])
def test_a_caller_fills_a_result_only_where_it_is_added_to(mode: Mode, names: list[str]) -> None:
    *inputs, result = KERNEL.args
    entry = replace(KERNEL, args=(*inputs, replace(result, mode=mode)))
    assert [a.name for a in entry.read_arguments] == names
