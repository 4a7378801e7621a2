"""Golden files: whole texts, such as a manifest or a table, that a test compares byte by byte."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
UPDATE = "--update-golden"


@dataclass(frozen=True, kw_only=True)
class Golden:
    """The golden files of one test. ``update`` writes what is given where it would compare."""

    stem: Path
    update: bool

    @classmethod
    def of_test(cls, module: str, test: str, *, update: bool, folder: Path = FOLDER) -> Golden:
        """Those of a test: ``test_pack`` and ``test_table[cpu]`` give ``pack/table-cpu``."""
        name = re.sub(r"[^\w.]+", "-", test.removeprefix("test_")).strip("-")
        return cls(stem=folder / module.removeprefix("test_") / name, update=update)

    def check(self, text: str, suffix: str = ".txt") -> None:
        """Fail unless the golden file with that suffix holds exactly ``text``."""
        path = self.stem.with_name(self.stem.name + suffix)
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}: look at the text, then run with {UPDATE}\n{text}")
        golden = path.read_text(encoding="utf-8")
        assert text == golden, f"differs from {path}: if that is right, run with {UPDATE}"
