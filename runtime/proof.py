"""Correct before fast: exact checks of a candidate on small integers (design section 7).

Operands hold small integers, so that every sum is exact and the right answer is one value. The
output and the workspace are poisoned first, so that what nobody wrote shows.
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


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem with operands on host and device, to be launched in ``splits`` slices of K.

    ``host`` are the operands as a caller passes them, ``values`` what a kernel makes of them: block
    formats decoded. Only with small ``integers`` is the right answer one value.
    """

    kernel: KernelEntry
    problem: Problem
    host: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    inputs: tuple[Any, ...]
    result: Any
    start: np.ndarray | None
    oracle: Oracle
    splits: int = 1
    integers: bool = True

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """Every operand is contiguous."""
        return dense_layouts(self.kernel, self.problem)

    @property
    def constants(self) -> tuple[int, ...]:
        """Sizes, strides, then the slices of a split."""
        return launch_constants(self.problem, self.layouts, self.splits)

    def buffers(self, workspace: Any | None) -> tuple[Any, ...]:
        """Buffers in launch order."""
        tail = () if workspace is None else (workspace,)
        return (*self.inputs, self.result, *tail)


def make_case(
    device: Memory, kernel: KernelEntry, problem: Problem, *, integers: bool = True, seed: int = 0
) -> Case:
    """Operands for a problem: small integers for proofs, normal floats otherwise.

    Raises:
        ProblemError: a size that is no whole number of an operand's blocks.
    """
    _check_blocks(kernel, problem)
    host: dict[str, np.ndarray] = {}
    buffers = []
    rng = np.random.default_rng(seed)
    density = _density(kernel, problem)
    *inputs, result = dense_layouts(kernel, problem)
    for argument, layout in zip(kernel.inputs, inputs, strict=True):
        if argument.source is not None:
            array = _blocks(rng, layout, argument.source, density if integers else None)
        else:
            array = _integers(rng, layout, density) if integers else _normal(rng, layout)
        host[argument.name] = array
        buffers.append(device.upload(array, span_bytes(layout)))
    start = None
    if kernel.result.mode == "readwrite":
        start = host[kernel.result.name] = _integers(rng, result, density)
    values = decoded(kernel.contraction, host)
    return Case(
        kernel=kernel,
        problem=problem,
        host=host,
        values=values,
        inputs=tuple(buffers),
        result=device.allocate(span_bytes(result)),
        start=start,
        oracle=Oracle(kernel.contraction, values),
        integers=integers,
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


def prove(device: Memory, executable: Launchable, case: Case, *, whole: bool) -> str | None:
    """Run a candidate once on a poisoned output; why it is wrong, or None when it is right.

    ``whole`` compares every element and the operands afterwards; otherwise samples and Freivalds'
    check stand for them.
    """
    try:
        got = run_case(device, executable, case)
    except Error as error:
        return error.message
    if whole:
        return case.oracle.compare(got) or _operands_changed(device, case)
    return case.oracle.sample(got)


def run_case(device: Memory, executable: Launchable, case: Case) -> np.ndarray:
    """Poison, run once, and read the result back."""
    device.poison(case.result)
    if case.start is not None:
        case = _with_start(device, case)
    workspace = None
    nbytes = executable.record.workspace_bytes(case.problem.values(), case.splits)
    if nbytes:
        workspace = device.allocate(nbytes)
        device.poison(workspace)
    executable.run(case.buffers(workspace), case.constants)
    layout = case.layouts[-1]
    return device.download(case.result, layout.shape, dtype_of(layout.type))


def _with_start(device: Memory, case: Case) -> Case:
    assert case.start is not None
    return replace(case, result=device.upload(case.start, span_bytes(case.layouts[-1])))


def _operands_changed(device: Memory, case: Case) -> str | None:
    names = [a.name for a in case.kernel.inputs]
    for name, buffer in zip(names, case.inputs, strict=True):
        array = case.host[name]
        if device.download(buffer, array.shape, array.dtype).tobytes() != array.tobytes():
            return f"operand '{name}' was changed"
    return None
