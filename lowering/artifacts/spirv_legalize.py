"""Makes the compiler's SPIR-V valid: the version it is written in, and the memory model.

IREE 3.13 names 1.3 in modules that use what came with 1.4 (``NoSignedWrap``, entry points that list
every global), and declares cooperative matrices without the Vulkan memory model that
SPV_KHR_cooperative_matrix demands. Under that model an access to workgroup memory is private unless
it says otherwise, so each one gains ``NonPrivatePointer``, and each barrier makes writes available
and visible (SPIR-V 1.6, section 2.18). A product of signed 8-bit operands leaves its sum unsigned,
which is another config than the one that drivers list, and wrong on some: the sum becomes signed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from .spirv import COOPERATIVE_MULTIPLY_ADD, spirv_instructions, spirv_words

_EXTENSION, _MEMORY_MODEL, _CAPABILITY = 10, 14, 17
_TYPE_POINTER, _CONSTANT, _FUNCTION, _VARIABLE = 32, 43, 54, 59
_LOAD, _STORE, _ACCESS_CHAIN, _IN_BOUNDS_ACCESS_CHAIN = 61, 62, 65, 66
_DECORATE, _CONTROL_BARRIER = 71, 224
_COOP_LOAD, _COOP_STORE = 4457, 4458
_VERSION_1_4 = 0x00010400
_COOPERATIVE_MATRIX, _VULKAN_MODEL_CAPABILITY = 6022, 5345
_VULKAN_MODEL = 3
_WORKGROUP = 4
_NON_PRIVATE = 0x20
_A_OR_B_SIGNED, _SUM_SIGNED = 0x1 | 0x2, 0x4 | 0x8  # Cooperative Matrix Operands, section 3.59
_MAKE_AVAILABLE_VISIBLE = 0x2000 | 0x4000

Instruction = tuple[int, tuple[int, ...]]
REVISION = 2  # part of the compile cache's key: raise it when the amended code changes


def legalize_spirv(code: bytes, *, where: str) -> bytes:
    """The module with what the specification demands added; valid modules come back as they are.

    Raises:
        FormatError: no SPIR-V, or cut off.
    """
    words = spirv_words(code, where=where)
    body = list(spirv_instructions(words, where=where))
    extensions: list[str] = []
    header = list(words[:5])
    # entry points list every global they use, which is the form since 1.4; so are the decorations
    header[1] = max(header[1], _VERSION_1_4)
    capabilities = {a[0] for op, a in body if op == _CAPABILITY}
    if _COOPERATIVE_MATRIX in capabilities and _VULKAN_MODEL_CAPABILITY not in capabilities:
        extensions.append("SPV_KHR_vulkan_memory_model")
        body = _VulkanModel(body, header).rewritten()
    present = {_text(a) for op, a in body if op == _EXTENSION}
    added = [(_EXTENSION, _string(e)) for e in extensions if e not in present]
    last = max((i for i, (op, _) in enumerate(body) if op == _CAPABILITY), default=-1)
    return _assemble(header, [*body[: last + 1], *added, *body[last + 1 :]])


class _VulkanModel:
    """Rewrites a module to the Vulkan memory model."""

    def __init__(self, body: list[Instruction], header: list[int]) -> None:
        self._body, self._header = body, header
        self._shared_types = {a[0] for op, a in body if op == _TYPE_POINTER and a[1] == _WORKGROUP}
        self._shared = {
            a[1]
            for op, a in body
            if op in (_VARIABLE, _ACCESS_CHAIN, _IN_BOUNDS_ACCESS_CHAIN)
            and a[0] in self._shared_types
        }
        self._constants = {a[1]: (a[0], a[2]) for op, a in body if op == _CONSTANT}
        self._semantics: dict[int, int] = {}
        self._new: list[Instruction] = []

    def rewritten(self) -> list[Instruction]:
        """The module's instructions under the new model."""
        result = [self._instruction(op, a) for op, a in self._body]
        first = next(i for i, (op, _) in enumerate(result) if op == _CAPABILITY)
        result.insert(first, (_CAPABILITY, (_VULKAN_MODEL_CAPABILITY,)))
        start = next(i for i, (op, _) in enumerate(result) if op == _FUNCTION)
        return [*result[:start], *self._new, *result[start:]]

    def _instruction(self, op: int, a: tuple[int, ...]) -> Instruction:
        if op == _MEMORY_MODEL:
            return op, (a[0], _VULKAN_MODEL)
        if op == _CONTROL_BARRIER:
            return op, (a[0], a[1], self._visible(a[2]))
        # (opcode, operand that is the pointer, operands before the memory operands)
        if op == COOPERATIVE_MULTIPLY_ADD and len(a) > 5 and a[5] & _A_OR_B_SIGNED:
            return op, (*a[:5], a[5] | _SUM_SIGNED)
        for access, pointer, fixed in (
            (_LOAD, 2, 3),
            (_STORE, 0, 2),
            (_COOP_LOAD, 2, 5),
            (_COOP_STORE, 0, 4),
        ):
            if op == access and a[pointer] in self._shared:
                return op, _non_private(a, fixed)
        return op, a

    def _visible(self, semantics: int) -> int:
        """The id of the same barrier semantics that also make writes available and visible."""
        if semantics not in self._semantics:
            type_, value = self._constants[semantics]
            fresh = self._header[3]
            self._header[3] += 1
            self._new.append((_CONSTANT, (type_, fresh, value | _MAKE_AVAILABLE_VISIBLE)))
            self._semantics[semantics] = fresh
        return self._semantics[semantics]


def _non_private(operands: tuple[int, ...], fixed: int) -> tuple[int, ...]:
    if len(operands) == fixed:
        return (*operands, _NON_PRIVATE)
    return (*operands[:fixed], operands[fixed] | _NON_PRIVATE, *operands[fixed + 1 :])


def _string(text: str) -> tuple[int, ...]:
    data = text.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


def _text(words: tuple[int, ...]) -> str:
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode(errors="replace")


def _assemble(header: list[int], body: Iterable[Instruction]) -> bytes:
    words = list(header)
    for op, operands in body:
        words += [(len(operands) + 1) << 16 | op, *operands]
    return struct.pack(f"<{len(words)}I", *words)
