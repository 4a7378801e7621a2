"""The body for tensors that the copy engine can address: TMA + wgmma.

Warpgroup matrix instructions read both operands from workgroup memory, where the tensor copy engine
(TMA) puts them; it checks bounds itself, zero-filling loads and clipping stores, so that any M, N
and K runs at the same speed. Rows and addresses must be multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .tma_kernel import TmaKernel
from .wgmma_body import WgmmaBodyBase
from .wgmma_kernel import WgmmaKernel


@dataclass(frozen=True, kw_only=True)
class TmaWgmmaBody(WgmmaBodyBase):
    """One producer thread drives the copy engine."""

    name: ClassVar[str] = "tma_wgmma"
    kernel: ClassVar[type[WgmmaKernel]] = TmaKernel
    copy_bytes: ClassVar[int] = 16
    store_bytes: ClassVar[int] = 16


@dataclass(frozen=True, kw_only=True)
class TmaWgmmaPairBody(TmaWgmmaBody):
    """Two workgroups take tiles one above the other, and each fetches half of B for both."""

    name: ClassVar[str] = "tma_wgmma_pair"
    cluster: ClassVar[int] = 2
