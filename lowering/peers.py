"""The same kernels compiled by the back end's own defaults, to be compared with."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.errors import CompileError, UsageError
from dialects.manifest import Peer

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
    files: dict[str, bytes],
    notes: list[str],
) -> dict[str, tuple[Peer, ...]]:
    """The peers of each kernel; one that does not compile is a note."""
    result: dict[str, tuple[Peer, ...]] = {}
    for (peer, target, kernels), artifact in zip(jobs, artifacts, strict=True):
        if isinstance(artifact, CompileError):
            notes.append(f"peer {peer} on {target}: {artifact.message}")
            continue
        path = f"peers/{peer}__{safe_name(target)}.vmfb"
        while path in files:  # several sources
            path = path.replace(f"{peer}__", f"{peer}__{kernels[0]}__", 1)
        files[path] = artifact.vmfb
        made = Peer(name=peer, target=target, vmfb=path, sha256=sha256(artifact.vmfb))
        for kernel in kernels:
            result[kernel] = (*result.get(kernel, ()), made)
    return result
