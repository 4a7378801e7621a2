"""Reads PTX text: target, version, launch bounds, instructions of interest, a hash of its code."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass

_BOUND = re.compile(r"^\.(?:maxntid|reqntid)\s+([\d, ]+)", re.M)
_MATRIX = re.compile(r"\b(?:mma\.sync|wmma\.mma|wgmma\.mma_async)\b")
_ALIGNED = re.compile(r"\b([a-z][\w.:]*\.aligned)\b")  # as the writer of kernels counts them
_ENTRY = re.compile(r"(\.entry\s+)([\w$]+)(?=\s*\()")
_FUNCTION = re.compile(r"^(?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)\s*\(.*?^\}\n?", re.M | re.S)
_PARAMETER = re.compile(r"(?<![\w$])([\w$]+)(?=_param_\d+(?![\w$]))")


@dataclass(frozen=True, kw_only=True)
class PtxReading:
    """What the module's directives say; None where a directive is absent."""

    target: str | None
    version: tuple[int, int] | None
    max_threads: tuple[int, ...] | None
    min_resident: int | None
    max_registers: int | None
    matrix_instructions: int
    aligned: dict[str, int]


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
        min_resident=_directive(text, "minnctapersm"),
        max_registers=_directive(text, "maxnreg"),
        matrix_instructions=len(_MATRIX.findall(text)),
        aligned=dict(sorted(Counter(_ALIGNED.findall(text)).items())),
    )


def ptx_entries(code: bytes) -> tuple[str, ...]:
    """The names of a module's kernels."""
    return tuple(name for _, name in _ENTRY.findall(code.decode(errors="replace")))


def only_entry(code: bytes, entry: str) -> bytes:
    """The module without its other kernels; what they share is kept."""
    text = code.decode(errors="replace")
    return _FUNCTION.sub(lambda found: found[0] if found[1] == entry else "", text).encode()


def _directive(text: str, name: str) -> int | None:
    found = re.search(rf"^\.{name}\s+(\d+)", text, re.M)
    return int(found[1]) if found else None


def ptx_hash(code: bytes) -> str:
    """sha256 of the code without comments, source positions, and what the kernels are called."""
    kept = "\n".join(
        line
        for line in code.decode(errors="replace").splitlines()
        if line.strip() and not line.lstrip().startswith(("//", ".loc", ".file"))
    )
    names = {name: f"kernel{i}" for i, (_, name) in enumerate(_ENTRY.findall(kept))}
    kept = _ENTRY.sub(lambda found: found[1] + names[found[2]], kept)
    kept = _PARAMETER.sub(lambda found: names.get(found[1], found[1]), kept)
    return hashlib.sha256(kept.encode()).hexdigest()
