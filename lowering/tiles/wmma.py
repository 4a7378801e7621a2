"""The RDNA native body: v_wmma on waves of 32 lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .amd_matrix import AmdMatrixBody


@dataclass(frozen=True, kw_only=True)
class WmmaBody(AmdMatrixBody):
    """WMMA, staged and double-buffered, copied 16 bytes at a time."""

    name: ClassVar[str] = "wmma"
    kind: ClassVar[str] = "wmma"
    wave: ClassVar[int] = 32


@dataclass(frozen=True, kw_only=True)
class WmmaNarrowBody(WmmaBody):
    """The same copied element by element, for rows that are not aligned to 16 bytes."""

    name: ClassVar[str] = "wmma_narrow"
    wide: ClassVar[bool] = False
