"""Packs that a run is given by a folder: what there is in them to test on a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dialects.facts import DeviceFacts
from dialects.manifest import Argument, KernelEntry, Record
from dialects.member import Problem
from dialects.operands import contiguous_strides
from dialects.rules import Case as Rules
from dialects.rules import judge
from runtime.arrays import Layout
from runtime.blocks import pack_q8_0
from runtime.dtypes import dtype_of
from runtime.pack import Pack, open_pack
from runtime.proof import awkward_problem
from runtime.reference import decoded, evaluate

# M, N, K: smaller than any tile, primes, one more and one less than tiles, and no K at all.
AWKWARD = (
    (1, 1, 1),
    (2, 15, 37),
    (15, 37, 2),
    (37, 130, 15),
    (130, 514, 37),
    (257, 129, 130),
    (127, 255, 514),
    (8, 8, 0),
    (1, 264, 136),
    (136, 264, 96),
    (520, 1032, 264),
    (129, 512, 64),
)
SHAPE = (136, 264, 96)  # one that every body takes: multiples of 8, K of 32
PADDING = 48  # elements between rows of a strided operand: a multiple of 16, no power of two


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One record with code for a backend."""

    pack: Pack
    kernel: KernelEntry
    record: Record

    @property
    def id(self) -> str:
        """Kernel, member and body."""
        return f"{self.kernel.kernel}-{self.record.identity.member}-{self.record.identity.body}"


def find_packs(folder: Path) -> list[Pack]:
    """The folder itself or its children, in order of their names."""
    manifests = [folder / "manifest.json", *sorted(folder.glob("*/manifest.json"))]
    return [open_pack(m.parent) for m in manifests if m.is_file()]


def find_candidates(packs: Iterable[Pack], backend: str) -> list[Candidate]:
    """Every record of that backend that has code."""
    return [
        Candidate(pack=pack, kernel=kernel, record=record)
        for pack in packs
        for kernel in pack.manifest.kernels
        for record in kernel.members
        if record.files is not None and record.identity.target.partition(":")[0] == backend
    ]


def problems(candidate: Candidate, facts: DeviceFacts) -> list[Problem]:
    """The awkward sizes that the rules let the record run, dense, and its own awkward ones."""
    dims = candidate.kernel.dims
    batch = (3,) if len(dims) == 4 else ()
    sizes = [Problem(dims=dims, sizes=(*batch, *mnk)) for mnk in AWKWARD]
    sizes.append(awkward_problem(candidate.kernel, candidate.record))
    return [p for p in sizes if runs(candidate, facts, p)]


def runs(
    candidate: Candidate,
    facts: DeviceFacts,
    problem: Problem,
    strides: Mapping[str, int] | None = None,
) -> bool:
    """Whether the rules let the record run."""
    case = Rules(
        kernel=candidate.kernel,
        record=candidate.record,
        facts=facts,
        problem=problem,
        strides=strides,
    )
    return judge(case).ok


def padded_layouts(kernel: KernelEntry, at: Problem) -> list[Layout]:
    """Layouts with gaps between the rows, and between the matrices of a batch."""
    values, result = at.values(), []
    for argument in kernel.args:
        shape = list(argument.stored_shape(values))
        wide = [*shape[:-1], shape[-1] + PADDING]
        strides = contiguous_strides(wide) if len(shape) > 1 else ()
        result.append(Layout(type=argument.type, shape=tuple(shape), strides=strides))
    return result


def strides_by_name(kernel: KernelEntry, layouts: Sequence[Layout]) -> dict[str, int]:
    """The outer strides as the rules take them."""
    return {
        f"{argument.name}.{axis}": stride
        for argument, layout in zip(kernel.args, layouts, strict=True)
        for axis, stride in enumerate(layout.strides)
    }


def host_operands(kernel: KernelEntry, at: Problem, seed: int = 0) -> list[np.ndarray]:
    """Operands of small integers, in argument order."""
    rng, values = np.random.default_rng(seed), at.values()
    return [_small(rng, a, [values[d] for d in a.dims]) for a in kernel.read_arguments]


def _small(rng: np.random.Generator, argument: Argument, sizes: list[int]) -> np.ndarray:
    whole = rng.integers(-2, 3, sizes)
    if argument.source is None:
        return whole.astype(dtype_of(argument.type))
    scales = np.exp2(rng.integers(-1, 2, (*sizes[:-1], sizes[-1] // 32)))
    return pack_q8_0(whole.astype(np.int8), scales.astype(np.float16))


def expected_of(kernel: KernelEntry, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The exact result."""
    names = [a.name for a in kernel.read_arguments]
    contraction = kernel.contraction
    value = evaluate(contraction, decoded(contraction, dict(zip(names, operands, strict=True))))
    return value.astype(dtype_of(kernel.result.type))


def sized(dims: tuple[str, ...], mnk: tuple[int, int, int] = SHAPE) -> Problem:
    """The problem of these sizes, three of them where the kernel has a batch."""
    return Problem(dims=dims, sizes=(*((3,) if len(dims) == 4 else ()), *mnk))
