"""Runs a tool as a child process with a deadline, and ends its whole group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dialects.errors import CompileError, DeadlineError


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A child that ended by itself: its exit code, negative for a signal, and what it printed."""

    code: int
    output: bytes
    diagnostics: bytes

    @property
    def text(self) -> str:
        """All that it printed."""
        return (self.output + self.diagnostics).decode(errors="replace")


def run_child(
    command: Sequence[str], folder: Path, deadline_s: float, what: str, *, where: str
) -> Ended:
    """Run ``command`` in ``folder`` without input; ``what`` is how messages call it.

    Raises:
        DeadlineError: it ran past the deadline, and was ended with all that it had started.
        CompileError: there is no such program.
    """
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CompileError(f"cannot run {what}: {error.strerror}", where=where) from None
    try:
        output, diagnostics = child.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        text = f"{what} ran past its deadline of {deadline_s:g} s"
        raise DeadlineError(text, where=where) from None
    finally:
        _end(child)
    return Ended(code=child.returncode, output=output, diagnostics=diagnostics)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's whole process group, whatever it has started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
