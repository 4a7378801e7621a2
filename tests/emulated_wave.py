"""What an emulated workgroup consists of: checked memory, and waves with copies on their way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Env = dict[str, Any]

WAVE = 32
LANES = np.arange(WAVE)
SHARED_BASE = 1024
SPACING = 1 << 40  # between the buffers' addresses
NEVER, SEVERAL = -1, -2  # in place of an epoch or of a wave


class Fault(AssertionError):
    """What a device would trap on, or silently get wrong."""


def require(condition: bool | np.bool_, what: str) -> None:
    if not condition:
        raise Fault(what)


@dataclass
class Workgroup:
    """What the waves of a workgroup share."""

    constants: Sequence[int]
    buffers: Sequence[Array]  # bytes, each with its own alignment from 16 up
    number: tuple[int, int, int]
    eager: bool
    shared: Array = field(default_factory=lambda: np.zeros(0, np.uint8))
    stores: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    conflicts: int = 0
    epoch: int = 0  # barriers so far
    coming: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def allocate(self, count: int) -> None:
        """Workgroup memory, not a number in every type, that nobody has written or read."""
        self.shared = np.full(count, 0xFF, np.uint8)
        self.written, self.read_at, self.writer, self.reader = (
            np.full(count, NEVER, np.int64) for _ in range(4)
        )
        self.coming = np.zeros(count, np.int64)  # copies that nobody has waited for

    def load_shared(self, wave: int, place: Array) -> Array:
        """Bytes that have come, by this wave's own doing or before a barrier."""
        require((self.written[place] != NEVER).all(), "reads shared memory that nobody wrote")
        require(not self.coming[place].any(), "reads a copy that is on its way")
        theirs = (self.writer[place] != wave) & (self.written[place] == self.epoch)
        require(not theirs.any(), "reads what another wave writes, no barrier")
        several = (self.reader[place] != wave) & (self.read_at[place] == self.epoch)
        self.reader[place] = np.where(several, SEVERAL, wave)
        self.read_at[place] = self.epoch
        return self.shared[place]

    def store_shared(self, wave: int, place: Array, *, coming: bool = False) -> None:
        """Mark bytes that a wave writes, now or until it waits for the copy."""
        require(not self.coming[place].any(), "writes where a copy is on its way to")
        theirs = (self.writer[place] != wave) & (self.written[place] == self.epoch)
        theirs |= (self.reader[place] != wave) & (self.read_at[place] == self.epoch)
        require(not theirs.any(), "writes what another wave uses, no barrier")
        self.written[place], self.writer[place] = self.epoch, wave
        self.coming[place] = coming

    def locate(self, address: Array, width: int) -> tuple[int, Array]:
        """(buffer, offsets) of global addresses, all within one buffer."""
        which = address // SPACING - 1
        require((which == which[0]).all(), "lanes read different buffers")
        offset = address % SPACING
        require((offset % width == 0).all(), f"a global address is no multiple of {width}")
        size = len(self.buffers[int(which[0])])
        require((offset + width <= size).all(), "a global address is out of bounds")
        return int(which[0]), offset

    def read(self, address: Array, width: int) -> Array:
        """``width`` bytes at each address."""
        which, offset = self.locate(address, width)
        return self.buffers[which][offset[:, None] + np.arange(width)]

    def write(self, address: Array, data: Array) -> None:
        """Bytes to the last buffer, counted."""
        which, offset = self.locate(address, data.shape[1])
        require(which == len(self.buffers) - 1, "a store to an operand")
        place = offset[:, None] + np.arange(data.shape[1])
        self.buffers[which][place] = data
        np.add.at(self.stores, place, 1)

    def shared_place(self, address: Array, width: int) -> Array:
        """Indices into workgroup memory of ``width`` bytes at each address."""
        require((address % width == 0).all(), f"a shared address is no multiple of {width}")
        start = address - SHARED_BASE
        inside = (start >= 0) & (start + width <= len(self.shared))
        require(inside.all(), "a shared address is out of bounds")
        return start[:, None] + np.arange(width)


class Wave:
    """One wave's registers and its copies on their way."""

    def __init__(self, group: Workgroup, index: int) -> None:
        self.group, self.index = group, index
        self.env: Env = {}
        self.open: list[tuple[Array, Array]] = []
        self.groups: list[list[tuple[Array, Array]]] = []

    def copy(self, place: Array, data: Array) -> None:
        """One asynchronous copy."""
        self.group.store_shared(self.index, place, coming=True)
        if self.group.eager:
            self.group.shared[place] = data
        self.open.append((place, data))

    def commit(self) -> None:
        """Close a group of copies."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int) -> None:
        """All groups but the last ``pending`` have landed."""
        while len(self.groups) > pending:
            for place, data in self.groups.pop(0):
                self.group.shared[place] = data
                self.group.coming[place] = 0
                self.group.written[place] = self.group.epoch


def wrapped(value: Array, bits: int) -> Array:
    """A value as a signed integer of that many bits; one bit stays 0 or 1."""
    if bits == 64:
        return value
    value = np.asarray(value, np.int64) & ((1 << bits) - 1)
    return np.where(value >> (bits - 1), value - (1 << bits), value) if bits > 1 else value
