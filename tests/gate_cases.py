"""Made-up candidates at the gates: for each gate some that it must refuse, and some it must not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dialects.declarations import Hold, Limits
from dialects.errors import CompileError, DeadlineError
from dialects.launches import LaunchPin
from dialects.manifest import Access, Footprint, Refusal
from lowering.artifacts.reading import Reading
from lowering.builder import dense
from lowering.candidate import CandidateInfo
from lowering.gates import Group, Subject
from lowering.target import Target, parse_target
from records import NATIVE_GROUP, RECORD, SOFTWARE_GROUP

CUDA, ROCM, VULKAN, CPU = (
    parse_target(t) for t in ("cuda:sm_90a", "rocm:gfx1100", "vulkan", "cpu:x86-64-v3")
)
BLOCK = (256, 1, 1)
FOOTPRINT = Footprint(
    registers=100, spill_bytes=0, dynamic_shared_bytes=0, threads_per_group=256, wave_width=32
)
READING = Reading(
    code_hash="c0de" * 16,
    footprint=FOOTPRINT,
    matrix_instructions=0,
    version=(8, 0),
    bound=256,
    block=BLOCK,
)
CONTRACTION = dense("f16")
ACCESS = (
    Access(param="a", mode="read", origin="device code: memref.load"),
    Access(param="b", mode="read", origin="device code: memref.load"),
    Access(param="c", mode="write", origin="device code: memref.store"),
)


def subject(
    target: Target = CUDA,
    *,
    footprint: dict[str, Any] | None = None,
    reading: dict[str, Any] | None = None,
    record: dict[str, Any] | None = None,
    **info: Any,
) -> Subject:
    """A candidate with code that no gate objects to, changed in some fields."""
    used = replace(FOOTPRINT, **(footprint or {}))
    identity = replace(RECORD.identity, target=target.name)
    base = replace(
        RECORD, identity=identity, footprint=used, groups=(SOFTWARE_GROUP,), access=ACCESS, gates=()
    )
    assert RECORD.launch is not None
    launch = replace(RECORD.launch, block=BLOCK)
    given: dict[str, Any] = {
        "kernel": "gemm",
        "dims": CONTRACTION.dims,
        "contraction": CONTRACTION,
        "tile": RECORD.tile,
        "body": "software",
        "launch": launch,
        "needs": RECORD.needs,
        "footprint": used,
        "groups": base.groups,
    }
    return Subject(
        target=target,
        info=CandidateInfo(**{**given, **info}),
        record=replace(base, **(record or {})),
        reading=replace(READING, footprint=used, **(reading or {})),
    )


def without_code(target: Target, failure: Exception | None = None) -> Subject:
    """A candidate that failed, or that preflight refused."""
    made = subject(target)
    rule = "R3" if failure is None else "code"
    refused = Refusal(rule=rule, need=2, limit=1, message="shared 2 B > 1 B per block (R3)")
    record = replace(made.record, files=None, launch=None, refused=refused)
    assert failure is None or isinstance(failure, CompileError)
    return replace(made, record=record, reading=None, failure=failure)


def group(*subjects: Subject, holds: tuple[Hold, ...] = (), **more: Any) -> Group:
    """The candidates of one kernel."""
    return Group(kernel="gemm", holds=holds, subjects=subjects, **more)


def hold(cause: Any, tracked: str = "plan item 7", **more: Any) -> Hold:
    """A hold of the author's."""
    return Hold(cause=cause, tracked=tracked, **more)


REFUSED = CompileError("the compiler failed", where="gemm x vulkan")
HUNG = DeadlineError("the compiler ran past its deadline of 1 s", where="gemm x vulkan")
OPEN = LaunchPin(sites=2, unbounded=("host.mlir:3:5",))
PINNED = LaunchPin(sites=2, threads=256)
NATIVE = (replace(NATIVE_GROUP, count=16),)
Cases = dict[str, tuple[Group, ...]]

FIRES: Cases = {
    "code": (
        group(without_code(VULKAN, REFUSED), subject(VULKAN)),
        group(without_code(VULKAN), without_code(VULKAN), subject(CUDA)),
        group(subject(CUDA), absent={"vulkan": (VULKAN, "no member can be built")}),
    ),
    "deadline": (group(without_code(VULKAN, HUNG), subject(VULKAN)),),
    "unbounded": (group(subject(launches=OPEN)), group(subject(CPU, launches=OPEN))),
    "spill": (group(subject(footprint={"spill_bytes": 4}), subject()),),
    "tier": (
        group(subject(record={"groups": (replace(NATIVE_GROUP, count=0),)})),
        group(subject(record={"groups": (replace(SOFTWARE_GROUP, count=3),)})),
    ),
    "declaration": (
        group(subject(reading={"bound": None})),
        group(subject(reading={"bound": 128})),
        group(subject(reading={"bound": 512}, limits=Limits(max_threads=256))),
        group(subject(reading={"bound": 512}, launches=PINNED)),
        group(subject(reading={"block": (128, 1, 1)})),
        group(subject(footprint={"dynamic_shared_bytes": 64})),
        group(subject(limits=Limits(min_resident=2))),
        group(subject(limits=Limits(min_resident=2), reading={"min_resident": 1})),
        group(
            subject(
                limits=Limits(min_resident=2),
                reading={"min_resident": 2},
                footprint={"resident_groups": 1, "occupancy_limiter": "shared"},
            )
        ),
        group(subject(limits=Limits(max_registers=128))),
        group(subject(limits=Limits(max_registers=96), reading={"max_registers": 96})),
        group(subject(ROCM, limits=Limits(max_registers=96))),
        # 8 waves a block: 8 blocks are 16 waves a SIMD, 100 registers leave room for 12
        group(subject(ROCM, limits=Limits(min_resident=8))),
        group(subject(ROCM, wave_width=64)),
    ),
    "isa": (
        group(subject(ptx_version=(8, 3))),
        group(subject(ptx_version=(8, 0), reading={"version": None})),
    ),
    "aligned": (
        group(subject(aligned={"wgmma.fence.sync.aligned": 1})),
        group(
            subject(
                aligned={"a.aligned": 1, "b.aligned": 2},
                reading={"aligned": {"a.aligned": 2, "b.aligned": 2}},
            )
        ),
    ),
    "access": (
        group(subject(record={"access": (replace(ACCESS[0], mode="readwrite"), *ACCESS[1:])})),
        group(subject(record={"access": (*ACCESS[:2], replace(ACCESS[2], mode="read"))})),
        group(subject(contraction=dense("f16", accumulate=True))),
    ),
    "stale": (
        group(subject(CPU), holds=(hold("unlowered", backends=("cpu",)),)),
        group(subject(), holds=(hold("spills"),)),
        group(subject(), subject(CPU), holds=(hold("unbounded", backends=("cuda",)),)),
        group(subject(), holds=(hold("spills", members=("128x128x32_t8x8",)),)),
        group(subject(), holds=(hold("spills", members=("128x128x32_t8x8/software",)),)),
        # the spill is of a record that the hold does not cover
        group(
            subject(ROCM, footprint={"spill_bytes": 4}),
            subject(),
            holds=(hold("spills", backends=("cuda",)),),
        ),
    ),
}

QUIET: Cases = {
    "code": (
        group(subject(), subject(VULKAN)),
        # a member that preflight refused, beside one with code
        group(without_code(VULKAN), subject(VULKAN)),
        group(without_code(VULKAN), holds=(hold("unlowered", backends=("vulkan",)),)),
        group(without_code(VULKAN, REFUSED), subject(), holds=(hold("unlowered"),)),
        group(
            without_code(VULKAN, REFUSED),
            subject(VULKAN),
            holds=(hold("unlowered", members=("128x128x32_t8x8/software",)),),
        ),
        group(
            subject(),
            absent={"vulkan": (VULKAN, "no member")},
            holds=(hold("unlowered", backends=("vulkan",)),),
        ),
    ),
    "deadline": (
        group(subject()),
        group(without_code(VULKAN, HUNG), subject(), holds=(hold("unlowered"),)),
    ),
    "unbounded": (
        group(subject(launches=PINNED)),
        group(subject(launches=OPEN, limits=Limits(max_threads=256))),
        group(subject(launches=OPEN), holds=(hold("unbounded"),)),
    ),
    "spill": (
        group(subject()),
        group(subject(VULKAN, footprint={"spill_bytes": None})),
        group(subject(footprint={"spill_bytes": 4}), holds=(hold("spills", backends=("cuda",)),)),
    ),
    "tier": (
        group(subject(record={"groups": NATIVE})),
        group(subject(record={"groups": (SOFTWARE_GROUP,)})),
        # the demoted group of a kernel that has a native one beside it, whose count none can tell
        group(subject(record={"groups": (*NATIVE, replace(SOFTWARE_GROUP, count=None))})),
    ),
    "declaration": (
        group(subject(limits=Limits(max_threads=256))),
        group(subject(reading={"bound": 512})),
        group(subject(launches=PINNED)),
        group(subject(limits=Limits(min_resident=2), reading={"min_resident": 2})),
        group(subject(limits=Limits(max_registers=128), reading={"max_registers": 128})),
        group(subject(ROCM, limits=Limits(max_registers=100))),
        group(subject(ROCM, limits=Limits(min_resident=6))),
        group(subject(ROCM, wave_width=32)),
        # no place in the output of these: they state nothing there
        group(subject(VULKAN, limits=Limits(min_resident=2, max_registers=8))),
        group(subject(CPU, wave_width=16, reading={"bound": None, "block": None})),
    ),
    "isa": (group(subject()), group(subject(ptx_version=(8, 0)))),
    "aligned": (
        group(subject(aligned={"a.aligned": 2}, reading={"aligned": {"a.aligned": 2}})),
        # what the back end itself adds
        group(subject(reading={"aligned": {"bar.sync.aligned": 4}})),
    ),
    "access": (
        group(subject()),
        group(subject(record={"access": (replace(ACCESS[0], mode="none"), *ACCESS[1:])})),
        # an op that is not known may do anything: no contradiction
        group(
            subject(
                record={
                    "access": (replace(ACCESS[0], mode="readwrite", origin="device code: x.y?"),)
                }
            )
        ),
    ),
    "stale": (
        group(subject(footprint={"spill_bytes": 4}), holds=(hold("spills"),)),
        # nothing that it covers was built this time
        group(subject(CUDA), holds=(hold("unlowered", backends=("cpu",)),)),
        # it holds nothing, so there is nothing to remove
        group(subject(), holds=(hold("spills", tracked=""),)),
        group(without_code(VULKAN), holds=(hold("unlowered", backends=("vulkan",)),)),
    ),
}
