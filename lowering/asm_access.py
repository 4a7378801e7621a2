"""What inline PTX does with an address that it is given (PTX ISA, data movement instructions)."""

from __future__ import annotations

import re

from .ir import mlir

_PLACE = re.compile(r"\[\s*\$(\d+)")
_STATEMENT = re.compile(r"[;\n]")
_BEFORE = re.compile(r"^[\s{}]*(?:@!?\S+\s+)?")  # a scope that opens or closes, a predicate


def asm_use(op: mlir.Operation, operand: int) -> tuple[str, str]:
    """The use of one operand: ``r``, ``w``, ``a`` or ``u`` for unknown, and the instruction.

    Both ``r`` and ``w`` may be there. An operand that stands in no brackets is passed on as a
    number. Where that becomes the address of a tensor map, the bulk copies that name the map say
    what it is for.
    """
    text = _text(op)
    outputs = sum(c.startswith("=") for c in _constraints(op))
    use = _in_brackets(text, str(outputs + operand))
    if use is not None:
        return use
    if "tensormap.replace" in text and "global_address" in text:
        kinds = _uses_of_map(op, text)
        if kinds and "u" not in kinds:
            return "".join(sorted(kinds)), "tensormap.replace"
    return "u", "llvm.inline_asm?"


def _in_brackets(text: str, place: str) -> tuple[str, str] | None:
    """What the first instruction that addresses memory by an operand does, if any does."""
    for statement in _STATEMENT.split(text):
        places = _PLACE.findall(statement)
        if place not in places:
            continue
        mnemonic = _BEFORE.sub("", statement).split()[0]
        if mnemonic.startswith("fence."):
            continue
        kind = _kind(mnemonic, first=places[0] == place)
        return kind, mnemonic if kind != "u" else f"{mnemonic}?"
    return None


def _uses_of_map(op: mlir.Operation, text: str) -> set[str]:
    """What the copies do through the map that ``op`` publishes; nothing where none can be seen."""
    published = next((s for s in _STATEMENT.split(text) if "cp_fenceproxy" in s), None)
    if published is None:
        return set()
    outputs = sum(c.startswith("=") for c in _constraints(op))
    address = op.operands[int(_PLACE.findall(published)[0]) - outputs]
    kinds = set()
    for use in address.uses:
        other = use.owner.operation
        if other == op or other.name != "llvm.inline_asm":
            continue
        outputs = sum(c.startswith("=") for c in _constraints(other))
        found = _in_brackets(_text(other), str(outputs + use.operand_number))
        if found is not None:
            kinds.add(found[0])
    return kinds


def _constraints(op: mlir.Operation) -> list[str]:
    return mlir.StringAttr(op.attributes["constraints"]).value.split(",")


def _text(op: mlir.Operation) -> str:
    return mlir.StringAttr(op.attributes["asm_string"]).value


def _kind(mnemonic: str, *, first: bool) -> str:
    family = mnemonic.partition(".")[0]
    if family in ("ld", "ldu", "prefetch", "prefetchu", "ldmatrix"):
        return "r"
    if family in ("st", "stmatrix"):
        return "w"
    if family in ("red", "atom") or ".reduce" in mnemonic or ".red." in mnemonic:
        return "a"
    if mnemonic.startswith("cp.async"):  # destination first, then source
        return "w" if first else "r"
    return "u"
