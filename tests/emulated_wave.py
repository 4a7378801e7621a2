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
RANK_SHIFT = 24  # of the rank, counted from 1, in an address of another workgroup's memory
SPACING = 1 << 40  # between the buffers' addresses
NEVER, SEVERAL = -1, -2  # in place of an epoch; of a wave or a lane


class Fault(AssertionError):
    """What a device would trap on, or silently get wrong."""


def require(condition: bool | np.bool_, what: str) -> None:
    if not condition:
        raise Fault(what)


class Uses:
    """The last use of each byte: in which epoch, by which wave and lane, after how many syncs."""

    def __init__(self, count: int) -> None:
        self.epoch, self.wave, self.lane, self.sync = (
            np.full(count, NEVER, np.int64) for _ in range(4)
        )

    def other_waves(self, place: Array, wave: Wave) -> Array:
        """Which bytes another wave has used since the last barrier."""
        return (self.epoch[place] == wave.group.epoch) & (self.wave[place] != wave.index)

    def other_lanes(self, place: Array, wave: Wave, lanes: Array) -> Array:
        """Which bytes another lane of the same wave has used since the wave met."""
        met = (self.epoch[place] != wave.group.epoch) | (self.sync[place] != wave.syncs)
        return ~met & (self.wave[place] == wave.index) & (self.lane[place] != lanes[:, None])

    def mark(self, place: Array, wave: Wave, lanes: Array) -> None:
        """Used now by these lanes, a row of bytes each."""
        several = self.other_waves(place, wave), self.other_lanes(place, wave, lanes)
        self.wave[place] = np.where(several[0], SEVERAL, wave.index)
        mark = np.where(several[1], SEVERAL, lanes[:, None])
        self.lane[place] = mark
        self.lane[place[self.lane[place] != mark]] = SEVERAL  # lanes that meet in this very use
        self.epoch[place], self.sync[place] = wave.group.epoch, wave.syncs


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
    cluster: Sequence[Workgroup] = ()
    epoch: int = 0  # barriers so far
    cluster_epoch: int = 0  # of those, how many when the cluster last met

    def __post_init__(self) -> None:
        self.allocate(0)

    def allocate(self, count: int) -> None:
        """Workgroup memory, not a number in every type, that nobody has written or read."""
        self.shared = np.full(count, 0xFF, np.uint8)
        self.writes, self.reads = Uses(count), Uses(count)
        self.coming = np.zeros(count, bool)  # copies that nobody has waited for
        self.afar = np.zeros(count, bool)  # read by other workgroups since the cluster met

    def meet(self, *, cluster: bool) -> None:
        """A barrier that all waves are at, of this workgroup or of all of its cluster."""
        self.epoch += 1
        if cluster:
            self.cluster_epoch = self.epoch
            self.afar[:] = False

    def load_shared(self, wave: Wave, place: Array, lanes: Array) -> Array:
        """A row of bytes a lane: its own doing, its wave's before a sync, or before a barrier."""
        self._require_there(place)
        require(
            not self.writes.other_waves(place, wave).any(),
            "reads what another wave writes, no barrier",
        )
        require(
            not self.writes.other_lanes(place, wave, lanes).any(),
            "reads what another lane writes, no sync of the wave",
        )
        self.reads.mark(place, wave, lanes)
        return self.shared[place]

    def store_shared(self, wave: Wave, place: Array, lanes: Array, *, coming: bool = False) -> None:
        """Mark bytes that lanes write, now or until they wait for the copy."""
        require(len(np.unique(place)) == place.size, "two lanes write one byte")
        require(not self.coming[place].any(), "writes where a copy is on its way to")
        require(not self.afar[place].any(), "writes what another workgroup reads")
        for used in (self.writes, self.reads):
            require(
                not used.other_waves(place, wave).any(),
                "writes what another wave uses, no barrier",
            )
            require(
                not used.other_lanes(place, wave, lanes).any(),
                "writes what another lane uses, no sync of the wave",
            )
        self.writes.mark(place, wave, lanes)
        self.coming[place] = coming

    def _require_there(self, place: Array) -> None:
        require((self.writes.epoch[place] != NEVER).all(), "reads shared memory that nobody wrote")
        require(not self.coming[place].any(), "reads a copy that is on its way")

    def _load_afar(self, wave: Wave, place: Array) -> Array:
        """Bytes for a wave of another workgroup: written before the cluster met."""
        require(not wave.arrived, "reads another workgroup after its own arrival")
        self._require_there(place)
        require(
            (self.writes.epoch[place] < self.cluster_epoch).all(),
            "reads what another workgroup writes, no barrier of the cluster",
        )
        self.afar[place] = True
        return self.shared[place]

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

    def read_shared(self, wave: Wave, address: Array, width: int) -> Array:
        """``width`` bytes of workgroup memory at each address, of any workgroup of the cluster."""
        rank = address >> RANK_SHIFT
        require((rank == rank[0]).all(), "lanes read different workgroups")
        group = self.cluster[int(rank[0]) - 1] if rank[0] else self
        place = group.shared_place(address & ((1 << RANK_SHIFT) - 1), width)
        if group is not self:
            return group._load_afar(wave, place)
        return self.load_shared(wave, place, LANES)

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
        self.syncs = 0  # of its lanes
        self.arrived = False  # at a barrier of the cluster that it has not waited for
        self.open: list[tuple[Array, Array, Array]] = []
        self.groups: list[list[tuple[Array, Array, Array]]] = []

    def copy(self, place: Array, data: Array, lanes: Array) -> None:
        """One asynchronous copy, a row of bytes a lane."""
        self.group.store_shared(self, place, lanes, coming=True)
        if self.group.eager:
            self.group.shared[place] = data
        self.open.append((place, data, lanes))

    def commit(self) -> None:
        """Close a group of copies."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int) -> None:
        """All groups but the last ``pending`` have landed: each lane knows it of its own copies."""
        while len(self.groups) > pending:
            for place, data, lanes in self.groups.pop(0):
                self.group.shared[place] = data
                self.group.coming[place] = False
                self.group.writes.mark(place, self, lanes)

    def sync(self) -> None:
        """All lanes meet, and see what the others have written."""
        self.syncs += 1

    def arrive(self) -> None:
        """At a barrier of the cluster, without waiting for the others."""
        require(not self.arrived, "arrives twice at a barrier of the cluster")
        self.arrived = True


def wrapped(value: Array, bits: int) -> Array:
    """A value as a signed integer of that many bits; one bit stays 0 or 1."""
    if bits == 64:
        return value
    value = np.asarray(value, np.int64) & ((1 << bits) - 1)
    return np.where(value >> (bits - 1), value - (1 << bits), value) if bits > 1 else value
