"""A writer of NVIDIA kernels whose every word is a number: what would be emitted is computed."""

from __future__ import annotations

from lowering.tiles.ptx_text import PtxText, Word

_COMPARE = {"eq": int.__eq__, "ne": int.__ne__}


class WordMachine(PtxText):
    """Folds comparisons too, so that a function over words is run by calling it with integers."""

    def compare_w(self, predicate: str, a: Word, b: Word) -> str:
        """``"true"`` or ``"false"``."""
        assert isinstance(a, int)
        assert isinstance(b, int)
        return "true" if _COMPARE[predicate](a, b) else "false"

    def select_w(self, condition: str, a: Word, b: Word) -> Word:
        """The one of the two that is meant."""
        return a if condition == "true" else b
