"""Golden files fail when they are missing or differ, and are written only when asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden_files import Golden


def golden(folder: Path, *, update: bool = False) -> Golden:
    """The golden files of a test of this name, in a folder of its own."""
    return Golden.of_test("test_pack", "test_table[cpu-2x3]", update=update, folder=folder)


def test_missing_file_fails_with_the_hint(tmp_path: Path) -> None:
    """Without a golden file nothing passes, and nothing is written."""
    with pytest.raises(pytest.fail.Exception, match="--update-golden"):
        golden(tmp_path).check("a\n")
    assert list(tmp_path.iterdir()) == []


def test_update_writes_and_later_runs_compare(tmp_path: Path) -> None:
    """What was written compares equal, to the byte; anything else fails."""
    golden(tmp_path, update=True).check("a\n", ".json")
    assert (tmp_path / "pack" / "table-cpu-2x3.json").read_bytes() == b"a\n"
    golden(tmp_path).check("a\n", ".json")
    with pytest.raises(AssertionError, match="differs from"):
        golden(tmp_path).check("a", ".json")
