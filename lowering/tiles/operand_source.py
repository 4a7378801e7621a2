"""Where the elements of an operand come from: the ``stage(k)`` seam of every GPU body.

A body copies an operand in runs of consecutive elements along its contiguous axis. A source binds
the operand's buffer once, then fetches runs (global loads, and nothing that waits for them) and
decodes what it has fetched into the compute type, so that a body can put its products in between.
Dense operands come element by element or in up to four 32-bit words, block formats in words with
one scale a run. Transposes, batches and leading dimensions are all in the indices that a body
passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dialects.block_formats import Q8_0

from .block_source import Q8Blocks
from .dense_source import DenseElements, DensePart, DenseWords
from .interface import KernelValues
from .kernel_text import Index, KernelText
from .staging import Bound, Fetched, Staging, copied_contraction

__all__ = ["DECODED", "Fetched", "OperandSource", "Staging", "bind_source", "copied_contraction"]

DECODED = (Q8_0.name,)  # block formats that :func:`bind_source` serves


class OperandSource(Protocol):
    """One bound operand. ``run`` is how many elements come at a time."""

    run: int

    def fetch(self, indices: Sequence[Index], inside: str) -> Fetched:
        """Load the run that starts at ``indices``, one for each of the operand's dims.

        The last index must be a multiple of ``run``. Not ``inside``, some valid address is read.
        """
        ...

    def decode(self, fetched: Fetched) -> list[str]:
        """The run's elements in the compute type; zeros where it was not inside."""
        ...


def bind_source(
    ir: KernelText,
    staging: Staging,
    *,
    layout: str,
    binding: int,
    values: KernelValues,
    type_name: str,
) -> OperandSource:
    """Bind the buffer of an operand; its elements come as ``type_name``."""
    bound = Bound(
        ir=ir, staging=staging, layout=layout, binding=binding, values=values, type_name=type_name
    )
    if staging.operand.source is not None:
        return Q8Blocks(bound)
    if staging.run > 1:
        return DenseWords(bound)
    return DensePart(bound) if staging.in_words else DenseElements(bound)
