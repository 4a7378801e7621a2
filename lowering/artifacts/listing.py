"""Reads the back end's listing of AMD machine code: which instructions there are, how often."""

from __future__ import annotations

import re

_MATRIX = re.compile(r"^\s+v_(?:s?wmmac?|s?mfmac?)_\w+", re.M)


def count_matrix_instructions(listing: bytes) -> int:
    """Matrix instructions of a listing (RDNA 3/4 ISA guides: WMMA; CDNA 3: MFMA, SMFMAC)."""
    return len(_MATRIX.findall(listing.decode(errors="replace")))
