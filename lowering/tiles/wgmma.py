"""The body for operands that threads must copy: cp.async + wgmma.

As the TMA body, but a producer warpgroup fills the stages with copies of 16, 8 or 4 bytes, the
widest that the call's addresses and strides allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .cp_async_kernel import CpAsyncKernel
from .wgmma_body import WgmmaBodyBase
from .wgmma_kernel import WgmmaKernel


@dataclass(frozen=True, kw_only=True)
class WgmmaBody(WgmmaBodyBase):
    """A producer warpgroup copies; C is stored at any alignment."""

    name: ClassVar[str] = "wgmma"
    kernel: ClassVar[type[WgmmaKernel]] = CpAsyncKernel
    copy_bytes: ClassVar[int] = 4
    store_bytes: ClassVar[int] = 1
