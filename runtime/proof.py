"""Correct before fast: exact checks of a candidate on small integers (design section 7).

Operands hold small integers, so that every sum is exact and the right answer is one value. The
output, the workspace, the padding between rows and a guard behind each buffer are poisoned first,
so that what nobody wrote shows, as does what somebody read or wrote outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from dialects.block_formats import Q8_0, block_format
from dialects.errors import Error, ProblemError
from dialects.expressions import ceildiv
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem
from dialects.rules import alignment_needs
from dialects.types import element_type

from .arrays import Layout, contiguous, dense_layouts, launch_constants, span_bytes
from .blocks import pack_q8_0
from .dtypes import dtype_of
from .executors import Launchable, Memory
from .oracle import Oracle
from .reference import decoded

PATTERN = 8191  # a prime: rows of any other length start at ever new places of the pattern
LARGEST = 2  # magnitude of the integers
GUARD = 256  # poisoned bytes behind each buffer
PADDING = 6  # poisoned elements between rows, where a proof pads them
POISON = 0xFF  # NaN as a float, -1 as an integer
REPEATS = 3  # launches of the timed program that are proven on a small problem
REPEATS_AT_SIZE = 2


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem with operands on host and device, to be launched in ``splits`` slices of K.

    ``host`` are the operands as a caller passes them, ``values`` what a kernel makes of them: block
    formats decoded. ``landing`` is where results are read to, over and over: fresh memory costs
    more than the copy. Only with small ``integers`` is the right answer one value.
    """

    kernel: KernelEntry
    problem: Problem
    layouts: tuple[Layout, ...]
    host: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    inputs: tuple[Any, ...]
    result: Any
    start: np.ndarray | None
    oracle: Oracle
    landing: np.ndarray
    splits: int = 1
    integers: bool = True

    @property
    def constants(self) -> tuple[int, ...]:
        """Sizes, strides, then the slices of a split."""
        return launch_constants(self.problem, self.layouts, self.splits)

    def buffers(self, workspace: Any | None) -> tuple[Any, ...]:
        """Buffers in launch order."""
        tail = () if workspace is None else (workspace,)
        return (*self.inputs, self.result, *tail)


def make_case(
    device: Memory,
    kernel: KernelEntry,
    problem: Problem,
    *,
    integers: bool = True,
    seed: int = 0,
    layouts: tuple[Layout, ...] | None = None,
) -> Case:
    """Operands for a problem: small integers for proofs, normal floats otherwise.

    ``layouts`` None is for contiguous operands.

    Raises:
        ProblemError: a size that is no whole number of an operand's blocks.
    """
    _check_blocks(kernel, problem)
    host: dict[str, np.ndarray] = {}
    buffers = []
    rng = np.random.default_rng(seed)
    density = _density(kernel, problem)
    layouts = layouts or dense_layouts(kernel, problem)
    *inputs, result = layouts
    for argument, layout in zip(kernel.inputs, inputs, strict=True):
        if argument.source is not None:
            array = _blocks(rng, layout, argument.source, density if integers else None)
        else:
            array = _integers(rng, layout, density) if integers else _normal(rng, layout)
        host[argument.name] = array
        buffers.append(_placed(device, array, layout))
    start = None
    if kernel.result.mode == "readwrite":
        start = host[kernel.result.name] = _integers(rng, result, density)
    values = decoded(kernel.contraction, host)
    return Case(
        kernel=kernel,
        problem=problem,
        layouts=layouts,
        host=host,
        values=values,
        inputs=tuple(buffers),
        result=device.allocate(span_bytes(result) + GUARD),
        landing=np.empty(span_bytes(result) + GUARD, np.uint8),
        start=start,
        oracle=Oracle(kernel.contraction, values, period=PATTERN if integers else None),
        integers=integers,
    )


def case_again(device: Memory, case: Case) -> Case:
    """The same operands in further buffers of the device; nothing is made anew on the host."""
    *inputs, result = case.layouts
    arrays = [case.host[a.name] for a in case.kernel.inputs]
    return replace(
        case,
        inputs=tuple(_placed(device, a, at) for a, at in zip(arrays, inputs, strict=True)),
        result=device.allocate(span_bytes(result) + GUARD),
    )


def _check_blocks(kernel: KernelEntry, problem: Problem) -> None:
    values = problem.values()
    for argument in kernel.args:
        if argument.source is None:
            continue
        size, elements = values[argument.dims[-1]], block_format(argument.source).elements
        if size % elements:
            raise ProblemError(
                f"kernel '{kernel.kernel}': {argument.dims[-1]} = {size} is no multiple of "
                f"{elements}, '{argument.name}' holds whole {argument.source} blocks"
            )


def padded_layouts(kernel: KernelEntry, record: Record, problem: Problem) -> tuple[Layout, ...]:
    """Layouts with padding between rows, as little as the record's copies allow."""
    if record.needs.contiguous:
        return dense_layouts(kernel, problem)
    need = record.needs.alignment or {}
    layouts = []
    for argument, dense in zip(kernel.args, dense_layouts(kernel, problem), strict=True):
        strides: list[int] = []
        extent = dense.shape[-1] + PADDING
        for axis in range(len(dense.shape) - 2, -1, -1):
            unit = need.get(f"{argument.name}.{axis}", 1)
            strides.insert(0, ceildiv(extent, unit) * unit)
            extent = strides[0] * dense.shape[axis]
        layouts.append(replace(dense, strides=tuple(strides)))
    return tuple(layouts)


def _placed(device: Memory, array: np.ndarray, layout: Layout) -> Any:
    """A buffer with the elements at their strides, poison between and behind them."""
    size = span_bytes(layout) + GUARD
    if _is_dense(layout):
        return device.upload(array, size, fill=POISON)
    return device.upload(_spread(array, layout))


def _is_dense(layout: Layout) -> bool:
    return layout.strides == contiguous(layout.type, layout.shape).strides


def _spread(array: np.ndarray, layout: Layout) -> np.ndarray:
    memory = np.full(span_bytes(layout) + GUARD, POISON, np.uint8)
    _elements(memory, layout)[...] = array
    return memory


def _elements(memory: np.ndarray, layout: Layout) -> np.ndarray:
    """The elements of an operand in the bytes of its buffer."""
    dtype = dtype_of(layout.type)
    strides = [s * dtype.itemsize for s in (*layout.strides, 1)]
    return np.lib.stride_tricks.as_strided(memory.view(dtype), layout.shape, strides)


def _density(kernel: KernelEntry, problem: Problem) -> float:
    """Share of elements that may be other than 0, so that every sum is exact in its accumulator.

    Only narrow accumulators and very long sums need zeros.
    """
    products = kernel.contraction.products
    terms = max(problem.values()[kernel.contraction.k], 1) * len(products)
    types = [p.accumulator for p in products if element_type(p.accumulator).kind == "float"]
    bits = min((ml_dtypes.finfo(dtype_of(t)).nmant + 1 for t in types), default=None)
    if bits is None:
        return 1.0
    return min(1.0, (2.0**bits / (4 * LARGEST**2 * terms)) ** 0.5)


def _integers(rng: np.random.Generator, layout: Layout, density: float) -> np.ndarray:
    least = 0 if element_type(layout.type).kind == "unsigned" else -LARGEST
    pattern = rng.integers(least, LARGEST + 1, PATTERN, np.int8)
    pattern *= rng.random(PATTERN) < density
    return np.resize(pattern.astype(np.float32).astype(dtype_of(layout.type)), layout.shape)


def _blocks(
    rng: np.random.Generator, layout: Layout, source: str, density: float | None
) -> np.ndarray:
    """Raw blocks whose elements are small integers, or of normal size where ``density`` is None.

    Scales are powers of two that differ from block to block, so that a block which is decoded with
    another one's shows.
    """
    assert source == Q8_0.name
    blocks = (*layout.shape[:-1], layout.shape[-1] // Q8_0.bytes)
    elements = (*layout.shape[:-1], blocks[-1] * Q8_0.elements)
    if density is None:
        quants = rng.integers(-127, 128, elements, np.int8)
        return pack_q8_0(quants, rng.uniform(0.5, 2.0, blocks) / 64)
    least = contiguous("i8", elements)
    quants = _integers(rng, least, density)
    scales = np.resize(2.0 ** rng.integers(-1, 1, PATTERN), blocks)
    return pack_q8_0((quants // 2 * 2).astype(np.int8), scales)


def _normal(rng: np.random.Generator, layout: Layout) -> np.ndarray:
    dtype = dtype_of(layout.type)
    if element_type(layout.type).kind != "float":
        return rng.integers(0, 100, layout.shape).astype(dtype)
    return rng.standard_normal(layout.shape, np.float32).astype(dtype)


def awkward_problem(kernel: KernelEntry, record: Record, splits: int = 1) -> Problem:
    """A small problem that divides no tile: more than one, ragged on every side.

    With ``splits`` each slice has a block of K, and the last one more. Sizes are rounded up to what
    the record's copies need; others it never meets.
    """
    tile, need = record.tile, alignment_needs(kernel, record)
    blocks = splits * record.split.k_block if record.split and splits > 1 else 2 * tile.k
    sizes = (tile.m + 3, tile.n + 5, blocks + 1)
    batch = (2,) if len(kernel.dims) == 4 else ()
    rounded = (
        ceildiv(size, need.get(dim, 1)) * need.get(dim, 1)
        for dim, size in zip(kernel.dims, (*batch, *sizes), strict=True)
    )
    return Problem(dims=kernel.dims, sizes=tuple(rounded))


def prove(
    device: Memory,
    executable: Launchable,
    case: Case,
    *,
    whole: bool,
    launches: int = 0,
    workspace: Any | None = None,
) -> str | None:
    """Run a candidate on a poisoned output; why it is wrong, or None when it is right.

    ``whole`` compares every element and the operands afterwards; otherwise samples and Freivalds'
    check stand for them. ``launches`` runs the program that is timed, that many times in one
    invocation, in place of a call. ``workspace`` is used instead of one made for the occasion.
    """
    oracle = case.oracle if launches < 2 else case.oracle.after(launches)
    try:
        memory = _run(device, executable, case, launches, workspace)
    except Error as error:
        return error.message
    got = _elements(memory, case.layouts[-1])
    reason = oracle.compare(got) if whole else oracle.sample(got)
    if reason is not None and launches:
        reason = f"{reason} after {launches} launches in one invocation"
    if reason is None:
        reason = _written_outside(memory, case.layouts[-1])
    return reason or (operands_changed(device, case) if whole else None)


def run_case(device: Memory, executable: Launchable, case: Case) -> np.ndarray:
    """Poison, run once, and read the result back."""
    return _elements(_run(device, executable, case, 0), case.layouts[-1]).copy()


def repeatable(case: Case) -> bool:
    """Whether the result of several launches on one output is known."""
    contraction = case.kernel.contraction
    return not (contraction.accumulate and contraction.epilogue)


def _run(
    device: Memory,
    executable: Launchable,
    case: Case,
    launches: int,
    workspace: Any | None = None,
) -> np.ndarray:
    """The bytes of the result's buffer after a call, or after launches of the timed program.

    They are there until the next run of the case.
    """
    device.poison(case.result)
    if case.start is not None:
        case = replace(case, result=_placed(device, case.start, case.layouts[-1]))
    nbytes = executable.record.workspace_bytes(case.problem.values(), case.splits)
    if not nbytes:
        workspace = None
    else:
        workspace = device.allocate(nbytes) if workspace is None else workspace
        device.poison(workspace)
    if launches:
        executable.repeat(case.buffers(workspace), case.constants, launches)
    else:
        executable.run(case.buffers(workspace), case.constants)
    landing = case.landing
    return device.download(case.result, landing.shape, landing.dtype, landing)


def _written_outside(memory: np.ndarray, layout: Layout) -> str | None:
    """How much of a result's padding and guard is no longer poison."""
    outside = memory[span_bytes(layout) :]
    if not _is_dense(layout):
        dtype = dtype_of(layout.type)
        outside = memory.copy()
        _elements(outside, layout)[...] = np.full(dtype.itemsize, POISON, np.uint8).view(dtype)
    changed = int(np.count_nonzero(outside != POISON))
    return f"wrote {changed} bytes outside of its result" if changed else None


def _same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two byte arrays of one length are equal, eight bytes at a time."""
    whole = len(one) // 8 * 8
    words = np.array_equal(one[:whole].view(np.uint64), other[:whole].view(np.uint64))
    return words and np.array_equal(one[whole:], other[whole:])


def operands_changed(device: Memory, case: Case) -> str | None:
    """Which operand no longer holds what was put there, padding and guard included."""
    names = [a.name for a in case.kernel.inputs]
    for name, buffer, layout in zip(names, case.inputs, case.layouts, strict=False):
        size, array = span_bytes(layout) + GUARD, case.host[name]
        found = device.download(buffer, (size,), np.dtype(np.uint8))
        if _is_dense(layout):
            same = _same_bytes(found[: array.nbytes], array.reshape(-1).view(np.uint8))
            same = same and bool(np.all(found[array.nbytes :] == POISON))
        else:
            same = np.array_equal(found, _spread(array, layout))
        if not same:
            return f"operand '{name}' was changed"
    return None
