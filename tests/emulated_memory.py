"""Memory that notices what a device would not: what nobody wrote, races, stray addresses."""

from __future__ import annotations

import numpy as np

SEVERAL = -2  # in place of the one lane that has read an element since the last barrier


class EmulatorError(AssertionError):
    """The kernel did what no correct one does."""


class Memory:
    """Cells that lanes load and store: a buffer (of all groups) or workgroup memory (one a group).

    ``content`` is the bytes, cells of ``cell`` bytes: what is left over at the end is out of reach.
    Every load and store names the lanes that take part and their groups; ``epoch`` counts barriers.
    """

    def __init__(
        self, name: str, content: np.ndarray, cell: int, *, shared: bool, read_only: bool = False
    ) -> None:
        groups, size = content.shape
        self.name, self.cell, self.shared, self.read_only = name, cell, shared, read_only
        self.cells = size // cell
        self.content = content[:, : self.cells * cell].reshape(groups, self.cells, cell)
        self.stores = np.zeros((groups, self.cells), np.int64)
        self.used = -1  # the last epoch with a load or a store
        if shared:
            self.writer, self.written, self.reader, self.read = (
                np.full((groups, self.cells), -1, np.int64) for _ in range(4)
            )
            self.unread = np.zeros((groups, self.cells), bool)

    def _at(
        self, group: np.ndarray, index: np.ndarray, count: int, alignment: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where ``count`` neighbouring cells of each lane lie, when all of them do."""
        if index.size and int(index.max()) + count > self.cells:
            raise EmulatorError(f"{self.name}: cell {index.max()} (+{count}) of {self.cells}")
        if np.any(index * np.uint64(self.cell) % np.uint64(alignment)):
            raise EmulatorError(f"{self.name}: an access is not aligned to {alignment} B")
        cells = index.astype(np.int64)[:, None] + np.arange(count)
        where = group if self.shared else np.zeros_like(group)
        return np.broadcast_to(where[:, None], cells.shape), cells

    def load(
        self,
        group: np.ndarray,
        index: np.ndarray,
        lane: np.ndarray,
        epoch: int,
        *,
        count: int = 1,
        alignment: int = 1,
    ) -> np.ndarray:
        """The bytes of ``count`` cells for each lane."""
        at, self.used = self._at(group, index, count, alignment), epoch
        if self.shared:
            who = np.broadcast_to(lane[:, None], at[1].shape)
            if np.any(self.written[at] < 0):
                raise EmulatorError(f"{self.name}: reads what nobody wrote")
            if np.any((self.written[at] == epoch) & (self.writer[at] != who)):
                raise EmulatorError(f"{self.name}: reads what another lane writes, no barrier")
            several = (self.read[at] == epoch) & (self.reader[at] != who)
            mark = np.where(several, SEVERAL, who)
            self.reader[at], self.read[at] = mark, epoch
            met = self.reader[at] != mark  # lanes that read one cell in this very access
            self.reader[at[0][met], at[1][met]] = SEVERAL
            self.unread[at] = False
        return self.content[at].reshape(len(index), count * self.cell)

    def store(
        self,
        group: np.ndarray,
        index: np.ndarray,
        values: np.ndarray,
        lane: np.ndarray,
        epoch: int,
        *,
        alignment: int = 1,
    ) -> None:
        """``values`` are bytes, a row a lane."""
        if self.read_only:
            raise EmulatorError(f"{self.name}: is only read")
        count = values.shape[1] // self.cell
        at, self.used = self._at(group, index, count, alignment), epoch
        who = np.broadcast_to(lane[:, None], at[1].shape)
        before = self.stores[at]
        np.add.at(self.stores, at, 1)
        if np.any(self.stores[at] != before + 1):
            raise EmulatorError(f"{self.name}: two lanes store one cell")
        if self.shared:
            met = (self.written[at] == epoch) & (self.writer[at] != who)
            met |= (self.read[at] == epoch) & (self.reader[at] != who)
            if np.any(met):
                raise EmulatorError(f"{self.name}: writes what another lane uses, no barrier")
            if np.any(self.unread[at] & self.content[at].any(axis=-1)):
                raise EmulatorError(f"{self.name}: writes over what nobody read")
            self.written[at], self.writer[at], self.unread[at] = epoch, who, True
        self.content[at] = values.reshape(len(index), count, self.cell)
