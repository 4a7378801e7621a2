"""A driver's matrix configs: whoever asks for one gets the same answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dialects.facts import DeviceFacts, MatrixConfig
from dialects.grouping import MultiplyAdd
from dialects.operands import Contraction, Operand, OperandGroup
from dialects.rules import Case, judge
from lowering.instructions import matrices
from lowering.target import target_from_facts
from lowering.tiles.coop_matrix import listed
from records import KERNEL, NATIVE_GROUP, RECORD

SHAPE = (16, 16, 16)
FACTS = DeviceFacts(backend="vulkan", wave_widths=(32,), native_matrix_configs=())


def with_config(a: str, acc: str, scope: str) -> DeviceFacts:
    m, n, k = SHAPE
    config = MatrixConfig(m=m, n=n, k=k, a=a, b=a, acc=acc, scope=scope)
    return replace(FACTS, native_matrix_configs=(config,))


def answers(facts: DeviceFacts, a: str, acc: str) -> set[bool]:
    """What each of those who look configs up says of the types."""
    target = target_from_facts(facts)
    found = matrices(target).instruction
    contraction = Contraction(
        m="M",
        n="N",
        k="K",
        a=Operand(name="a", type=a, dims=("M", "K")),
        b=Operand(name="b", type=a, dims=("K", "N")),
        c=Operand(name="c", type=acc, dims=("M", "N")),
        accumulator=acc,
    )
    group: OperandGroup = replace(NATIVE_GROUP, a=a, b=a, acc=acc, shape=SHAPE)
    case = Case(kernel=KERNEL, record=replace(RECORD, groups=(group,)), facts=facts, problem=None)
    return {
        isinstance(found(MultiplyAdd(a=a, b=a, acc=acc, shape=None)), tuple),
        isinstance(found(MultiplyAdd(a=a, b=a, acc=acc, shape=SHAPE)), tuple),
        bool(listed(contraction, target)),
        judge(case).ok,
    }


@pytest.mark.parametrize(
    ("a", "acc", "scope", "there"),
    [
        ("f16", "f32", "subgroup", True),
        ("f16", "f32", "workgroup", False),
        ("f16", "f32", "device", False),
        ("f16", "f16", "subgroup", False),
        ("bf16", "f32", "subgroup", False),
    ],
)
def test_only_a_subgroup_s_config_of_the_types_counts(
    a: str, acc: str, scope: str, there: bool
) -> None:
    assert answers(with_config(a, acc, scope), "f16", "f32") == {there}


@pytest.mark.parametrize("named", ["i32", "u32"])
@pytest.mark.parametrize("asked", ["i32", "u32"])
def test_sums_of_integers_have_no_sign(named: str, asked: str) -> None:
    assert answers(with_config("u8", named, "subgroup"), "u8", asked) == {True}
    assert answers(with_config("u8", named, "workgroup"), "u8", asked) == {False}
