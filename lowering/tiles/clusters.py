"""Clusters: workgroups that run at once and reach each other's workgroup memory (PTX ISA, mapa)."""

from __future__ import annotations

from .ptx_text import PtxText, Word

MOST = 8  # workgroups that every part with clusters allows (CUDA programming guide)
SINCE = 90  # the compute capability
PTX_VERSION = (7, 8)


def attributes(workgroups: int) -> str:
    """What a function with clusters along x declares; nothing for one workgroup alone."""
    if workgroups == 1:
        return ""
    return f", nvvm.cluster_dim = array<i32: {workgroups}, 1, 1>"


def meet(ir: PtxText) -> None:
    """Wait for all threads of the cluster, and see what they have written to workgroup memory."""
    ir.asm("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;")


def leave(ir: PtxText) -> None:
    """This thread has read all it wants of other workgroups' memory: see :func:`wait_for_all`.

    Not relaxed: reads that are still under way when their target ends are a launch failure.
    """
    ir.asm("barrier.cluster.arrive.release;")


def wait_for_all(ir: PtxText) -> None:
    """Until every thread of the cluster has called :func:`leave`."""
    ir.asm("barrier.cluster.wait;")


def address_in(ir: PtxText, address: Word, rank: int) -> str:
    """The same place in the workgroup memory of another workgroup."""
    text = f"mapa.shared::cluster.u32 $0, $1, {rank};"
    return ir.asm(text, [(ir.word(address), "i32")], result="i32", pure=True)
