"""What inline PTX does with an address that it is given (PTX ISA, data movement instructions)."""

from __future__ import annotations

import re

from .ir import mlir, operations

_PLACE = re.compile(r"\[\s*\$(\d+)")
_STATEMENT = re.compile(r"[;\n]")
_BEFORE = re.compile(r"^[\s{}]*(?:@!?\S+\s+)?")  # a scope that opens or closes, a predicate


def asm_use(op: mlir.Operation, operand: int) -> tuple[str, str]:
    """The use of one operand: ``r``, ``w``, ``a`` or ``u`` for unknown, and the instruction.

    An operand that stands in no brackets is passed on as a number. Where that becomes the address
    of a tensor map, the bulk copies of the same kernel say what the map is for.
    """
    text = _text(op)
    constraints = mlir.StringAttr(op.attributes["constraints"]).value.split(",")
    outputs = sum(c.startswith("=") for c in constraints)
    place = str(outputs + operand)
    for statement in _STATEMENT.split(text):
        places = _PLACE.findall(statement)
        if place not in places:
            continue
        mnemonic = _BEFORE.sub("", statement).split()[0]
        kind = _kind(mnemonic, first=places[0] == place)
        return kind, mnemonic if kind != "u" else f"{mnemonic}?"
    if "tensormap.replace" in text and "global_address" in text and _only_loads(op):
        return "r", "tensormap.replace"
    return "u", "llvm.inline_asm?"


def _text(op: mlir.Operation) -> str:
    return mlir.StringAttr(op.attributes["asm_string"]).value


def _only_loads(op: mlir.Operation) -> bool:
    """Whether all bulk copies of the kernel that ``op`` stands in go into workgroup memory."""
    function = op.parent.operation
    while function.name != "func.func":
        function = function.parent.operation
    texts = [_text(o) for o in operations(function) if o.name == "llvm.inline_asm"]
    copies = [t for t in texts if ".async.bulk" in t and "commit" not in t and "wait" not in t]
    return bool(copies) and not any(".global.shared" in t or "reduce" in t for t in copies)


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
