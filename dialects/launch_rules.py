"""The rules about the sizes of a launch: its grid and block, its operands, its memory.

Candidates share grids, blocks and workspaces, so a site keeps what was said of each.
"""

from __future__ import annotations

from .launch import Launch
from .manifest import Record, Refusal
from .site import Site, refuse

INDEX_LIMIT = 1 << 31  # elements of one operand: strides and sizes are i32


def grid_rule(record: Record, site: Site) -> Refusal | None:
    """A launch longer along an axis than the device has them."""
    return _over_launch(record.launch, site) if record.launch is not None else None


def _over_launch(launch: Launch, site: Site, splits: int = 1) -> Refusal | None:
    """More lanes along an axis than a workgroup may have, or more workgroups than a launch may."""
    key = (launch.extents, splits)
    if key not in site.answers:
        site.answers[key] = _over_step(launch, site, splits)
    return site.answers[key]


def _over_step(launch: Launch, site: Site, splits: int) -> Refusal | None:
    for block, grid in launch.extents:
        found = _over_block(block or (), site) or _over_grid(grid or (), site, splits)
        if found is not None:
            return found
    return None


def _over_block(block: tuple[int, ...], site: Site) -> Refusal | None:
    limits = site.facts.max_workgroup_sizes or ()
    for axis, need, limit in zip("xyz", block, limits, strict=False):
        if need > limit:
            return refuse("grid", need, limit, f"block {axis} {need} > {limit} lanes")
    return None


def _over_grid(grid: tuple[str, ...], site: Site, splits: int) -> Refusal | None:
    limits = site.facts.max_workgroup_counts
    if site.sizes is None or limits is None:
        return None
    for axis, text, limit in zip("xyz", grid, limits, strict=False):
        need = site.evaluate(text, splits)
        if need > limit:
            return refuse("grid", need, limit, f"grid {axis} {need} > {limit} workgroups")
    return None


def index_rule(record: Record, site: Site) -> Refusal | None:
    """More elements than an index counts."""
    if "index" not in site.answers:
        site.answers["index"] = _over_index(site)
    return site.answers["index"]


def _over_index(site: Site) -> Refusal | None:
    for span in site.spans:
        if span.elements > INDEX_LIMIT:
            text = f"{span.name} has {span.elements} elements > {INDEX_LIMIT}"
            return refuse("index", span.elements, INDEX_LIMIT, text)
    return None


def memory_rule(record: Record, site: Site) -> Refusal | None:
    """More bytes than a binding or the device holds."""
    if site.sizes is None:
        return None
    return _over_memory(site.evaluate(record.workspace) if record.workspace else 0, site)


def _over_memory(workspace: int, site: Site) -> Refusal | None:
    """Operands and that much workspace (bytes) against one binding and the whole device."""
    key = ("memory", workspace)
    if key not in site.answers:
        site.answers[key] = _too_large(workspace, site)
    return site.answers[key]


def _too_large(workspace: int, site: Site) -> Refusal | None:
    binding, memory = site.facts.max_binding_bytes, site.facts.memory_bytes
    if binding is not None:
        for span in site.spans:
            if span.bytes > binding:
                text = f"{span.name} {span.bytes} B > {binding} B per binding"
                return refuse("memory", span.bytes, binding, text)
        if workspace > binding:
            text = f"workspace {workspace} B > {binding} B per binding"
            return refuse("memory", workspace, binding, text)
    total = workspace + site.operand_bytes
    if memory is not None and total > memory:
        return refuse("memory", total, memory, f"operands {total} B > {memory} B of the device")
    return None


def split_fits(record: Record, site: Site, splits: int) -> bool:
    """Whether the device takes the launches and the workspace of that many slices of K."""
    if record.split is None or site.sizes is None:
        return False
    workspace = site.evaluate(record.split.workspace, splits)
    if workspace > 4 * INDEX_LIMIT or _over_memory(workspace, site) is not None:
        return False
    return _over_launch(record.split.launch, site, splits) is None
