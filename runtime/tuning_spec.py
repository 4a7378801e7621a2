"""Winners of the body ``iree`` as an IREE tuning spec, for models whose operations are not ours.

``iree-compile --iree-codegen-tuning-spec-path=FILE`` then gives each operation of the same types
and sizes the configuration that won here. Its CPU, CUDA and ROCm back ends read specs, that of
Vulkan does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dialects.manifest import KernelEntry, Record
from dialects.operands import Contraction
from dialects.types import element_type

from .entries import Entry
from .pack import Pack

BODY = "iree"
WITHOUT_SPECS = ("vulkan",)  # back ends that never ask for one
_OPERATIONS = ("linalg.generic", "linalg.matmul", "linalg.batch_matmul")


@dataclass(frozen=True, kw_only=True)
class SpecRow:
    """One matcher: the kernel's operation at these sizes gets this configuration."""

    contraction: Contraction
    sizes: tuple[int, ...]
    compilation_info: str


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The text of a spec, how many matchers it has, and what was left out, with each reason."""

    text: str
    matchers: int
    left_out: tuple[str, ...]


def tuning_spec(entries: Iterable[Entry], packs: Sequence[Pack]) -> Spec:
    """The spec of all entries whose winner is of the body ``iree``.

    The configurations are in the packs. A bucket of rows is matched by its largest size.
    """
    rows: dict[tuple[str, tuple[int, ...]], SpecRow] = {}
    left_out = []
    for entry in entries:
        key = entry.location.key
        if entry.choice.body != BODY:
            continue
        found = _record(entry, packs)
        if found is None:
            left_out.append(f"{key}: no pack has its code, name the one it was tuned with")
            continue
        kernel, record = found
        backend = record.identity.target.partition(":")[0]
        sizes = _sizes(key, kernel)
        if backend in WITHOUT_SPECS:
            left_out.append(f"{key}: the {backend} back end reads no tuning spec")
        elif sizes is None or record.compilation_info is None:
            left_out.append(f"{key}: its sizes or configuration are not known")
        else:
            row = SpecRow(
                contraction=kernel.contraction,
                sizes=sizes,
                compilation_info=record.compilation_info,
            )
            rows.setdefault((kernel.kernel, sizes), row)
    return Spec(text=_module(list(rows.values())), matchers=len(rows), left_out=tuple(left_out))


def _record(entry: Entry, packs: Sequence[Pack]) -> tuple[KernelEntry, Record] | None:
    choice = entry.choice
    wanted = (choice.member, choice.body, choice.code_hash)
    for pack in packs:
        for kernel in pack.manifest.kernels:
            for record in kernel.members if kernel.kernel == choice.kernel else ():
                identity = record.identity
                if (identity.member, identity.body, identity.code_hash) == wanted:
                    return kernel, record
    return None


def _sizes(key: str, kernel: KernelEntry) -> tuple[int, ...] | None:
    """The sizes in a key ``<pack8>.<kernel>.<sizes>.<layout>``."""
    parts = key.rsplit(".", 2)
    texts = parts[1].split("x") if len(parts) == 3 else []
    if len(texts) != len(kernel.dims) or not all(t.isdecimal() for t in texts):
        return None
    return tuple(int(t) for t in texts)


def _module(rows: Sequence[SpecRow]) -> str:
    matchers = "".join(_matcher(f"match_{i}", row) for i, row in enumerate(rows))
    uses = ", ".join(f"@match_{i} -> @apply_op_config" for i in range(len(rows)))
    return (
        "module @tilewright attributes {transform.with_named_sequence,"
        " iree_codegen.tuning_spec_with_default_entrypoint} {\n"
        "  transform.named_sequence @apply_op_config(%op: !transform.any_op"
        " {transform.readonly}, %config: !transform.any_param {transform.readonly}) {\n"
        '    transform.annotate %op "compilation_info" = %config'
        " : !transform.any_op, !transform.any_param\n"
        "    transform.yield\n  }\n"
        f"{matchers}"
        "  transform.named_sequence @__kernel_config(%variant: !transform.any_op"
        " {transform.consumed}) -> !transform.any_op"
        " attributes {iree_codegen.tuning_spec_entrypoint} {\n"
        f"    %result = transform.foreach_match in %variant {uses}"
        " : (!transform.any_op) -> !transform.any_op\n"
        "    transform.yield %result : !transform.any_op\n  }\n}\n"
    )


def _matcher(name: str, row: SpecRow) -> str:
    c = row.contraction
    maps = ", ".join(c.indexing_map(o) for o in (c.a, c.b, c.c))
    types = (
        f"lhs_type = {_type(c.a.type)}, rhs_type = {_type(c.b.type)}, "
        f"output_type = {_type(c.c.type)}"
    )
    operations = ", ".join(f'"{o}"' for o in _OPERATIONS)
    groups = ("%batch", "%m", "%n", "%k")
    named = dict(zip(("%batch", "%m", "%n", "%k")[-len(row.sizes) :], row.sizes, strict=True))
    sizes = "".join(
        f"    transform.iree.match.dims_equal {group}, {[named[group]] if group in named else []}"
        " : !transform.param<i64>\n"
        for group in groups
    )
    return (
        f"  transform.named_sequence @{name}(%root: !transform.any_op {{transform.readonly}})"
        " -> (!transform.any_op, !transform.any_param) {\n"
        f"    transform.match.operation_name %root [{operations}] : !transform.any_op\n"
        f"    {', '.join(groups)} = transform.iree.match.contraction %root, {types},"
        f" indexing_maps = [{maps}] : !transform.any_op -> !transform.param<i64>\n"
        f"{sizes}"
        f"    %config = transform.param.constant {row.compilation_info}"
        " -> !transform.any_param\n"
        "    transform.yield %root, %config : !transform.any_op, !transform.any_param\n  }\n"
    )


def _type(name: str) -> str:
    return element_type(name).mlir
