"""What a store leaves behind when a file call fails: the state before or after, nothing else.

The matrix runs each operation again and again, each time with the next file call failing, until
none is left to fail.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dialects.errors import StoreError
from faulty_files import MODES, Crash, Fault, Mode
from runtime.files import SYSTEM, FileCalls, is_temporary
from runtime.store import (
    Store,
    check_directory,
    drop,
    entries,
    export_all,
    import_all,
    verify,
)
from stored_choices import NO_SYNC, PLACE, file_of, filled, made

CODES = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EBUSY, errno.ESTALE)
OTHER = dataclasses.replace(PLACE, key="0123abcd.other.1x2x3.nn")
LEFT = f".{'0' * 32}.tmp"
State = dict[str, bytes]


def files_in(directory: Path) -> State:
    """The content of every file by path, without temporary ones."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not is_temporary(path.name)
    }


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Something that is done to a store's directory, and the state it starts from.

    ``judge`` gets the result (an error is one) and whether the state is after; it asserts that
    the result told the truth.
    """

    name: str
    prepare: Callable[[Path], object]
    act: Callable[[Path, FileCalls], Any]
    judge: Callable[[Any, bool, bool], object]
    several: bool = False  # changes several files: only a single failure is undone


def _told(result: Any, before: bool, after: bool) -> None:
    """A warning unless the value is on disk."""
    assert after or result is not None


def _refused(result: Any, before: bool, after: bool) -> None:
    """An error of the command line unless it was done."""
    assert after or isinstance(result, StoreError)
    assert isinstance(result, StoreError | int | list)


def _missed(result: Any, before: bool, after: bool) -> None:
    """A value, or a miss with a reason."""
    assert result.reason
    assert result.value in (None, made("old"))


def _dropped(result: Any, before: bool, after: bool) -> None:
    """Never the value of another build."""
    assert result.value is None
    assert result.reason
    assert result.dropped is None or after


def _complete(result: Any, before: bool, after: bool) -> None:
    """Every entry, or an error of the command line."""
    assert isinstance(result, StoreError) or len(result["entries"]) == 2


def _old(directory: Path) -> None:
    Store(directory, NO_SYNC).remember(PLACE, "b", made("old"))
    Store(directory, NO_SYNC).remember(OTHER, "b", made("other"))


def _stale(directory: Path) -> None:
    Store(directory, NO_SYNC).remember(PLACE, "stale", made("old"))
    Store(directory, NO_SYNC).remember(OTHER, "b", made("other"))


def _nothing(directory: Path) -> None:
    return None


def _left(directory: Path) -> None:
    _old(directory)
    (file_of(directory).parent / LEFT).write_bytes(b"half")


def _remember(directory: Path, files: FileCalls) -> str | None:
    return Store(directory, files).remember(PLACE, "b", made("new"))


def _recall(directory: Path, files: FileCalls) -> object:
    return Store(directory, files).recall(PLACE, "b")


def _import(directory: Path, files: FileCalls) -> object:
    source = directory.parent / "source"
    if not source.exists():
        filled(source, 2)
        Store(source, NO_SYNC).remember(PLACE, "b", made("imported"))
    return import_all(directory, export_all(source), files)


OPERATIONS = (
    Operation(name="remember first", prepare=_nothing, act=_remember, judge=_told),
    Operation(name="remember again", prepare=_old, act=_remember, judge=_told),
    Operation(name="recall", prepare=_old, act=_recall, judge=_missed),
    Operation(name="recall another build", prepare=_stale, act=_recall, judge=_dropped),
    Operation(name="drop", prepare=_old, act=lambda d, f: drop(d, PLACE.key, f), judge=_refused),
    Operation(name="verify", prepare=_left, act=verify, judge=_refused),
    Operation(name="export", prepare=_old, act=export_all, judge=_complete),
    Operation(name="import", prepare=_old, act=_import, judge=_refused, several=True),
    Operation(
        name="check", prepare=_old, act=lambda d, f: check_directory(d, f), judge=lambda *_: 0
    ),
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A fresh directory for every round of an operation, and its states before and after."""

    operation: Operation
    base: Path
    before: State
    after: State

    def rounds(self, mode: Mode, code: int) -> Iterator[tuple[Path, Fault]]:
        """A directory and a fault for each number, until one is not reached."""
        number = 1
        while True:
            directory = self.base / f"{mode}-{code}-{number}" / "store"
            self.operation.prepare(directory)
            fault = Fault(number=number, mode=mode, code=code)
            yield directory, fault
            if fault.hit is None:
                return
            number += 1


def _bench(operation: Operation, base: Path) -> Bench:
    directory = base / "clean" / "store"
    operation.prepare(directory)
    before = files_in(directory)
    operation.act(directory, SYSTEM)
    return Bench(operation=operation, base=base, before=before, after=files_in(directory))


def _survives(bench: Bench, directory: Path, fault: Fault) -> None:
    """Run with the fault; the disk is as before or after, and works as if nothing had been."""
    result: Any = None
    try:
        result = bench.operation.act(directory, fault.file_calls())
    except (StoreError, Crash) as error:
        result = error
    left_open = set(fault.handles)
    fault.close_left_open()
    state = files_in(directory)
    where = (fault, result)
    if bench.operation.several and fault.mode not in ("instead", "after"):
        allowed = [{**bench.before, **bench.after}, bench.before, bench.after]
        assert all(any(s.get(k) == v for s in allowed) for k, v in state.items()), where
        assert set(state) >= set(bench.before), where
    else:
        assert state in (bench.before, bench.after), where
    if not isinstance(result, Crash):
        assert not left_open, where
        bench.operation.judge(result, state == bench.before, state == bench.after)
    verify(directory)
    assert [p for p in directory.rglob("*.tmp")] == [], where
    assert verify(directory) == [], where
    assert len(entries(directory)) == len(state), where
    assert Store(directory, NO_SYNC).remember(PLACE, "b", made("next")) is None
    assert Store(directory).recall(PLACE, "b").value == made("next")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
def test_every_failing_call_leaves_before_or_after(
    tmp_path: Path,
    operation: Operation,
    mode: Mode,
    record_testsuite_property: Callable[..., None],
) -> None:
    bench = _bench(operation, tmp_path)
    hits: list[str] = []
    for code in (0,) if mode.startswith("crash") else CODES:
        for directory, fault in bench.rounds(mode, code):
            _survives(bench, directory, fault)
            hits += [fault.hit] if fault.hit else []
    record_testsuite_property(f"faults survived: {operation.name}, {mode}", len(hits))
    assert len(set(hits)) >= 2, hits


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: o.name)
@pytest.mark.parametrize("size", [1, 7])
def test_short_reads_and_writes_change_nothing(
    tmp_path: Path, operation: Operation, size: int
) -> None:
    bench = _bench(operation, tmp_path)
    short = dataclasses.replace(
        SYSTEM,
        write=lambda handle, data: os.write(handle, data[:size]),
        read=lambda handle, count: os.read(handle, min(count, size)),
    )
    directory = tmp_path / "short" / "store"
    operation.prepare(directory)
    operation.act(directory, short)
    assert files_in(directory) == bench.after


@pytest.mark.parametrize("code", [*CODES, 0])
def test_a_write_cut_short_and_then_refused_leaves_the_old_value(tmp_path: Path, code: int) -> None:
    _old(tmp_path)
    before = files_in(tmp_path)
    for room in range(0, len(before[PLACE.path.as_posix()]), 37):
        left = [room]

        def write(handle: int, data: bytes, left: list[int] = left) -> int:
            if not left[0] and code:
                raise OSError(code, os.strerror(code))
            written = os.write(handle, data[: left[0]])  # without a code it writes 0 bytes for ever
            left[0] -= written
            return written

        store = Store(tmp_path, dataclasses.replace(SYSTEM, write=write))
        assert store.remember(PLACE, "b", made("new")) is not None
        assert files_in(tmp_path) == before
        assert [p for p in tmp_path.rglob("*.tmp")] == []


def test_the_bytes_are_synced_before_they_are_seen_and_the_name_after(tmp_path: Path) -> None:
    _old(tmp_path)
    log: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            log.append(name)
            return getattr(SYSTEM, name)(*arguments)

        return call

    calls = FileCalls(**{f.name: noted(f.name) for f in dataclasses.fields(FileCalls)})
    assert _remember(tmp_path, calls) is None
    assert log == ["open", "write", "fsync", "close", "replace", "open", "fsync", "close"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_sync_a_directory_still_persists(
    tmp_path: Path, code: int
) -> None:
    def fsync(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(code, os.strerror(code))
        os.fsync(handle)

    store = Store(tmp_path, dataclasses.replace(SYSTEM, fsync=fsync))
    assert store.remember(PLACE, "b", made()) is None
    assert store.persists


@pytest.mark.parametrize("mode", ["instead", "after"])
def test_a_failed_import_puts_back_what_it_replaced(tmp_path: Path, mode: Mode) -> None:
    bench = _bench(OPERATIONS[7], tmp_path)
    undone = 0
    for directory, fault in bench.rounds(mode, errno.EIO):
        with suppress(StoreError):
            bench.operation.act(directory, fault.file_calls())
        undone += fault.hit == "replace" and files_in(directory) == bench.before
    assert undone == 3
