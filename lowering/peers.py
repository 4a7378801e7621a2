"""The same kernels compiled by the back end's own defaults, to be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dialects.errors import CompileError, Error, UsageError
from dialects.manifest import Footprint, Peer
from dialects.occupancy import residency

from .artifacts.reading import Reader, read_artifact
from .attributes import is_kernel
from .compile import Artifact, Job
from .coop_source import stand_in_references
from .ir import attribute_names, context, parse_module, symbol
from .records import safe_name, sha256
from .target import Target, compiler_flags, module_attributes

PEER_NAMES = ("iree_default",)
PeerKey = tuple[str, str, tuple[str, ...]]  # the peer, the target, the kernels


def peer_jobs(
    text: str, name: str, targets: Sequence[Target], peers: Sequence[str]
) -> dict[PeerKey, Job]:
    """One job a peer and target, over all kernels of the source without our attributes."""
    jobs = {}
    for peer in peers:
        if peer not in PEER_NAMES:
            raise UsageError(f"peer '{peer}' is not one of {', '.join(PEER_NAMES)}")
        for target in targets:
            plain, kernels = _plain_source(text, name, target)
            flags = tuple(f for f in compiler_flags(target) if "ukernels" not in f)
            jobs[(peer, target.name, kernels)] = Job(
                name=f"peer {peer} {target.name}", text=plain, flags=flags, in_place=False
            )
    return jobs


def _plain_source(text: str, name: str, target: Target) -> tuple[str, tuple[str, ...]]:
    kernels = []
    with context() as ctx:
        module = parse_module(text, name, ctx)
        stand_in_references(module.operation)
        for op in module.body.operations:
            if is_kernel(op.operation):
                kernels.append(symbol(op.operation))
            for key in attribute_names(op.operation):
                if key.startswith("xpu.") or key == "arg_attrs":
                    del op.attributes[key]
        attributes = module_attributes(target, peer=True)
        if attributes:
            wrapper = parse_module(f"module attributes {{{attributes}}} {{}}", name, ctx)
            key = "hal.device.targets"
            module.operation.attributes[key] = wrapper.operation.attributes[key]
        return str(module), tuple(kernels)


def peer_entries(
    jobs: dict[PeerKey, Job],
    artifacts: Sequence[Artifact | CompileError],
    targets: Sequence[Target],
    reader: Reader,
    files: dict[str, bytes],
    notes: list[str],
) -> dict[str, tuple[Peer, ...]]:
    """The peers of each kernel; one that does not compile is a note."""
    result: dict[str, tuple[Peer, ...]] = {}
    by_name = {t.name: t for t in targets}
    for (peer, target, kernels), artifact in zip(jobs, artifacts, strict=True):
        if isinstance(artifact, CompileError):
            notes.append(f"peer {peer} on {target}: {artifact.message}")
            continue
        path = f"peers/{peer}__{safe_name(target)}.vmfb"
        while path in files:  # several sources
            path = path.replace(f"{peer}__", f"{peer}__{kernels[0]}__", 1)
        files[path] = artifact.vmfb
        made = Peer(
            name=peer,
            target=target,
            vmfb=path,
            sha256=sha256(artifact.vmfb),
            footprint=_footprint(artifact, by_name[target], reader, where=path),
        )
        for kernel in kernels:
            result[kernel] = (*result.get(kernel, ()), made)
    return result


def _footprint(
    artifact: Artifact, target: Target, reader: Reader, *, where: str
) -> Footprint | None:
    """What its kernel with the most spilled bytes, then registers takes; None if nothing is read.

    Nobody has to have made it as we read it: code that is not understood is no failure.
    """
    found = []
    for code in (artifact.code, *(code for _, code in artifact.more)):
        if code is None:
            continue
        try:
            one = replace(artifact, code=code, listing=None, more=())
            found.append(read_artifact(target, one, Footprint(), reader, where=where).footprint)
        except Error:
            continue
    used = max(found, key=lambda f: (f.spill_bytes or 0, f.registers or 0), default=Footprint())
    if used == Footprint():
        return None
    resident = residency(used.usage, target.facts)
    return replace(
        used,
        resident_groups=resident.groups if resident else None,
        occupancy_limiter=resident.limiter if resident else None,
    )
