"""Packs of kernels in cooperative-matrix IR on a device of this machine, checked exactly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coop_kernels import Coop
from dialects.manifest import KernelEntry
from facts_files import FOLDER
from kernel_sources import built
from lowering.pack import write_pack
from lowering.target import Target
from runtime import Session
from runtime.dtypes import dtype_of
from runtime.reference import evaluate

SAMPLE = (FOLDER.parent.parent.parent / "samples" / "06_coop_matrix.mlir").read_text()
SAMPLE_KERNELS = ("coop_f16", "coop_two_types")
SHAPES = ((1, 1, 1), (16, 16, 16), (37, 15, 7), (33, 50, 41), (2, 3, 0), (0, 5, 3))
DOUBLED = "%last = gpu.subgroup_mma_elementwise addf %sum, %sum : ({acc}, {acc}) -> {acc}"
CASES = {
    "f16 sums": Coop(accumulator="f16", m=8, n=8, k=8),
    "i8": Coop(type="i8", accumulator="i32", m=8, n=8, k=8),
    "u8": Coop(type="u8", accumulator="i32", m=8, n=8, k=8),
    "four waves": Coop(m=8, n=8, k=8, waves_m=2, waves_n=2),
    "turned, added to, doubled": Coop(
        m=8, n=8, k=8, transposed_b=True, accumulate=True, between=DOUBLED
    ),
    "batch": Coop(m=8, n=8, k=8, batch=True),
    "no power of two": Coop(type="f32", m=5, n=3, k=7, waves_n=2),
}


class Candidates:
    """A pack of one source on a device of this machine."""

    def __init__(self, text: str, target: Target | str, folder: Path, cache: Path) -> None:
        """``target`` is a Vulkan device of this machine, or a processor that this one is."""
        result = built(text, target, cache)
        write_pack(result, folder)
        (backend,) = {
            r.identity.target.partition(":")[0] for k in result.manifest.kernels for r in k.members
        }
        device = "local-task" if backend == "cpu" else backend
        self.session = Session([folder], device=device, tuning="off")

    def check(self, kernel: str, sizes: Sequence[int], change: float = 1.0) -> list[str]:
        """Exact equality of every candidate on an output full of 77; their names."""
        entry = self.session.reference(kernel).entry
        host = operands(entry, sizes)
        expected = evaluate(entry.contraction, host) * change
        names = [v.record.name for v in self.session.explain(kernel, *sizes).verdicts if v.ok]
        for name in names:
            self.session.override(kernel, name)
            out = np.full(expected.shape, 77, dtype_of(entry.result.type))
            if entry.result.mode == "readwrite":
                out[...] = host[entry.result.name]
            inputs = [host[a.name] for a in entry.inputs]
            getattr(self.session, kernel)(*inputs, out=out)
            np.testing.assert_array_equal(out, expected, err_msg=f"{name} at {sizes}")
        return names

    def check_every_size(self, coop: Coop) -> list[str]:
        """Every shape of :data:`SHAPES`; the names of the candidates that all of them had."""
        change = 2.0 if coop.between == DOUBLED else 1.0
        found = [
            set(self.check("coop", (2, *shape) if coop.batch else shape, change))
            for shape in SHAPES
        ]
        return sorted(set.intersection(*found))

    def check_windows(self) -> None:
        """Operands are windows of larger arrays; nothing beside the result is written."""
        entry = self.session.reference("coop").entry
        host = operands(entry, (37, 15, 40))
        expected = evaluate(entry.contraction, host)
        wide = {name: np.pad(array, ((0, 0), (3, 6))) for name, array in host.items()}
        a, b = (wide[n][:, 3:-6] for n in ("a", "b"))
        out = np.full((37, 24), np.float32(7))
        self.session.coop(a, b, out=out[:, 3:-6])
        np.testing.assert_array_equal(out[:, 3:-6], expected)
        out[:, 3:-6] = 7
        assert np.all(out == 7)


def operands(entry: KernelEntry, sizes: Sequence[int]) -> dict[str, np.ndarray]:
    """Small integers for every operand."""
    values = dict(zip(entry.dims, sizes, strict=True))
    rng = np.random.default_rng(sum(sizes))
    return {
        a.name: rng.integers(0 if a.type == "u8" else -3, 4, [values[d] for d in a.dims]).astype(
            dtype_of(a.type)
        )
        for a in entry.args
    }
