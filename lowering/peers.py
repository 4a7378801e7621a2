"""The same kernels compiled by the back end's own defaults, to be compared with.

A peer is called ``iree_default``, or ``iree_software`` where the compiler is told of no matrix
instruction; followed by ``@MxNxK``, it is compiled for those sizes alone instead of any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dialects.block_formats import stored_sizes
from dialects.errors import CompileError, Error, UsageError
from dialects.manifest import Dispatch, Footprint, Peer

from .artifacts.reading import Reader, code_entries, read_artifact
from .attributes import is_kernel
from .candidate import CandidateInfo
from .compile import Artifact, Job
from .coop_source import stand_in_references
from .ir import attribute_names, context, functions, mlir, parse_module, symbol
from .records import safe_name, sha256, with_occupancy
from .target import PeerMatrix, Target, compiler_flags, module_attributes

_DISPATCH = "_dispatch_"
PEERS: Mapping[str, PeerMatrix] = {"iree_default": "default", "iree_software": "none"}
PeerKey = tuple[str, str, tuple[str, ...]]  # the peer, the target, the kernels


@dataclass(frozen=True, kw_only=True)
class PeerSpec:
    """A peer's ``name`` as asked for, what it may use, and its sizes where it has only one."""

    name: str
    matrix: PeerMatrix
    sizes: tuple[int, ...] | None


def parse_peer(name: str) -> PeerSpec:
    """The peer of that name.

    Raises:
        UsageError: no such peer, or sizes that are none.
    """
    base, at, text = name.partition("@")
    if base not in PEERS:
        raise UsageError(f"peer '{base}' is not one of {', '.join(PEERS)}")
    sizes = text.split("x")
    if at and not all(s.isascii() and s.isdecimal() and int(s) for s in sizes):
        raise UsageError(f"peer '{name}': '{text}' is no shape such as 512x4096x4096")
    return PeerSpec(
        name=name, matrix=PEERS[base], sizes=tuple(int(s) for s in sizes) if at else None
    )


def peer_jobs(
    text: str,
    name: str,
    targets: Sequence[Target],
    peers: Sequence[str],
    infos: Mapping[str, CandidateInfo],
) -> dict[PeerKey, Job]:
    """One job a peer and target, over all kernels of the source without our attributes.

    ``infos`` say what each kernel computes, by its name; a peer of fixed sizes is of those kernels
    alone that have as many.
    """
    jobs = {}
    for spec in map(parse_peer, peers):
        for target in targets:
            plain, kernels = _plain_source(text, name, target, spec, infos)
            flags = tuple(f for f in compiler_flags(target) if "ukernels" not in f)
            if kernels:
                jobs[(spec.name, target.name, kernels)] = Job(
                    name=f"peer {spec.name} {target.name}", text=plain, flags=flags, in_place=False
                )
    return jobs


def _plain_source(
    text: str, name: str, target: Target, spec: PeerSpec, infos: Mapping[str, CandidateInfo]
) -> tuple[str, tuple[str, ...]]:
    kernels = []
    with context() as ctx:
        module = parse_module(text, name, ctx)
        stand_in_references(module.operation)
        found = [f for f in functions(module.operation) if is_kernel(f)]
        for op in module.body.operations:
            for key in attribute_names(op.operation):
                if key.startswith("xpu.") or key == "arg_attrs":
                    del op.attributes[key]
        for function in found:
            info = infos.get(symbol(function))
            if spec.sizes is None:
                kernels.append(symbol(function))
            elif info is not None and len(info.dims) == len(spec.sizes):
                kernels.append(symbol(function))
                _fix_sizes(module, function, info, spec.sizes)
        attributes = module_attributes(target, peer=spec.matrix)
        if attributes:
            wrapper = parse_module(f"module attributes {{{attributes}}} {{}}", name, ctx)
            key = "hal.device.targets"
            module.operation.attributes[key] = wrapper.operation.attributes[key]
        return str(module), tuple(kernels)


def _fix_sizes(
    module: mlir.Module, function: mlir.Operation, info: CandidateInfo, sizes: Sequence[int]
) -> None:
    """Put a function of these sizes in the kernel's place; the compiler inlines the kernel."""
    values = dict(zip(info.dims, sizes, strict=True))
    c = info.contraction
    read = [o for o in c.operands if o is not c.c or c.accumulate]
    fixed = [
        f"tensor<{'x'.join(map(str, shape))}x{operand.stored_type}>"
        for operand in (*read, c.c)
        for shape in [stored_sizes([values[d] for d in operand.dims], operand.source)]
    ]
    kernel, inner = symbol(function), f"{symbol(function)}.any_size"
    type_ = mlir.FunctionType(mlir.TypeAttr(function.attributes["function_type"]).value)
    open_types = [str(t) for t in (*type_.inputs, *type_.results)]
    function.attributes["sym_name"] = mlir.StringAttr.get(inner, function.context)
    function.attributes["sym_visibility"] = mlir.StringAttr.get("private", function.context)
    names = [f"%{i}" for i in range(len(read))]
    casts = [
        f"  %c{i} = tensor.cast {names[i]} : {fixed[i]} to {open_types[i]}"
        for i in range(len(read))
    ]
    given = ", ".join(f"{n}: {t}" for n, t in zip(names, fixed, strict=False))
    passed = ", ".join(f"%c{i}" for i in range(len(read)))
    text = "\n".join(
        [
            f"func.func private @{inner}({', '.join(open_types[:-1])}) -> {open_types[-1]}",
            f"func.func @{kernel}({given}) -> {fixed[-1]} {{",
            *casts,
            f"  %r = call @{inner}({passed}) : ({', '.join(open_types[:-1])}) -> {open_types[-1]}",
            f"  %s = tensor.cast %r : {open_types[-1]} to {fixed[-1]}",
            f"  return %s : {fixed[-1]}",
            "}",
        ]
    )
    made = parse_module(text, kernel, function.context)
    outer = next(f for f in functions(made.operation) if symbol(f) == kernel)
    module.body.append(outer.clone(mlir.InsertionPoint(module.body)))


def peer_entries(
    jobs: dict[PeerKey, Job],
    artifacts: Sequence[Artifact | CompileError],
    targets: Sequence[Target],
    reader: Reader,
    files: dict[str, bytes],
    notes: list[str],
) -> dict[str, tuple[Peer, ...]]:
    """The peers of each kernel; one that does not compile, or whose code is not read, is a note."""
    result: dict[str, tuple[Peer, ...]] = {}
    known = {t.name: t for t in targets}
    for (peer, target, kernels), artifact in zip(jobs, artifacts, strict=True):
        if isinstance(artifact, CompileError):
            notes.append(f"peer {peer} on {target}: {artifact.message}")
            continue
        path = f"peers/{safe_name(f'{peer}__{target}')}.vmfb"
        while path in files:  # several sources
            path = path.replace("peers/", f"peers/{kernels[0]}__", 1)
        files[path] = artifact.vmfb
        made = Peer(name=peer, target=target, vmfb=path, sha256=sha256(artifact.vmfb))
        try:
            dispatches = _dispatches(known[target], artifact, reader, f"peer {peer} {target}")
        except Error as error:
            notes.append(f"peer {peer} on {target}: {error.message}")
            dispatches = []
        for kernel in kernels:
            mine = tuple(d for d in dispatches if _kernel_of(d.entry, kernels) == kernel)
            result[kernel] = (*result.get(kernel, ()), replace(made, dispatches=mine))
    return result


def _dispatches(target: Target, artifact: Artifact, reader: Reader, where: str) -> list[Dispatch]:
    """Every kernel in the code, read by itself, in the order of their names."""
    objects = [content for content in (artifact.code, *(c for _, c in artifact.more)) if content]
    found = []
    for code in objects:
        alone = replace(artifact, code=code, more=())
        for entry in code_entries(target, code, where=where):
            reading = read_artifact(
                target, alone, Footprint(), reader, where=where, entry=entry, alone=True
            )
            found.append(
                Dispatch(
                    entry=entry,
                    footprint=with_occupancy(reading.footprint, target.facts),
                    matrix_instructions=reading.matrix_instructions,
                )
            )
    return sorted(found, key=lambda dispatch: dispatch.entry)


def _kernel_of(entry: str, kernels: Sequence[str]) -> str | None:
    """The kernel that a dispatch is part of, whose name the compiler puts first."""
    named = [kernel for kernel in kernels if entry.startswith(f"{kernel}{_DISPATCH}")]
    return max(named, key=len, default=None)
