"""A process that writes to a store until it is killed."""

from __future__ import annotations

import dataclasses
import os
from multiprocessing.connection import Connection
from pathlib import Path

from runtime.store import Location, Store, StoredChoice

SHARED = "shared"


def value_of(writer: str, turn: int) -> StoredChoice:
    """What a writer stores in its turn; the size changes, so that two of them never mix."""
    return StoredChoice(
        kernel="k",
        member=writer,
        body="software",
        code_hash="",
        margin_permille=turn,
        tie=False,
        samples={"a": (float(turn),) * (1 + turn % 200)},
        taken=(),
        clocks=None,
        timer="host",
    )


def write_for_ever(
    directory: Path, place: Location, writer: str, turn: int, acknowledged: Connection
) -> None:
    """Write the writer's own key and the shared one in turns, and say what is on disk."""
    store = Store(directory)
    while True:
        turn += 1
        for key in (writer, SHARED):
            location = dataclasses.replace(place, key=key)
            warning = store.remember(location, "b", value_of(writer, turn))
            assert warning is None, warning
            # One write of a short line is never torn, unlike a message of the connection.
            os.write(acknowledged.fileno(), f"{key} {turn}\n".encode())
