"""Barriers in workgroup memory that count arrivals and bytes (PTX ISA, section on mbarrier).

Every function emits one piece of inline PTX whose lane predicates stand in its text.
"""

from __future__ import annotations

from collections.abc import Sequence

from .ptx_text import PtxText, Word

BYTES = 8  # of one barrier


def initialise(ir: PtxText, first: Word, counts: Sequence[int], lane: Word) -> None:
    """Barrier i, at ``first + 8 * i``, expects ``counts[i]`` arrivals. One whole warp calls it."""
    text = "{ .reg .pred p; setp.eq.u32 p, $1, 0; "
    for i, count in enumerate(counts):
        text += f"@p mbarrier.init.shared::cta.b64 [$0+{BYTES * i}], {count}; "
    text += "@p fence.mbarrier_init.release.cluster; }"
    ir.asm(text, [(ir.word(first), "i32"), (ir.word(lane), "i32")])


def wait(ir: PtxText, barrier: Word, parity: Word) -> None:
    """Until the phase of that parity has completed."""
    ir.asm(
        "{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; "
        "@p bra D; bra W; D: }",
        [(ir.word(barrier), "i32"), (ir.word(parity), "i32")],
    )


def arrive(
    ir: PtxText, barrier: Word, lane: Word, given: Word | None = None, *, cluster: int = 1
) -> None:
    """The calling warp arrives once, when ``given`` is not 0, at the barrier of each workgroup.

    Of a cluster's ranks, lane i takes rank i. The arrival is not ordered at cluster scope, which
    would flush memory each time: nothing that was written before it is read on its account.
    """
    text = f"{{ .reg .pred p; .reg .b32 a; setp.lt.u32 p, $1, {cluster}; "
    operands = [(ir.word(barrier), "i32"), (ir.word(lane), "i32")]
    if given is not None:
        text += "setp.ne.and.u32 p, $2, 0, p; "
        operands.append((ir.word(given), "i32"))
    if cluster == 1:
        text += "@p mbarrier.arrive.shared::cta.b64 _, [$0]; }"
    else:
        text += "@p mapa.shared::cluster.u32 a, $0, $1; "
        text += "@p mbarrier.arrive.shared::cluster.b64 _, [a]; }"
    ir.asm(text, operands)
