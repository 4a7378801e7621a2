"""Which lane holds what of a matrix instruction's operands, for WMMA and MFMA.

Every instruction has the same form: lane l holds, of A, row l mod m and ``k_run`` neighbouring k
from ``k_run * (l div m)``; of B, column l mod n and the same k; of the result, column l mod n and
rows in runs of ``row_run``. On RDNA 3 both halves of a wave hold the same of A and B, and a 16-bit
result takes every other element (RDNA 3/4 and CDNA 2/3/4 ISA guides, chapters on WMMA and MFMA).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..instructions import Instruction


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """The map of one m x n x k instruction.

    ``k_run`` elements of A and of B a lane. The result has ``sums`` elements a lane, at multiples
    of ``step`` in its vector.
    """

    m: int
    n: int
    k: int
    wave: int
    k_run: int
    row_run: int
    step: int

    @property
    def sums(self) -> int:
        """Elements of the result that a lane holds."""
        return self.m * self.n // self.wave

    @property
    def k_lanes(self) -> int:
        """Lanes that share a row of A, each with its own k."""
        return self.k // self.k_run

    def row(self, sum_: int) -> int:
        """The result's row of a lane's ``sum_``-th element, without :meth:`row_step`'s part."""
        return sum_ // self.row_run * (self.wave // self.n) * self.row_run + sum_ % self.row_run

    @property
    def row_step(self) -> int:
        """What ``l div n`` adds to the result's row."""
        return self.row_run


def fragment_of(instruction: Instruction) -> Fragment:
    """The map of an AMD instruction."""
    m, n, k = instruction.shape
    rdna3 = instruction.family.startswith("gfx11")
    mfma = instruction.family.startswith("gfx9")
    wave = 64 if mfma else 32
    return Fragment(
        m=m,
        n=n,
        k=k,
        wave=wave,
        k_run=k if rdna3 else k * m // wave,
        row_run=1 if rdna3 else 4 if mfma else 8,
        step=2 if rdna3 and instruction.types[2] == "f16" else 1,
    )
