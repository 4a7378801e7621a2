"""Members of a family (tile shapes of one kernel) and the problems they are asked to solve."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields

from .errors import DeclarationError, ProblemError

MAX_SIZE = (1 << 31) - 1  # sizes travel as i32 dispatch constants


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A tile shape, in elements: workgroup m x n x k, register tile of one lane, waves, stages.

    ``waves_k`` waves share the K of a tile between them, ``cluster`` workgroups likewise; their
    sums are added at the end. What a body does not have stays 0.
    """

    m: int
    n: int
    k: int
    thread_m: int = 0
    thread_n: int = 0
    waves_m: int = 0
    waves_n: int = 0
    stages: int = 0
    waves_k: int = 0
    cluster: int = 0

    @property
    def name(self) -> str:
        """Unique within a family: ``64x64x16_t4x4``."""
        parts = [f"{self.m}x{self.n}x{self.k}"]
        if self.thread_m or self.thread_n:
            parts.append(f"t{self.thread_m}x{self.thread_n}")
        if self.waves_m or self.waves_n:
            parts.append(f"w{self.waves_m}x{self.waves_n}")
        if self.stages:
            parts.append(f"s{self.stages}")
        if self.waves_k:
            parts.append(f"k{self.waves_k}")
        if self.cluster:
            parts.append(f"c{self.cluster}")
        return "_".join(parts)

    def values(self) -> dict[str, int]:
        """Parameters by name, as expressions see them."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


TILE_PARAMETERS = tuple(f.name for f in fields(Tile))


@dataclass(frozen=True, kw_only=True)
class Member:
    """One entry of ``xpu.instantiate``: a tile, and optionally its only body and backends."""

    tile: Tile
    body: str | None = None
    backends: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The tile's name."""
        return self.tile.name

    def allows(self, backend: str) -> bool:
        """Whether the entry is meant for that backend."""
        return not self.backends or backend in self.backends


def check_tile(tile: Tile, *, where: str | None = None) -> None:
    """Refuse sizes that no body could use.

    Raises:
        DeclarationError: a parameter below its least value or above 65536, by name.
    """
    for name, value in tile.values().items():
        least = 1 if name in ("m", "n", "k") else 0
        if not least <= value <= 1 << 16:
            raise DeclarationError(
                f"member {tile.name}: {name} = {value} is not within {least} and {1 << 16}",
                where=where,
            )


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The sizes of one call, in the kernel's ``dims`` order (batch first)."""

    dims: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def text(self) -> str:
        """``512x4096x4096``."""
        return "x".join(str(s) for s in self.sizes)

    def values(self) -> dict[str, int]:
        """Sizes by name."""
        return dict(zip(self.dims, self.sizes, strict=True))


def problem(kernel: str, dims: tuple[str, ...], sizes: tuple[int, ...]) -> Problem:
    """A checked problem.

    Raises:
        ProblemError: the wrong number of sizes, or one that is no whole number, negative, or above
            2^31 - 1.
    """
    try:
        sizes = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise ProblemError(
            f"kernel '{kernel}': sizes must be whole numbers, found {sizes!r:.80}"
        ) from None
    if len(sizes) != len(dims):
        raise ProblemError(
            f"kernel '{kernel}' takes {len(dims)} sizes ({'x'.join(dims)}), found {len(sizes)}"
        )
    for name, size in zip(dims, sizes, strict=True):
        if not 0 <= size <= MAX_SIZE:
            raise ProblemError(
                f"kernel '{kernel}': size {name} = {size} is not within 0 and {MAX_SIZE}"
            )
    return Problem(dims=dims, sizes=sizes)
