"""Exact products with a matrix whose elements repeat with a period, without going through it.

The operands of a proof are one short pattern of integers, repeated over their memory. A sum of such
elements against weights is then a cyclic correlation of the pattern with the weights folded to its
length, which takes a Fourier transform of that length, however large the matrix is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EXACT = 0.25  # an integer that comes out further from one than this is not to be believed


@dataclass(frozen=True, kw_only=True)
class Periodic:
    """A matrix, or a batch of them: element (b, i, j) is pattern[(b B + i I + j J) mod length].

    ``stride`` is I, ``step`` J and ``batch_stride`` B; sums go over i, and ``count`` is the number
    of j. ``batches`` None is for a single matrix.
    """

    pattern: np.ndarray
    stride: int
    step: int
    count: int
    batch_stride: int = 0
    batches: int | None = None

    def times(self, weights: np.ndarray) -> np.ndarray | None:
        """``weights`` [..., R, I] times the matrix, [..., R, count] whole numbers in float64.

        None where rounding might have changed one.
        """
        length = len(self.pattern)
        folds = np.arange(weights.shape[-1]) * self.stride % length
        rows = weights.reshape(-1, weights.shape[-1])
        folded = np.stack([np.bincount(folds, row, minlength=length) for row in rows])
        sums = np.conj(np.fft.rfft(folded)) * np.fft.rfft(self.pattern)
        found = np.fft.irfft(sums, length)
        whole = np.rint(found)
        if not np.abs(found - whole).max(initial=0) < EXACT:
            return None
        whole = whole.reshape(*weights.shape[:-1], length)
        places = np.arange(self.count) * self.step
        if self.batches is None:
            return whole[..., places % length]
        starts = np.arange(self.batches) * self.batch_stride
        whole = np.broadcast_to(whole, (self.batches, *whole.shape[-2:]))
        return np.stack([whole[b][:, (places + start) % length] for b, start in enumerate(starts)])
