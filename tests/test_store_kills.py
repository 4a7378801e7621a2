"""Writers that are killed again and again: no value that was acknowledged is lost."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from runtime.files import is_temporary
from runtime.store import Store, StoredChoice, entries, verify
from store_writer import SHARED, value_of, write_for_ever
from stored_choices import PLACE

ROUNDS, FULL_ROUNDS = 50, 1000
WRITERS = ("own0", "own1", "own2", "own3")


def _round(directory: Path, turns: dict[str, int], delay: float) -> dict[str, int]:
    """Start all writers, kill them once each has written; the last turn each acknowledged."""
    # A server that has imported everything once makes a writer in a few milliseconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["store_writer", "runtime.store", "pytest"])
    processes, pipes = [], []
    for writer, turn in turns.items():
        reading, writing = context.Pipe(duplex=False)
        arguments = (directory, PLACE, writer, turn, writing)
        process = context.Process(target=write_for_ever, args=arguments, daemon=True)
        process.start()
        writing.close()
        processes.append(process)
        pipes.append(reading)
    said = [os.read(pipe.fileno(), 1 << 16) for pipe in pipes]
    time.sleep(delay)
    for process in processes:
        process.kill()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL] * len(processes)
    texts = [first + _rest(pipe) for first, pipe in zip(said, pipes, strict=True)]
    return {w: _last_turn(w, text) for w, text in zip(turns, texts, strict=True)}


def _rest(pipe: Connection) -> bytes:
    text = b""
    while part := os.read(pipe.fileno(), 1 << 16):
        text += part
    pipe.close()
    return text


def _last_turn(writer: str, text: bytes) -> int:
    lines = [line.split() for line in text.decode().splitlines()]
    return max(int(turn) for key, turn in lines if key == writer)


def _value(directory: Path, key: str) -> StoredChoice:
    recalled = Store(directory).recall(dataclasses.replace(PLACE, key=key), "b")
    assert recalled.value is not None, (key, recalled.reason)
    assert recalled.value == value_of(recalled.value.member, recalled.value.margin_permille)
    return recalled.value


def test_killed_writers_lose_nothing(
    tmp_path: Path, request: pytest.FixtureRequest, record_testsuite_property: Callable[..., None]
) -> None:
    rounds = FULL_ROUNDS if request.config.getoption("--full", default=False) else ROUNDS
    chance = random.Random(7)
    turns: dict[str, int] = dict.fromkeys(WRITERS, 0)
    left = 0
    for _ in range(rounds):
        acknowledged = _round(tmp_path, turns, chance.uniform(0, 0.02))
        for writer in WRITERS:
            value = _value(tmp_path, writer)
            # One more than was acknowledged may be there: killed before it could say so.
            assert value.member == writer
            assert acknowledged[writer] <= value.margin_permille <= acknowledged[writer] + 1
            assert value.margin_permille > turns[writer]
            turns[writer] = value.margin_permille
        assert _value(tmp_path, SHARED).member in WRITERS
        odd = verify(tmp_path)
        assert all(is_temporary(path.name) for path, _ in odd), odd
        left += len(odd)
    record_testsuite_property("temporary files of killed writers", left)
    assert left > 0  # otherwise no kill ever came in the middle of a write
    assert len(entries(tmp_path)) == len(WRITERS) + 1
    assert verify(tmp_path) == []
