"""Which lane holds what of a matrix instruction's operands, as IREE's compiler answers it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import iree_gpu as untyped_iree_gpu

from emulated_memory import EmulatorError

iree_gpu: Any = untyped_iree_gpu  # what its binary part adds has no types
_SPELT = {"f32": "F32", "i32": "I32", "f16": "F16", "bf16": "BF16", "i8": "I8"}
LHS, RHS, ACC = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Held:
    """Rows and columns of each lane's elements, (wave, elements) each; ``step`` in its vector.

    ``shape`` is that of the matrix.
    """

    rows: np.ndarray
    columns: np.ndarray
    shape: tuple[int, int]
    step: int = 1

    def gather(self, value: np.ndarray) -> np.ndarray:
        """(waves, rows, columns) of (waves, lanes, elements); copies of one element agree."""
        held = value[:, :, :: self.step]
        if held.shape[1:] != self.rows.shape:
            raise EmulatorError(f"lanes hold {held.shape[1:]}, the instruction {self.rows.shape}")
        result = np.zeros((len(value), *self.shape), value.dtype)
        result[:, self.rows, self.columns] = held
        if result[:, self.rows, self.columns].tobytes() != np.ascontiguousarray(held).tobytes():
            raise EmulatorError("lanes that hold the same element disagree on it")
        return result

    def scatter(self, matrix: np.ndarray, old: np.ndarray) -> np.ndarray:
        """The lanes' vectors of a result; elements between are what they were."""
        result = old.copy()
        result[:, :, :: self.step] = matrix[:, self.rows, self.columns]
        return result


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """The three operands of an instruction."""

    a: Held
    b: Held
    c: Held


def intrinsics() -> dict[str, Any]:
    """IREE's names of the instructions that it knows."""
    return {
        name: getattr(iree_gpu.MMAIntrinsic, name)
        for name in dir(iree_gpu.MMAIntrinsic)
        if name.startswith(("WMMAR3_", "WMMAR4_", "MFMA_"))
    }


@functools.cache
def lanes_of(op: str, shape: Sequence[int], acc: str, operand: str, wave: int) -> Lanes:
    """The lanes of one ``amdgpu`` op by its types; RDNA 3 and 4 differ in the operands' length."""
    a_type, a_length = _element(operand)
    acc_type, acc_length = _element(acc)
    m, n, k = shape
    if op == "amdgpu.mfma":
        family, step = "MFMA", 1
    else:
        family = "WMMAR3" if a_length == k else "WMMAR4"
        step = acc_length * wave // (m * n)
    name = f"{family}_{_SPELT[acc_type]}_{m}x{n}x{k}_{_SPELT[a_type]}"
    return lanes_named(name, wave, step)


def _element(text: str) -> tuple[str, int]:
    """Element type and length of a vector type; a scalar is one element."""
    if not text.startswith("vector<"):
        return text, 1
    length, _, element = text[len("vector<") : -1].partition("x")
    return element, int(length)


def lanes_named(name: str, wave: int, step: int = 1) -> Lanes:
    """The lanes of the instruction that IREE calls so."""
    known = intrinsics()
    if name not in known:
        raise EmulatorError(f"no instruction is called {name}")
    with ir.Context():
        attribute = iree_gpu.MMAIntrinsicAttr.get(known[name])
        a, b, c = (
            _held(iree_gpu.get_single_subgroup_layout(attribute, which), wave)
            for which in (LHS, RHS, ACC)
        )
    return Lanes(a=a, b=b, c=Held(rows=c.rows, columns=c.columns, shape=c.shape, step=step))


def _held(layout: Any, wave: int) -> Held:
    """Along each axis outer runs, then threads, then neighbours; the last axis is fastest."""
    lane = np.arange(wave)[:, None]
    counts = [o * e for o, e in zip(layout.outer, layout.element, strict=True)]
    number = np.arange(np.prod(counts))[None, :]
    outer_number, element_number = divmod(number, int(np.prod(layout.element)))
    places, shape = [], []
    for axis in (0, 1):
        outer, thread, element = (
            part[axis] for part in (layout.outer, layout.thread, layout.element)
        )
        below_outer = int(np.prod(layout.outer[axis + 1 :]))
        below_element = int(np.prod(layout.element[axis + 1 :]))
        stride = layout.tstrides[axis]
        at = (lane // stride) % thread if stride else lane * 0
        o = outer_number // below_outer % outer
        e = element_number // below_element % element
        places.append(np.broadcast_to((o * thread + at) * element + e, (wave, number.size)))
        shape.append(outer * thread * element)
    return Held(rows=places[0], columns=places[1], shape=(shape[0], shape[1]))
