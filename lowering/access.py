"""How each buffer of an emitted module is used, derived from its device code (origin: access[]).

Every binding of every kernel is followed through views, address arithmetic and loops to the ops
that touch memory; the host function says which of a caller's buffers stands at which binding. An op
that is not known here may read and write: the origin names it with a question mark.
"""

from __future__ import annotations

from collections.abc import Iterable

from dialects.manifest import Access, AccessMode

from .asm_access import asm_use
from .ir import mlir, operations, symbol, symbol_path

Use = tuple[str, str]  # 'r', 'w', 'a' (atomic update) or 'u' (unknown), and the op that does it
Binding = tuple[str, str, int]  # executable, entry, binding

_READS = {  # the memory is the first operand
    *("memref.load", "vector.load", "vector.maskedload", "vector.gather", "vector.transfer_read"),
    *("gpu.subgroup_mma_load_matrix", "llvm.load", "amdgpu.raw_buffer_load", "nvgpu.ldmatrix"),
    *("vector.expandload", "memref.prefetch"),
}
_WRITES = {  # and the number of the operand that is the memory; a value may be an address too
    "memref.store": 1,
    "vector.store": 1,
    "vector.maskedstore": 0,
    "vector.scatter": 0,
    "vector.compressstore": 0,
    "vector.transfer_write": 1,
    "gpu.subgroup_mma_store_matrix": 1,
    "llvm.store": 1,
    "amdgpu.raw_buffer_store": 1,
}
_COPIES = {  # source, destination
    "memref.copy": (0, 1),
    "nvgpu.device_async_copy": (2, 0),
    "amdgpu.gather_to_lds": (0, 2),
}
_ATOMICS = {  # and the number of the operand that is the memory
    "memref.atomic_rmw": 1,
    "memref.generic_atomic_rmw": 0,
    "llvm.atomicrmw": 0,
    "llvm.cmpxchg": 0,
    "amdgpu.raw_buffer_atomic_fadd": 1,
}
_PASSES_ON = ("arith.", "builtin.unrealized_conversion_cast", "llvm.mlir", "llvm.bitcast")
_POINTERS = {
    *("llvm.inttoptr", "llvm.ptrtoint", "llvm.getelementptr", "llvm.addrspacecast", "llvm.add"),
    *("llvm.sext", "llvm.zext", "llvm.trunc", "llvm.insertvalue", "llvm.extractvalue"),
}
_VIEWS = {
    *("memref.cast", "memref.subview", "memref.reinterpret_cast", "memref.view"),
    *("memref.expand_shape", "memref.collapse_shape", "memref.memory_space_cast"),
    *("memref.extract_aligned_pointer_as_index", "memref.extract_strided_metadata"),
    *("memref.assume_alignment", "amdgpu.fat_raw_buffer_cast", "vector.type_cast"),
}
_SAYS_NOTHING = {"memref.dim", "memref.dealloc", "arith.cmpi"}


def derive_access(emitted: mlir.Operation) -> tuple[Access, ...]:
    """The mode of each buffer that the host functions take, in the order of their arguments."""
    uses = _bindings(emitted)
    found: dict[str, set[Use]] = {}
    for op in operations(emitted):
        if op.name == "hal.tensor.import" and "name" in op.attributes:
            name = mlir.StringAttr(op.attributes["name"]).value
            mine = found.setdefault(name, set())
            for binding in _places(op.results[0], set()):
                mine |= uses.get(binding, {("u", "a kernel that is not here?")})
    return tuple(_access(name, mine) for name, mine in found.items())


def _access(name: str, uses: Iterable[Use]) -> Access:
    kinds = {kind for use, _ in uses for kind in use}
    modes: dict[frozenset[str], AccessMode] = {
        frozenset(): "none",
        frozenset("r"): "read",
        frozenset("w"): "write",
        frozenset("a"): "accumulate",
    }
    ops = ", ".join(sorted({op for _, op in uses}))
    mode = modes.get(frozenset(kinds), "readwrite")
    return Access(param=name, mode=mode, origin=f"device code: {ops or 'never used'}")


def _places(tensor: mlir.Value, seen: set[int]) -> Iterable[Binding]:
    """Where dispatches take a tensor; what they return in its place is followed too."""
    for use in tensor.uses:
        op = use.owner.operation
        if op.name != "flow.dispatch":
            continue
        buffers = [v for v in op.operands if str(v.type).startswith("tensor")]
        binding = next(i for i, v in enumerate(buffers) if v == tensor)
        for entry in mlir.ArrayAttr(op.attributes["entry_points"]):
            path = symbol_path(entry)
            yield path[0], path[-1], binding
        key = hash(op)
        if key not in seen and binding == len(buffers) - 1:  # written in place, the result is it
            for result in op.results:
                yield from _places(result, {*seen, key})


def _bindings(emitted: mlir.Operation) -> dict[Binding, set[Use]]:
    found: dict[Binding, set[Use]] = {}
    for executable in (o.operation for o in emitted.regions[0].blocks[0].operations):
        if not executable.name.startswith("hal.executable"):
            continue
        name = symbol(executable)
        for function in operations(executable):
            if function.name != "func.func":
                continue
            for op in operations(function):
                if op.name == "hal.interface.binding.subspan":
                    ordinal = mlir.IntegerAttr(op.attributes["binding"]).value
                    key = (name, symbol(function), ordinal)
                    found.setdefault(key, set()).update(_followed(op.results[0]))
    return found


def _followed(start: mlir.Value) -> set[Use]:
    """What becomes of a buffer or an address."""
    uses: set[Use] = set()
    pending = [start]
    seen: set[mlir.Value] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses:
            op = use.owner.operation
            said = _use(op, use.operand_number)
            if said is not None:
                uses.add(said)
            pending += _same_memory(op, use.operand_number)
    return uses


def _use(op: mlir.Operation, number: int) -> Use | None:
    name = op.name
    if name in _READS:
        return ("r", name) if number == 0 else None
    if name in _WRITES:
        return ("w", name) if number == _WRITES[name] else None
    if name in _COPIES:
        return ("r" if number == _COPIES[name][0] else "w", name)
    if name in _ATOMICS:
        return ("a", name) if number == _ATOMICS[name] else None
    if name == "llvm.inline_asm":
        return asm_use(op, number)
    if name.startswith("linalg."):
        return ("w" if number == len(op.operands) - 1 else "r", name)
    known = name in _VIEWS or name in _POINTERS or name in _SAYS_NOTHING
    if known or name.startswith(_PASSES_ON) or name.startswith("scf."):
        return None
    return ("u", f"{name}?")


def _same_memory(op: mlir.Operation, number: int) -> list[mlir.Value]:
    """Values that point to the same memory because ``op`` was given it as that operand."""
    name = op.name
    if name in _VIEWS or name in _POINTERS:
        return list(op.results)
    if name.startswith(_PASSES_ON) and name not in _SAYS_NOTHING:
        return list(op.results)
    if name == "scf.for" and number >= 3:  # lower bound, upper bound, step come first
        carried = number - 3
        return [op.results[carried], op.regions[0].blocks[0].arguments[carried + 1]]
    if name == "scf.yield":
        parent = op.parent.operation
        results = [parent.results[number]] if number < len(parent.results) else []
        if parent.name == "scf.for":
            results.append(parent.regions[0].blocks[0].arguments[number + 1])
        return results
    if name.startswith("scf."):
        arguments = [list(b.arguments) for r in op.regions for b in r.blocks]
        return [*op.results, *(a for block in arguments for a in block)]
    return []
