"""What is wrong of a loaded candidate: at awkward sizes, with gaps, beside and with NaN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from device_packs import padded_layouts
from dialects.block_formats import block_format
from dialects.manifest import KernelEntry
from dialects.member import Problem
from dialects.operands import Contraction, operand_span
from dialects.types import element_type
from runtime.arrays import Layout, dense_layouts, launch_constants
from runtime.dtypes import dtype_of
from runtime.executors import Launchable, Memory
from runtime.proof import make_case, prove
from runtime.reference import decoded, evaluate
from windows import Windows

AROUND = 1 << 14  # bytes before and after an operand: more than a tile's row, and aligned
NAN = 0xFF  # bytes of a NaN in every float type that is an operand, of -1 in an integer


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a launch left: the elements of the result, and how many bytes it wrote elsewhere."""

    elements: np.ndarray
    outside: int


def wrong(
    device: Memory, code: Launchable, kernel: KernelEntry, at: Sequence[Problem]
) -> list[str]:
    """What is wrong at each problem: exact, poisoned, operands unchanged."""
    found = []
    for problem in at:
        reason = prove(device, code, make_case(device, kernel, problem), whole=True)
        if reason is not None:
            found.append(f"{problem.text}: {reason}")
    return found


def wrong_when_strided(
    windows: Windows, code: Launchable, kernel: KernelEntry, at: Problem
) -> str | None:
    """What is wrong with NaN between the rows and around them: the result, or the memory there."""
    case = make_case(windows.device, kernel, at)
    written = launch(windows, code, kernel, at, padded_layouts(kernel, at), case.host)
    expected = evaluate(kernel.contraction, case.values).astype(written.elements.dtype)
    if not np.array_equal(written.elements, expected):
        return f"{at.text}: wrong with strides"
    return f"{at.text}: wrote {written.outside} bytes outside" if written.outside else None


def depends_on_surroundings(
    windows: Windows,
    code: Launchable,
    kernel: KernelEntry,
    at: Problem,
    layouts: Sequence[Layout],
) -> str | None:
    """Whether NaN before, between and behind the rows of operands changes a bit of the result.

    The operands are normal floats, whose sums show any change.
    """
    host = make_case(windows.device, kernel, at, integers=False).host
    clean, beside = (launch(windows, code, kernel, at, layouts, host, fill) for fill in (0, NAN))
    if clean.elements.tobytes() != beside.elements.tobytes():
        return f"{at.text}: depends on what lies around its operands"
    outside = clean.outside + beside.outside
    return f"{at.text}: wrote {outside} bytes outside" if outside else None


def spreads(windows: Windows, code: Launchable, kernel: KernelEntry, at: Problem) -> list[str]:
    """Where a NaN and an infinity of one row of A or column of B show elsewhere, or not at all.

    All other elements are small integers, so that the rest of the result is exact.
    """
    contraction = kernel.contraction
    dtype = dtype_of(contraction.c.type)
    clean = make_case(windows.device, kernel, at).host
    found = []
    for where, host in _spoiled(contraction, clean):
        with np.errstate(all="ignore"):
            expected = evaluate(contraction, decoded(contraction, host)).astype(dtype)
        got = launch(windows, code, kernel, at, dense_layouts(kernel, at), host).elements
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        if not same.all():
            place = tuple(int(i) for i in np.argwhere(~same)[0])
            found.append(
                f"{at.text}: NaN in {where}: {np.count_nonzero(~same)} elements differ, first "
                f"{place}: {got[place]!s} for {expected[place]!s}"
            )
    return found


def is_float(kernel: KernelEntry) -> bool:
    """Whether a NaN can be in an operand and in the result."""
    types = (kernel.contraction.a.type, kernel.contraction.b.type, kernel.contraction.c.type)
    return all(element_type(t).kind == "float" for t in types)


def launch(
    windows: Windows,
    code: Launchable,
    kernel: KernelEntry,
    at: Problem,
    layouts: Sequence[Layout],
    host: Mapping[str, np.ndarray],
    fill: int = NAN,
) -> Written:
    """One call on operands with ``fill`` bytes before, between and behind their rows."""
    device = windows.device
    buffers, memories = [], []
    for argument, layout in zip(kernel.args, layouts, strict=True):
        memory = _surrounded(host.get(argument.name), layout, fill)
        span = memory.nbytes - 2 * AROUND
        memories.append((memory, device.upload(memory)))
        buffers.append(windows.part(memories[-1][1], AROUND, span))
    nbytes = code.record.workspace_bytes(at.values(), 1)
    if nbytes:
        buffers.append(device.upload(np.full(nbytes, fill, np.uint8)))
    code.run(buffers, launch_constants(at, layouts))
    before, result = memories[-1]
    after = device.download(result, before.shape, before.dtype)
    elements = _elements(after, layouts[-1]).copy()
    for memory in (before, after):
        _elements(memory, layouts[-1])[...] = 0
    return Written(elements=elements, outside=int(np.count_nonzero(before != after)))


def _surrounded(array: np.ndarray | None, layout: Layout, fill: int) -> np.ndarray:
    """The bytes of an operand in its layout; a result that is not read holds NaN."""
    span = operand_span(layout.shape, layout.strides) * dtype_of(layout.type).itemsize
    memory = np.full(AROUND + -(-span // 4) * 4 + AROUND, fill, np.uint8)
    elements = _elements(memory, layout)
    if array is None:
        poison = np.full(elements.dtype.itemsize, NAN, np.uint8).view(elements.dtype)
        elements[...] = poison
    else:
        elements[...] = array
    return memory


def _elements(memory: np.ndarray, layout: Layout) -> np.ndarray:
    """The elements of an operand in the bytes around it."""
    flat = memory[AROUND:].view(dtype_of(layout.type))
    strides = [s * flat.itemsize for s in (*layout.strides, 1)]
    return np.lib.stride_tricks.as_strided(flat, layout.shape, strides)


def _spoiled(
    contraction: Contraction, clean: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Operands with a NaN first and an infinity last along K, in the outermost rows and columns."""
    for operand, transposed, what in (
        (contraction.a, contraction.transposed_a, "row"),
        (contraction.b, not contraction.transposed_b, "column"),
    ):
        stored = clean[operand.name]
        count = stored.shape[-1] if transposed else stored.shape[-2]
        for place in sorted({0, count - 1}):
            array = stored.copy()
            matrix = array if array.ndim == 2 else array[-1]
            line = (matrix.swapaxes(0, 1) if transposed else matrix)[place]
            _spoil(line, operand.source)
            yield f"{what} {place} of {operand.name}", {**clean, operand.name: array}


def _spoil(line: np.ndarray, source: str | None) -> None:
    """A NaN first and an infinity last; in a block format, as scales of those blocks."""
    if source is not None:
        blocks = line.reshape(-1, block_format(source).bytes)[:, :2]
        blocks[-1] = np.array([np.inf], np.float16).view(np.uint8)
        blocks[0] = np.array([np.nan], np.float16).view(np.uint8)
        return
    line[-1] = np.inf  # a NaN too where the type has no infinity
    line[0] = np.nan
