"""Made-up manifest entries that several tests start from and change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dialects.manifest import (
    Access,
    Argument,
    Dispatch,
    Files,
    Footprint,
    GateRecord,
    Identity,
    KernelEntry,
    Launch,
    Manifest,
    Needs,
    Peer,
    Prepared,
    Record,
    Refusal,
)
from dialects.member import Tile
from dialects.operands import Contraction, EpilogueStep, Operand, OperandGroup

NATIVE_GROUP = OperandGroup(
    a="f16",
    b="f16",
    acc="f32",
    shape=(16, 8, 16),
    tier="native",
    instruction="mma",
    count=8,
    reason="listed by the target",
)
SOFTWARE_GROUP = OperandGroup(a="f16", b="f16", acc="f32", tier="software", reason="asked for")

RECORD = Record(
    identity=Identity(
        member="128x128x32_t8x8",
        body="software",
        target="vulkan",
        code_hash="c0de" * 16,
        compiler="compiler 1",
    ),
    tile=Tile(m=128, n=128, k=32, thread_m=8, thread_n=8),
    launch=Launch(
        entry="matmul_f16",
        grid=("ceildiv(N, 128)", "ceildiv(M, 128)", "1"),
        block=(256, 1, 1),
        dynamic_shared_bytes=0,
        bindings=("a", "b", "c"),
        constants=("M", "N", "K", "a.0", "b.0", "c.0"),
    ),
    files=Files(
        vmfb="matmul_f16/a.vmfb",
        code_object="matmul_f16/a.spv",
        sha256={"matmul_f16/a.vmfb": "0a" * 32, "matmul_f16/a.spv": "0b" * 32},
    ),
    workspace=None,
    prepared=None,
    needs=Needs(),
    footprint=Footprint(),
    access=(Access(param="c", mode="write", origin="the body"),),
    groups=(SOFTWARE_GROUP,),
    gates=(GateRecord(gate="spills", status="ok"),),
    refused=None,
)

KERNEL = KernelEntry(
    family="matmul_f16",
    kernel="matmul_f16",
    dims=("M", "N", "K"),
    args=(
        Argument(name="a", type="f16", dims=("M", "K"), mode="read"),
        Argument(name="b", type="f16", dims=("K", "N"), mode="read"),
        Argument(name="c", type="f32", dims=("M", "N"), mode="write"),
    ),
    contraction=Contraction(
        m="M",
        n="N",
        k="K",
        a=Operand(name="a", type="f16", dims=("M", "K")),
        b=Operand(name="b", type="f16", dims=("K", "N")),
        c=Operand(name="c", type="f32", dims=("M", "N")),
        accumulator="f32",
        epilogue=(EpilogueStep(op="max", constant=0.0),),
    ),
    workspace=None,
    members=(RECORD,),
)

MANIFEST = Manifest(
    kernels=(
        replace(
            KERNEL,
            workspace="4 * M * N",
            members=(
                replace(
                    RECORD,
                    workspace="4 * M * N",
                    prepared=Prepared(operand="b", bytes="2 * K * N"),
                    needs=Needs(features=("fp16",), wave_width=32, alignment={"a.0": 8}),
                    footprint=Footprint(threads_per_group=256, feasible_blocks=(256, 128)),
                    groups=(NATIVE_GROUP, SOFTWARE_GROUP),
                ),
                replace(
                    RECORD,
                    launch=None,
                    files=None,
                    refused=Refusal(rule="R3", need=2, limit=1, message="shared 2 B > 1 B (R3)"),
                ),
            ),
            peers=(
                Peer(
                    name="iree_default",
                    target="vulkan",
                    vmfb="p.vmfb",
                    sha256="0c" * 32,
                    dispatches=(
                        Dispatch(
                            entry="gemm_dispatch_0_matmul",
                            footprint=Footprint(threads_per_group=64),
                            matrix_instructions=4,
                        ),
                    ),
                ),
            ),
        ),
    ),
)


def record(**footprint: Any) -> Record:
    """:data:`RECORD` with that footprint."""
    return replace(RECORD, footprint=Footprint(**footprint))
