"""What inline PTX does with an address that it is given (PTX ISA, data movement instructions)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .ir import mlir

_PLACE = re.compile(r"\[\s*(\$?\w+)")
_NAME = re.compile(r"\$?\w+")
_ADDRESS_OF_ADDRESS = ("add", "sub", "mov")  # of 64 bits, what makes one of another
_STATEMENT = re.compile(r"[;\n]")
_BEFORE = re.compile(r"^[\s{}]*(?:@!?\S+\s+)?")  # a scope that opens or closes, a predicate


def asm_use(op: mlir.Operation, operand: int) -> tuple[str, str] | None:
    """The use of one operand: ``r``, ``w``, ``a`` or ``u`` for unknown, and the instruction.

    Both ``r`` and ``w`` may be there; None where it is only compared. An operand that stands in no
    brackets is passed on as a number. Where that becomes the address of a tensor map, the bulk
    copies that name the map say what it is for.
    """
    text = _text(op)
    place = f"${_outputs(op) + operand}"
    use = _in_brackets(text, place)
    if use is not None:
        return use
    if _is_compared(text, place):
        return None
    if "tensormap.replace" in text and "global_address" in text:
        kinds = _uses_of_map(op)
        if kinds and "u" not in kinds:
            return "".join(sorted(kinds)), "tensormap.replace"
    return "u", "llvm.inline_asm?"


def _is_compared(text: str, place: str) -> bool:
    """Whether every instruction that names the operand is a comparison."""
    bodies = [_BEFORE.sub("", s) for s in _STATEMENT.split(text) if place in _NAME.findall(s)]
    return bool(bodies) and all(body.startswith("setp.") for body in bodies)


def _in_brackets(text: str, place: str) -> tuple[str, str] | None:
    """What the first instruction that addresses memory by an operand does, if any does.

    Addresses that the text makes of it are the operand's too.
    """
    held = {place}
    for statement in _STATEMENT.split(text):
        mnemonic, _, rest = _BEFORE.sub("", statement).strip().partition(" ")
        places = _PLACE.findall(statement)
        if held.isdisjoint(places):
            made, *of = _NAME.findall(rest) or [""]
            family, wide = mnemonic.partition(".")[0], mnemonic.endswith("64")
            if wide and family in _ADDRESS_OF_ADDRESS and not held.isdisjoint(of):
                held.add(made)
            continue
        if mnemonic.startswith("fence."):
            continue
        kind = _kind(mnemonic, first=places[0] in held)
        return kind, mnemonic if kind != "u" else f"{mnemonic}?"
    return None


def _uses_of_map(op: mlir.Operation) -> set[str]:
    """What copies do through the map that ``op`` builds; nothing where none can be seen.

    It is built in workgroup memory and published from there.
    """
    built = next(s for s in _STATEMENT.split(_text(op)) if "tensormap.replace" in s)
    shared = op.operands[int(_PLACE.findall(built)[0][1:]) - _outputs(op)]
    kinds = set()
    for publisher, place in _other_uses(op, shared):
        source = _in_brackets(_text(publisher), f"${place}")
        if source is None or "cp_fenceproxy" not in source[1]:
            continue
        published = next(s for s in _STATEMENT.split(_text(publisher)) if "cp_fenceproxy" in s)
        number = int(_PLACE.findall(published)[0][1:])
        address = publisher.operands[number - _outputs(publisher)]
        for other, at in _other_uses(publisher, address):
            found = _in_brackets(_text(other), f"${at}")
            if found is not None:
                kinds.add(found[0])
    return kinds


def _other_uses(op: mlir.Operation, value: mlir.Value) -> Iterator[tuple[mlir.Operation, int]]:
    """Other inline PTX that is given a value, and the number by which it names it."""
    for use in value.uses:
        other = use.owner.operation
        if other != op and other.name == "llvm.inline_asm":
            yield other, _outputs(other) + use.operand_number


def _outputs(op: mlir.Operation) -> int:
    constraints = mlir.StringAttr(op.attributes["constraints"]).value.split(",")
    return sum(c.startswith("=") for c in constraints)


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
