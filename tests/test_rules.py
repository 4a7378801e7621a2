"""The rules that prune: each fires with its exact need and limit, and stays quiet otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dialects.facts import DeviceFacts, MatrixConfig
from dialects.manifest import Footprint, KernelEntry, Needs, Record, Refusal
from dialects.member import Problem
from dialects.operands import OperandGroup
from dialects.rules import INDEX_LIMIT, Case, judge
from facts_files import PATHS, fixture_facts
from records import KERNEL, NATIVE_GROUP, RECORD, SOFTWARE_GROUP, record

RTX_4090 = fixture_facts("cuda-rtx4090")
H200 = fixture_facts("cuda-h200")
VULKAN_H200 = fixture_facts("vulkan-h200")
VULKAN_8 = fixture_facts("vulkan-lavapipe-26.2")  # waves of 8, matrices of 8x8x8
UNKNOWN = DeviceFacts(backend="cuda")


def problem(*sizes: int) -> Problem:
    return Problem(dims=("B", "M", "N", "K")[-len(sizes) :], sizes=sizes)


def refusal(
    candidate: Record,
    facts: DeviceFacts,
    *,
    sizes: tuple[int, ...] | None = None,
    strides: Mapping[str, int] | None = None,
    kernel: KernelEntry = KERNEL,
) -> Refusal | None:
    """Why the candidate is pruned, or None."""
    asked = problem(*sizes) if sizes else None
    case = Case(kernel=kernel, record=candidate, facts=facts, problem=asked, strides=strides)
    verdict = judge(case)
    assert verdict.record is candidate
    assert verdict.ok == (verdict.refusal is None)
    return verdict.refusal


def refused(rule: str, need: int | None, limit: int | None, message: str) -> Refusal:
    return Refusal(rule=rule, need=need, limit=limit, message=f"{message} ({rule})")


# --- R1 to R4


@pytest.mark.parametrize(
    ("footprint", "expected"),
    [
        # The pinned vectors of the original system, on its own readings.
        ({"registers": 255, "threads_per_group": 256, "static_shared_bytes": 34816}, None),
        (
            {"registers": 128, "threads_per_group": 512, "spill_bytes": 52},
            refused("R1", 52, None, "spills 52 B"),
        ),
        (
            {"registers": 255, "threads_per_group": 512},
            refused(
                "R2",
                130560,
                65536,
                "registers 512 threads x 255 = 130560 > 65536 in the register file",
            ),
        ),
        (
            {"static_shared_bytes": 110000},
            refused("R3", 110000, 101376, "shared 110000 B > 101376 B per block"),
        ),
        ({"static_shared_bytes": 101376}, None),
        # Equality, sums, and what is not there.
        ({"registers": 128, "threads_per_group": 512, "spill_bytes": 0}, None),
        ({"registers": 255, "threads_per_group": None}, None),
        ({"registers": None, "threads_per_group": 512}, None),
        ({"static_shared_bytes": 1024, "dynamic_shared_bytes": 100352}, None),
        (
            {"static_shared_bytes": 1025, "dynamic_shared_bytes": 100352},
            refused("R3", 101377, 101376, "shared 101377 B > 101376 B per block"),
        ),
        (
            {"threads_per_group": 1025},
            refused(
                "R4", 1025, 1024, "no workgroup is resident: threads per block 1025 > 1024"
            ),
        ),
        ({"threads_per_group": 1024}, None),
        # The first rule wins.
        (
            {"registers": 255, "threads_per_group": 512, "spill_bytes": 4,
             "static_shared_bytes": 110000},
            refused("R1", 4, None, "spills 4 B"),
        ),
    ],
)  # fmt: skip
def test_r1_to_r4_on_known_limits(footprint: dict[str, Any], expected: Refusal | None) -> None:
    assert refusal(record(**footprint), RTX_4090) == expected


def test_a_limit_without_opt_in_is_the_per_block_one() -> None:
    facts = replace(RTX_4090, shared_bytes_per_block_optin=None)
    assert refusal(record(static_shared_bytes=49152), facts) is None
    assert refusal(record(static_shared_bytes=49153), facts) == refused(
        "R3", 49153, 49152, "shared 49153 B > 49152 B per block"
    )


def test_r4_counts_the_shared_bytes_that_the_driver_reserves() -> None:
    candidate = record(threads_per_group=128, dynamic_shared_bytes=232448)
    assert refusal(candidate, H200) is None
    assert refusal(candidate, replace(H200, shared_bytes_reserved_per_block=2048)) == refused(
        "R4", 234496, 233472, "no workgroup is resident: shared 234496 > 233472"
    )


FULL = Footprint(
    registers=255,
    threads_per_group=1024,
    static_shared_bytes=1 << 20,
    wave_width=64,
)


def test_unknown_facts_prune_nothing() -> None:
    candidate = replace(
        RECORD,
        footprint=FULL,
        groups=(NATIVE_GROUP,),
        needs=Needs(features=("fp16", "b16", "anything"), wave_width=64, alignment={"a.0": 8}),
    )
    for backend in ("cpu", "cuda", "rocm", "vulkan"):
        facts = DeviceFacts(backend=backend)
        assert refusal(candidate, facts, sizes=(1 << 15, 1 << 15, 1 << 15)) is None


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_a_record_that_reports_nothing_is_pruned_nowhere(path: Any) -> None:
    assert refusal(RECORD, fixture_facts(path.stem), sizes=(100, 100, 100), strides={}) is None


def test_a_member_that_preflight_refused_stays_refused() -> None:
    found = Refusal(rule="R3", need=2, limit=1, message="shared 2 B > 1 B per block (R3)")
    assert refusal(replace(RECORD, refused=found), UNKNOWN) is found


# --- native


def test_native_fires_on_a_config_that_the_driver_does_not_list() -> None:
    candidate = replace(RECORD, groups=(SOFTWARE_GROUP, NATIVE_GROUP))
    assert refusal(candidate, VULKAN_8) == refused(
        "native", None, None, "matrix config 16x8x16 f16*f16->f32 is not listed by the driver"
    )
    nothing_listed = replace(UNKNOWN, native_matrix_configs=())
    assert refusal(candidate, nothing_listed) == refusal(candidate, VULKAN_8)


@pytest.mark.parametrize(
    ("change", "listed"),
    [
        ({}, True),
        ({"shape": (16, 16, 16)}, True),
        ({"shape": (8, 16, 16)}, False),
        ({"a": "bf16"}, False),
        ({"acc": "f16"}, True),
        ({"acc": "f64"}, False),
        ({"tier": "software", "shape": (3, 3, 3)}, True),
        ({"shape": None}, True),
    ],
)
def test_native_compares_types_and_shape(change: dict[str, Any], listed: bool) -> None:
    group: OperandGroup = replace(NATIVE_GROUP, **change)
    found = refusal(replace(RECORD, groups=(group,)), VULKAN_H200)
    assert (found is None) == listed


def test_native_takes_sums_that_wrap_for_one_and_wants_a_subgroup() -> None:
    group = replace(NATIVE_GROUP, a="u8", b="u8", acc="i32", shape=(16, 16, 32))
    row = MatrixConfig(m=16, n=16, k=32, a="u8", b="u8", acc="u32")
    candidate = replace(RECORD, groups=(group,))
    assert refusal(candidate, replace(UNKNOWN, native_matrix_configs=(row,))) is None
    other = replace(row, scope="workgroup")
    assert refusal(candidate, replace(UNKNOWN, native_matrix_configs=(other,))) is not None
    signed = replace(row, a="i8")
    assert refusal(candidate, replace(UNKNOWN, native_matrix_configs=(signed,))) is not None


# --- wave, feature, alignment


@pytest.mark.parametrize(
    ("needs", "threads", "facts", "expected"),
    [
        (32, 256, VULKAN_8, refused("wave", 32, 8, "wave width 32 not in [8]")),
        (64, 256, fixture_facts("rocm-gfx1151"), None),
        (16, 256, fixture_facts("rocm-gfx1151"),
         refused("wave", 16, 64, "wave width 16 not in [32, 64]")),
        (32, 100, H200, refused("wave", 100, 32, "waves of 32 do not cover 100 threads exactly")),
        (32, 96, H200, None),
        (32, None, H200, None),
        (None, 100, H200, None),
    ],
)  # fmt: skip
def test_wave(
    needs: int | None, threads: int | None, facts: DeviceFacts, expected: Refusal | None
) -> None:
    candidate = replace(record(threads_per_group=threads), needs=Needs(wave_width=needs))
    assert refusal(candidate, facts) == expected


@pytest.mark.parametrize(
    ("needs", "features", "storage", "expected"),
    [
        (("fp16", "b16"), ("fp16",), ("b16",), None),
        (("fp16", "b16"), ("fp16",), (), "needs b16"),
        (("fp16", "b16"), (), ("b16",), "needs fp16"),
        (("fp16", "bf16", "b8"), ("fp16",), ("b16",), "needs bf16, b8"),
        (("b16",), ("fp16",), None, None),
        (("fp16",), None, ("b16",), None),
        (("fp16", "b16"), None, (), "needs b16"),
        ((), (), (), None),
    ],
)
def test_feature(
    needs: tuple[str, ...],
    features: tuple[str, ...] | None,
    storage: tuple[str, ...] | None,
    expected: str | None,
) -> None:
    facts = replace(UNKNOWN, features=features, storage_features=storage)
    found = refusal(replace(RECORD, needs=Needs(features=needs)), facts)
    assert found == (refused("feature", None, None, expected) if expected else None)


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        ({"a.0": 12, "b.0": 16}, refused("alignment", 8, 12, "a.0 = 12 is no multiple of 8")),
        ({"a.0": 16, "b.0": 3}, None),
        ({"b.0": 3}, None),
        ({"a.0": 0}, None),
        (None, None),
    ],
)
def test_alignment(strides: dict[str, int] | None, expected: Refusal | None) -> None:
    candidate = replace(RECORD, needs=Needs(alignment={"a.0": 8}))
    assert refusal(candidate, UNKNOWN, sizes=(8, 8, 8), strides=strides) == expected


@pytest.mark.parametrize(
    ("sizes", "strides", "expected"),
    [
        ((8, 8, 8), None, None),
        ((8, 8, 8), {"a.0": 8, "b.0": 8, "c.0": 8}, None),
        (None, None, None),
        ((8, 8, 8), {"a.0": 9}, refused("layout", 8, 9, "a.0 = 9 is not the dense 8")),
        ((8, 8, 8), {"a": 4}, refused("layout", 16, 4, "a starts 4 B past a boundary of 16 B")),
        ((8, 8, 0), None, refused("layout", 1, 0, "size K is 0")),
    ],
)
def test_what_the_compilers_own_kernels_take(
    sizes: tuple[int, ...] | None, strides: dict[str, int] | None, expected: Refusal | None
) -> None:
    candidate = replace(RECORD, needs=Needs(contiguous=True))
    assert refusal(candidate, UNKNOWN, sizes=sizes, strides=strides) == expected
    assert refusal(RECORD, UNKNOWN, sizes=sizes, strides=strides) is None


@pytest.mark.parametrize(
    ("needs", "strides", "expected"),
    [
        # Where a need names the argument, in bytes.
        ({"a": 16}, {"a": 8}, refused("alignment", 16, 8, "a starts 8 B past a boundary of 16 B")),
        ({"a": 8}, {"a": 8}, None),
        ({"b": 16}, {"a": 8}, None),
        # Where it does not, as its strides are copied: eight halves are 16 B, and so are more.
        ({"a.0": 8}, {"a": 8}, refused("alignment", 16, 8, "a starts 8 B past a boundary of 16 B")),
        (
            {"a.0": 64},
            {"a": 8},
            refused("alignment", 16, 8, "a starts 8 B past a boundary of 16 B"),
        ),
        ({"a.0": 4}, {"a": 8}, None),
        ({"a.0": 8}, {"c": 4}, None),
        ({"a.0": 8}, {}, None),
    ],
)
def test_where_an_argument_starts(
    needs: dict[str, int], strides: dict[str, int], expected: Refusal | None
) -> None:
    """A window of a buffer starts anywhere; ``strides`` says so under the argument's own name."""
    candidate = replace(RECORD, needs=Needs(alignment=needs))
    given = {"a.0": 64, "b.0": 64, "c.0": 64, **strides}
    assert refusal(candidate, UNKNOWN, sizes=(64, 64, 64), strides=given) == expected


QUANTISED = replace(
    KERNEL,
    args=(
        KERNEL.args[0],
        replace(KERNEL.args[1], type="u8", dims=("N", "K"), source="q8_0"),
        KERNEL.args[2],
    ),
    contraction=replace(
        KERNEL.contraction,
        b=replace(KERNEL.contraction.b, dims=("N", "K"), source="q8_0"),
    ),
)


def test_blocks_are_whole() -> None:
    """Whatever the body's own needs are; the larger multiple counts."""
    assert refusal(RECORD, UNKNOWN, sizes=(8, 8, 64), kernel=QUANTISED) is None
    assert refusal(RECORD, UNKNOWN, sizes=(8, 8, 33), kernel=QUANTISED) == refused(
        "alignment", 32, 33, "K = 33 is no multiple of 32"
    )
    candidate = replace(RECORD, needs=Needs(alignment={"K": 64, "b.0": 2}))
    assert refusal(candidate, UNKNOWN, sizes=(8, 8, 32), kernel=QUANTISED) == refused(
        "alignment", 64, 32, "K = 32 is no multiple of 64"
    )
    strides = {"b.0": 35}
    assert refusal(
        candidate, UNKNOWN, sizes=(8, 8, 64), strides=strides, kernel=QUANTISED
    ) == refused("alignment", 2, 35, "b.0 = 35 is no multiple of 2")


def test_blocks_count_in_bytes() -> None:
    facts = replace(UNKNOWN, max_binding_bytes=34 * 64)
    assert refusal(RECORD, facts, sizes=(1, 64, 32), kernel=QUANTISED) is None
    assert refusal(RECORD, facts, sizes=(1, 65, 32), kernel=QUANTISED) == refused(
        "memory", 2210, 2176, "b 2210 B > 2176 B per binding"
    )
    rows = INDEX_LIMIT // 34
    assert refusal(RECORD, UNKNOWN, sizes=(1, rows, 32), kernel=QUANTISED) is None
    found = refusal(RECORD, UNKNOWN, sizes=(1, rows + 1, 32), kernel=QUANTISED)
    assert found is not None
    assert (found.rule, found.need) == ("index", 34 * (rows + 1))


# --- grid, index, memory


def test_a_block_longer_than_the_device_has_them() -> None:
    facts = replace(UNKNOWN, max_workgroup_sizes=(255, 1024, 64))
    assert refusal(RECORD, facts) == refused("grid", 256, 255, "block x 256 > 255 lanes")
    assert refusal(RECORD, replace(facts, max_workgroup_sizes=(256, 1, 1))) is None


def test_what_lies_between_the_rows_counts() -> None:
    """Of strided operands the span is indexed and bound, not the elements alone."""
    wide = {"a.0": 1 << 20, "b.0": 64, "c.0": 64}
    sizes = (4096, 64, 64)
    assert refusal(RECORD, UNKNOWN, sizes=sizes) is None
    found = refusal(RECORD, UNKNOWN, sizes=sizes, strides=wide)
    span = 4095 * (1 << 20) + 64
    assert found == refused("index", span, INDEX_LIMIT, f"a has {span} elements > {INDEX_LIMIT}")
    facts = replace(UNKNOWN, max_binding_bytes=1 << 24)
    found = refusal(RECORD, facts, sizes=(16, 64, 64), strides=wide)
    span = 2 * (15 * (1 << 20) + 64)
    assert found == refused("memory", span, 1 << 24, f"a {span} B > {1 << 24} B per binding")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((128, 128 * 65535, 1), None),
        ((1, 128 * 65535 + 1, 1), refused("grid", 65536, 65535, "grid x 65536 > 65535 workgroups")),
        ((128 * 65535 + 1, 1, 1), refused("grid", 65536, 65535, "grid y 65536 > 65535 workgroups")),
        (None, None),
    ],
)
def test_grid(sizes: tuple[int, ...] | None, expected: Refusal | None) -> None:
    facts = replace(UNKNOWN, max_workgroup_counts=(65535, 65535, 65535))
    assert refusal(RECORD, facts, sizes=sizes) == expected
    assert refusal(replace(RECORD, launch=None), facts, sizes=sizes) is None


def test_index() -> None:
    rows = INDEX_LIMIT // (1 << 15)
    assert refusal(RECORD, UNKNOWN, sizes=(rows, 1, 1 << 15)) is None
    assert refusal(RECORD, UNKNOWN, sizes=(rows + 1, 1, 1 << 15)) == refused(
        "index", INDEX_LIMIT + (1 << 15), INDEX_LIMIT, "a has 2147516416 elements > 2147483648"
    )
    assert refusal(RECORD, UNKNOWN, sizes=(rows, rows + 1, 1)) == refused(
        "index", 4295032832, INDEX_LIMIT, "c has 4295032832 elements > 2147483648"
    )


def test_memory_of_one_binding() -> None:
    facts = replace(UNKNOWN, max_binding_bytes=4096)
    assert refusal(RECORD, facts, sizes=(32, 32, 64)) is None
    assert refusal(RECORD, facts, sizes=(32, 33, 64)) == refused(
        "memory", 4224, 4096, "b 4224 B > 4096 B per binding"
    )
    candidate = replace(RECORD, workspace="4 * M * N * 2")
    assert refusal(candidate, facts, sizes=(32, 32, 8)) == refused(
        "memory", 8192, 4096, "workspace 8192 B > 4096 B per binding"
    )


def test_memory_of_the_device() -> None:
    operands = 2 * 32 * 64 + 2 * 64 * 16 + 4 * 32 * 16
    assert operands == 8192
    facts = replace(UNKNOWN, memory_bytes=operands)
    assert refusal(RECORD, facts, sizes=(32, 16, 64)) is None
    assert refusal(replace(RECORD, workspace="M // 32"), facts, sizes=(32, 16, 64)) == refused(
        "memory", 8193, 8192, "operands 8193 B > 8192 B of the device"
    )
