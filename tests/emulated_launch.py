"""One emulated launch of a candidate on small integers, exact against numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dialects.block_formats import stored_sizes
from dialects.expressions import Expression
from dialects.manifest import Launch as ManifestLaunch
from dialects.manifest import Needs
from dialects.member import Tile
from dialects.operands import Contraction, Operand, operand_span
from dialects.types import element_type
from emulated_ir import Program, read_program
from kernel_emulator import Emulator, EmulatorError, Launch, Watch
from kernel_sources import tile_body
from lowering.target import Target, module_attributes, parse_target
from lowering.tiles.staging import WORD
from problems import q8_0_integers
from runtime.dtypes import dtype_of
from runtime.reference import decoded, evaluate

LARGEST = 3
POISON = 0xFF  # NaN in every float type, -1 in an integer
LEAST_BYTES = 0  # an operand without elements: nothing of it is read


@dataclass(frozen=True, kw_only=True)
class Case:
    """A candidate: what it computes and how it is launched."""

    contraction: Contraction
    program: Program
    launch: ManifestLaunch
    needs: Needs
    wave: int

    def takes(self, values: dict[str, int]) -> bool:
        """Whether sizes and strides are aligned as the body needs."""
        alignment = self.needs.alignment or {}
        starts = {o.name: 0 for o in self.contraction.operands}
        return all((starts | values)[name] % need == 0 for name, need in alignment.items())


def case_of(body: str, target: str | Target, contraction: Contraction, tile: Tile) -> Case:
    """The program of one candidate; the body must not refuse it."""
    resolved = parse_target(target) if isinstance(target, str) else target
    chosen = tile_body(body)
    refusal = chosen.refusal(contraction, tile, resolved)
    assert refusal is None, refusal
    emitted = chosen.emit("gemm", contraction, tile, resolved)
    attributes = module_attributes(resolved)
    program = read_program(f"module attributes {{{attributes}}} {{\n{emitted.text}\n}}")
    wave = emitted.needs.wave_width or resolved.wave
    return Case(
        contraction=contraction,
        program=program,
        launch=emitted.launch,
        needs=emitted.needs,
        wave=wave,
    )


def transposed(contraction: Contraction, *, a: bool = False, b: bool = False) -> Contraction:
    """The same product with A or B stored the other way round."""

    def turned(operand: Operand) -> Operand:
        *lead, outer, inner = operand.dims
        return replace(operand, dims=(*lead, inner, outer))

    return replace(
        contraction,
        a=turned(contraction.a) if a else contraction.a,
        b=turned(contraction.b) if b else contraction.b,
    )


def check(
    case: Case,
    sizes: Sequence[int],
    *,
    slack: int = 0,
    program: Program | None = None,
    given: Mapping[str, np.ndarray] | None = None,
) -> int:
    """Run one launch and compare every byte of the result's buffer; how many products it took.

    ``sizes`` are in the kernel's order. ``slack`` elements lie between the rows of the first
    operand, twice as many between those of the second, and so on, poisoned, so that no two strides
    are the same; the buffers end with the last element. ``program`` runs in place of the case's
    own; ``given`` are operands as they are stored, in place of small integers.

    Raises:
        EmulatorError: a wrong result, or anything that the emulator refuses.
    """
    return emulated(case, sizes, slack=slack, program=program, given=given).products


def emulated(
    case: Case,
    sizes: Sequence[int],
    *,
    slack: int = 0,
    program: Program | None = None,
    given: Mapping[str, np.ndarray] | None = None,
    watch: Watch | None = None,
) -> Emulator:
    """What :func:`check` does, and the emulator after it."""
    contraction = case.contraction
    named = dict(zip(contraction.dims, sizes, strict=True))
    rng = np.random.default_rng(sum(sizes) + slack)
    arrays, strides = {}, {}
    buffers, spans, shape, layout = [], [], [], []
    for number, operand in enumerate(contraction.operands, 1):
        elements = [named[d] for d in operand.dims]
        shape = stored_sizes(elements, operand.source)
        layout = _strides(shape, number * slack)
        strides |= dict(zip(operand.strides, layout, strict=True))
        window, buffer = _window(operand, shape, layout)
        if operand is not contraction.c or contraction.accumulate:
            made = (given or {}).get(operand.name)
            window[...] = _integers(operand, elements, rng) if made is None else made
        arrays[operand.name] = window.copy()
        buffers.append(buffer)
        spans.append(operand_span(shape, layout) * window.itemsize)
    run = Emulator(
        program or case.program, _launch(case, {**named, **strides}, buffers, spans), watch
    )
    expected = evaluate(contraction, decoded(contraction, arrays))
    _compare(contraction.c, buffers[-1], shape, layout, expected)
    if run.buffers[-1].stores.max(initial=0) > 1:
        raise EmulatorError("an element of the result is stored twice")
    return run


def _launch(
    case: Case, values: dict[str, int], buffers: Sequence[np.ndarray], spans: Sequence[int]
) -> Launch:
    assert case.takes(values), f"not aligned: {values}"
    assert case.launch.grid is not None
    assert case.launch.block is not None
    return Launch(
        grid=[Expression(g).evaluate(values) for g in case.launch.grid],
        threads=prod(case.launch.block),
        wave=case.wave,
        constants=[values[name] for name in case.launch.constants],
        buffers=buffers,
        spans=spans,
    )


def _integers(operand: Operand, sizes: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Small integers as they are stored."""
    if operand.source is not None:
        return q8_0_integers(rng, sizes)
    low = 0 if element_type(operand.type).kind == "unsigned" else -LARGEST
    return rng.integers(low, LARGEST + 1, sizes).astype(dtype_of(operand.type))


def _strides(shape: Sequence[int], slack: int) -> list[int]:
    """Outer strides with ``slack`` elements after each row."""
    row = shape[-1] + slack
    return [row * prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1)]


def _window(
    operand: Operand, shape: Sequence[int], strides: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """An operand in a poisoned buffer that ends with it, and the buffer's bytes.

    Blocks are read in words, of which every buffer has whole ones.
    """
    dtype = dtype_of(operand.stored_type)
    size = operand_span(shape, strides) * dtype.itemsize
    if operand.source is not None:
        size = -(-size // WORD) * WORD
    buffer = np.full(size if prod(shape) else LEAST_BYTES, POISON, np.uint8)
    steps = [s * dtype.itemsize for s in (*strides, 1)]
    window = np.ndarray(shape, dtype, buffer, strides=steps)
    return window, buffer


def _compare(
    result: Operand,
    buffer: np.ndarray,
    shape: Sequence[int],
    strides: Sequence[int],
    expected: np.ndarray,
) -> None:
    window, wanted = _window(result, shape, strides)
    window[...] = expected.astype(window.dtype)
    if not np.array_equal(buffer, wanted):
        found = np.flatnonzero(buffer != wanted)
        raise EmulatorError(f"{found.size} of {buffer.size} bytes differ, first at {found[0]}")
