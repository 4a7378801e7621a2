"""Reads PTX text: target, version, launch bounds, matrix instructions, and a hash of its code."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

_BOUND = re.compile(r"^\.(?:maxntid|reqntid)\s+([\d, ]+)", re.M)
_MATRIX = re.compile(r"\b(?:mma\.sync|wmma\.mma|wgmma\.mma_async)\b")


@dataclass(frozen=True, kw_only=True)
class PtxReading:
    """What the module's directives say; None where a directive is absent."""

    target: str | None
    version: tuple[int, int] | None
    max_threads: tuple[int, ...] | None
    matrix_instructions: int


def read_ptx(code: bytes, entry: str | None = None) -> PtxReading:
    """Read the directives of one PTX module (PTX ISA, section 11); bounds are the entry's.

    Without a name, or with one that is not there, they are the first entry's.
    """
    text = code.decode(errors="replace")
    start = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(", text) if entry else None
    target = re.search(r"^\.target\s+(\w+)", text, re.M)
    version = re.search(r"^\.version\s+(\d+)\.(\d+)", text, re.M)
    bound = _BOUND.search(text, start.end() if start else 0)
    return PtxReading(
        target=target[1] if target else None,
        version=(int(version[1]), int(version[2])) if version else None,
        max_threads=tuple(int(v) for v in bound[1].split(",")) if bound else None,
        matrix_instructions=len(_MATRIX.findall(text)),
    )


def ptx_hash(code: bytes) -> str:
    """sha256 of the code without comments and source positions."""
    kept = [
        line
        for line in code.decode(errors="replace").splitlines()
        if line.strip() and not line.lstrip().startswith(("//", ".loc", ".file"))
    ]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
