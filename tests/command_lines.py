"""Runs the command lines in this process, as a shell would see them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
Main = Callable[[Sequence[str]], int]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """Exit code, product, diagnostics."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The product as the one JSON document that it must be."""
        return json.loads(self.out)

    def check_refused(self, code: int, text: str = "") -> None:
        """One line of diagnosis, no product but the failures, no traceback."""
        assert self.code == code, self.err
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert "error: " in lines[0]
        assert text in lines[0]
        if self.out:
            failures = self.json["failures"]
            assert failures
            for failure in failures:
                assert set(failure) == {"kind", "message", "where"}
                assert failure["message"] in lines[0]


def run_main(main: Main, capsys: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    """Run a command line here; anything that it raises fails the test."""
    capsys.readouterr()
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return Ran(code=code, out=captured.out, err=captured.err)


def run_process(*arguments: object, stdout: Any = subprocess.PIPE) -> Ran:
    """Run ``python -m`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", *(str(a) for a in arguments)],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    return Ran(code=done.returncode, out=done.stdout or "", err=done.stderr)
