"""The CDNA native body: v_mfma on waves of 64 lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .amd_matrix import AmdMatrixBody


@dataclass(frozen=True, kw_only=True)
class MfmaBody(AmdMatrixBody):
    """MFMA, staged and double-buffered, copied 16 bytes at a time."""

    name: ClassVar[str] = "mfma"
    kind: ClassVar[str] = "mfma"
    wave: ClassVar[int] = 64


@dataclass(frozen=True, kw_only=True)
class MfmaNarrowBody(MfmaBody):
    """The same copied element by element, for rows that are not aligned to 16 bytes."""

    name: ClassVar[str] = "mfma_narrow"
    wide: ClassVar[bool] = False
