"""How a tile is spread over the lanes of a wave, and where tiles wait in workgroup memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dialects.types import element_type

from ..matrix_tiles import ROW_BYTES, MatrixType
from .interface import SHARED, storage_type
from .kernel_text import Index, KernelText


@dataclass(frozen=True, kw_only=True)
class Place:
    """One element of a tile: its row and column.

    ``inside`` is an i1 where only some lanes hold an element; the others point at the last one.
    """

    row: Index
    column: Index
    inside: str | None


class Lanes:
    """A wave holds the elements of a tile in turns: element lane + wave * turn, row-major.

    ``wave`` lanes in a row are a wave whatever the hardware's width is. Rows and columns of the
    first turn are computed once, for all tiles with that many columns.
    """

    def __init__(self, ir: KernelText, waves: int, wave: int, columns: Iterable[int]) -> None:
        self._ir, self.wave = ir, wave
        thread = ir.value("gpu.thread_id x", "thread") if waves * wave > 1 else 0
        self.thread: Index = thread
        self.lane, self.index = ir.rem(thread, wave), ir.div(thread, wave)
        self._first = {n: (ir.div(self.lane, n), ir.rem(self.lane, n)) for n in set(columns)}

    def turns(self, type_: MatrixType) -> range:
        """One number for each element that a lane holds."""
        return range(-(-type_.count // self.wave))

    def place(self, type_: MatrixType, turn: int) -> Place:
        """A lane's element of that turn."""
        ir, wave, columns = self._ir, self.wave, type_.columns
        element = ir.add(self.lane, wave * turn)
        inside = None
        if wave * (turn + 1) > type_.count:
            inside = ir.less(element, type_.count)
            element = ir.least(element, type_.count - 1)
        elif wave % columns == 0:
            row, column = self._first[columns]
            row = ir.add(row, turn * (wave // columns))
            return Place(row=row, column=column, inside=None)
        elif columns % wave == 0:
            row, first = divmod(wave * turn, columns)
            return Place(row=row, column=ir.add(self.lane, first), inside=None)
        row, column = ir.div(element, columns), ir.rem(element, columns)
        return Place(row=row, column=column, inside=inside)


ALIGNMENT = 32  # bytes of an array in workgroup memory: what a matrix load may ask (PTX ISA, wmma)


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Room for one tile of each wave: the array, its type, where this wave's tile starts.

    ``pitch`` is the distance of two rows in elements.
    """

    array: str
    kind: str
    start: Index
    pitch: int

    def at(self, ir: KernelText, row: Index, column: Index) -> str:
        """The position of an element in the array."""
        return ir.index(ir.add(self.start, ir.add(ir.mul(row, self.pitch), column)))


def allocation(kind: str, op: str = "memref.alloc", alignment: int = ALIGNMENT) -> str:
    """``memref.alloc`` of an array that matrix loads may read, or ``memref.alloca`` of one."""
    return (
        f'"{op}"() <{{alignment = {alignment} : i64, '
        f"operandSegmentSizes = array<i32: 0, 0>}}> : () -> {kind}"
    )


def aligned_bytes(nbytes: int) -> int:
    """Bytes that an array takes, with what lies before the next one."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Slots:
    """Workgroup memory, an array for each storage type, all of it free again after a barrier.

    ``sizes`` are what a first run over the kernel needed, in elements by storage type.
    """

    def __init__(self, ir: KernelText, waves: int, sizes: Mapping[str, int]) -> None:
        self._ir, self._waves = ir, waves
        self._kinds = {t: f"memref<{n}x{t}, {SHARED}>" for t, n in sizes.items()}
        self._arrays = {t: ir.value(allocation(kind), "slots") for t, kind in self._kinds.items()}
        self._taken: dict[str, int] = {}
        self.needed: dict[str, int] = {}

    def take(self, type_: MatrixType, wave_index: Index) -> Slot:
        """Room that nothing else takes before :meth:`release`."""
        ir, stored = self._ir, storage_type(type_.element)
        row = ROW_BYTES // element_type(type_.element).bytes
        pitch = -(-type_.columns // row) * row
        first = self._taken.get(stored, 0)
        self._taken[stored] = first + self._waves * type_.rows * pitch
        self.needed[stored] = max(self.needed.get(stored, 0), self._taken[stored])
        return Slot(
            array=self._arrays.get(stored, "%unknown"),
            kind=self._kinds.get(stored, ""),
            start=ir.add(ir.mul(wave_index, type_.rows * pitch), first),
            pitch=pitch,
        )

    def release(self) -> None:
        """Everything is free: call after a barrier."""
        self._taken = {}


def slot_bytes(sizes: Mapping[str, int]) -> int:
    """Bytes of all arrays."""
    widths = {"i8": 1, "i32": 4} | {t: element_type(t).bytes for t in ("f16", "f32", "f64")}
    return sum(aligned_bytes(n * widths[t]) for t, n in sizes.items())
