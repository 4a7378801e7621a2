"""Correct before fast: exact checks of a candidate on small integers (design section 7).

Operands hold small integers, so that every sum is exact and the right answer is one value. The
output and the workspace are poisoned first, so that what nobody wrote shows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from dialects.errors import Error
from dialects.expressions import Expression, ceildiv
from dialects.manifest import KernelEntry, Record
from dialects.member import Problem
from dialects.operands import operand_span
from dialects.types import element_type

from .device import Device
from .dtypes import dtype_of
from .execute import Executable
from .oracle import Oracle

PATTERN = 8191  # a prime: rows of any other length start at ever new places of the pattern
LARGEST = 2  # magnitude of the integers


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem with operands on host and device, ready to be launched."""

    kernel: KernelEntry
    problem: Problem
    host: dict[str, np.ndarray]
    inputs: tuple[Any, ...]
    result: Any
    start: np.ndarray | None
    oracle: Oracle

    @property
    def constants(self) -> tuple[int, ...]:
        """Sizes, then the strides of contiguous operands."""
        return launch_constants(self.kernel, self.problem)

    def buffers(self, workspace: Any | None) -> tuple[Any, ...]:
        """Buffers in launch order."""
        tail = () if workspace is None else (workspace,)
        return (*self.inputs, self.result, *tail)


def launch_constants(kernel: KernelEntry, problem: Problem) -> tuple[int, ...]:
    """The i32 constants of a launch whose operands are all contiguous."""
    values = problem.values()
    constants = list(problem.sizes)
    for argument in kernel.args:
        sizes = [values[d] for d in argument.dims]
        constants += [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes) - 1)]
    return tuple(constants)


def make_case(
    device: Device, kernel: KernelEntry, problem: Problem, *, integers: bool = True, seed: int = 0
) -> Case:
    """Operands for a problem: small integers for proofs, normal floats otherwise."""
    values = problem.values()
    host: dict[str, np.ndarray] = {}
    buffers = []
    rng = np.random.default_rng(seed)
    density = _density(kernel, problem)
    for argument in kernel.args:
        shape = tuple(values[d] for d in argument.dims)
        dtype = dtype_of(argument.type)
        if argument.mode == "write":
            array = np.empty(0, dtype)
        elif integers:
            array = _integers(rng, shape, argument.type, density)
        else:
            array = _normal(rng, shape, argument.type)
        if argument is not kernel.result:
            host[argument.name] = array
            buffers.append(device.upload(array, span_bytes(kernel, problem, argument.name)))
    result = kernel.result
    start = None
    if result.mode == "readwrite":
        start = _integers(rng, tuple(values[d] for d in result.dims), result.type, density)
        host[result.name] = start
    c = device.allocate(span_bytes(kernel, problem, result.name))
    return Case(
        kernel=kernel,
        problem=problem,
        host=host,
        inputs=tuple(buffers),
        result=c,
        start=start,
        oracle=Oracle(kernel.contraction, host),
    )


def span_bytes(kernel: KernelEntry, problem: Problem, name: str) -> int:
    """Bytes that a contiguous operand's buffer must have."""
    values = problem.values()
    argument = next(a for a in kernel.args if a.name == name)
    sizes = [values[d] for d in argument.dims]
    strides = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes) - 1)]
    return operand_span(sizes, strides) * element_type(argument.type).bytes


def _density(kernel: KernelEntry, problem: Problem) -> float:
    """Share of elements that may be other than 0, so that every sum is exact in the accumulator.

    Only narrow accumulators and very long sums need zeros.
    """
    accumulator = kernel.contraction.accumulator
    if element_type(accumulator).kind != "float":
        return 1.0
    exact = 2.0 ** (ml_dtypes.finfo(dtype_of(accumulator)).nmant + 1)
    k = problem.values()[kernel.contraction.k]
    return min(1.0, (exact / (4 * LARGEST**2 * max(k, 1))) ** 0.5)


def _integers(
    rng: np.random.Generator, shape: tuple[int, ...], type_name: str, density: float
) -> np.ndarray:
    least = 0 if element_type(type_name).kind == "unsigned" else -LARGEST
    pattern = rng.integers(least, LARGEST + 1, PATTERN, np.int8)
    pattern *= rng.random(PATTERN) < density
    return np.resize(pattern.astype(np.float32).astype(dtype_of(type_name)), shape)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], type_name: str) -> np.ndarray:
    if element_type(type_name).kind != "float":
        return rng.integers(0, 100, shape).astype(dtype_of(type_name))
    return rng.standard_normal(shape, np.float32).astype(dtype_of(type_name))


def awkward_problem(kernel: KernelEntry, record: Record) -> Problem:
    """A small problem that divides no tile: more than one, ragged on every side.

    Sizes are rounded up to what the record's copies need; others it never meets.
    """
    tile, need = record.tile, record.needs.alignment or {}
    sizes = (tile.m + 3, tile.n + 5, 2 * tile.k + 1)
    batch = (2,) if len(kernel.dims) == 4 else ()
    rounded = (
        ceildiv(size, need.get(dim, 1)) * need.get(dim, 1)
        for dim, size in zip(kernel.dims, (*batch, *sizes), strict=True)
    )
    return Problem(dims=kernel.dims, sizes=tuple(rounded))


def prove(device: Device, executable: Executable, case: Case, *, whole: bool) -> str | None:
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


def run_case(device: Device, executable: Executable, case: Case) -> np.ndarray:
    """Poison, run once, and read the result back."""
    values = case.problem.values()
    result = case.kernel.result
    shape = tuple(values[d] for d in result.dims)
    device.poison(case.result)
    if case.start is not None:
        case = _with_start(device, case)
    workspace = None
    if executable.record.workspace:
        workspace = device.allocate(Expression(executable.record.workspace).evaluate(values))
        device.poison(workspace)
    executable.run(case.buffers(workspace), case.constants)
    return device.download(case.result, shape, dtype_of(result.type))


def _with_start(device: Device, case: Case) -> Case:
    assert case.start is not None
    nbytes = span_bytes(case.kernel, case.problem, case.kernel.result.name)
    return replace(case, result=device.upload(case.start, nbytes))


def _operands_changed(device: Device, case: Case) -> str | None:
    names = [a.name for a in case.kernel.inputs]
    for name, buffer in zip(names, case.inputs, strict=True):
        array = case.host[name]
        if device.download(buffer, array.shape, array.dtype).tobytes() != array.tobytes():
            return f"operand '{name}' was changed"
    return None
