"""What both command lines share: arguments, errors and their exit codes, tables, progress."""

from __future__ import annotations

import argparse
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from dialects.errors import DeviceError, Error, ProblemError, UsageError

from .files import describe

WIDE = 200  # columns of a table that nobody's terminal bounds
OK, FAILED, USAGE = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Where the product and the diagnostics go."""

    out: TextIO
    err: TextIO

    def table(self, *parts: Any) -> None:
        """Print tables and lines as the product."""
        width = None if self.out.isatty() else WIDE
        console = Console(file=self.out, width=width, highlight=False, markup=False, emoji=False)
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))

    def json(self, value: Any) -> None:
        """Print one JSON document as the product."""
        self.out.write(json.dumps(value, indent=1) + "\n")

    def note(self, text: str) -> None:
        """Print one diagnostic line."""
        self.err.write(text + "\n")

    def escape(self) -> None:
        """Let no text fail to print: what the terminal's encoding lacks is escaped."""
        for stream in (self.out, self.err):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")

    def discard(self) -> None:
        """Send the rest of the product nowhere, so that the interpreter's last flush is quiet."""
        with suppress(OSError, ValueError):  # a stream without a file has no such flush
            handle = self.out.fileno()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, handle)
            os.close(nowhere)

    @contextmanager
    def progress(self, title: str, total: int | None) -> Iterator[Callable[[str], None]]:
        """A bar on a terminal, silent elsewhere; call what it yields once a finished step."""
        console = Console(file=self.err)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(
            *columns, console=console, transient=True, disable=not self.err.isatty()
        ) as bar:
            task = bar.add_task(title, total=total)

            def step(name: str) -> None:
                bar.update(task, advance=1, description=f"{title} {name}")

            yield step


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours, so that they print and exit as all others do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


Command = Callable[[argparse.Namespace, Streams], int]


def add_json(parser: argparse.ArgumentParser, command: Command) -> None:
    """Give a sub-command its function and ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(command=command)


def run_command(parser: argparse.ArgumentParser, argv: Sequence[str], streams: Streams) -> int:
    """Parse, run ``args.command`` and turn its errors into lines, JSON and an exit code."""
    streams.escape()
    try:
        code = _run(parser, argv, streams)
        streams.out.flush()
        return code
    except BrokenPipeError:
        streams.discard()
        return FAILED
    except OSError as error:
        streams.discard()
        streams.note(f"error: cannot write the output: {describe(error)}")
        return FAILED


def _run(parser: argparse.ArgumentParser, argv: Sequence[str], streams: Streams) -> int:
    """The exit code; an OSError that leaves here comes from writing the product."""
    wants_json = "--json" in argv
    try:
        args = parser.parse_args(list(argv))
        return args.command(args, streams)
    except SystemExit as stop:  # --help
        return int(stop.code or 0)
    except UsageError as error:
        return _report(error, streams, wants_json, USAGE)
    except Error as error:
        return _report(error, streams, wants_json, FAILED)
    except MemoryError:
        return _report(DeviceError("this machine lacks the memory"), streams, wants_json, FAILED)
    except KeyboardInterrupt:
        streams.note("error: interrupted")
        return 130
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        failure = Error(describe(error), where=str(error.filename))
        return _report(failure, streams, wants_json, FAILED)


def _report(error: Error, streams: Streams, wants_json: bool, code: int) -> int:
    for line in error.lines():
        streams.note(line)
    if wants_json:
        streams.json({"failures": error.failures()})
    return code


def parse_shape(text: str) -> tuple[int, ...]:
    """The sizes of ``512x4096x4096``.

    Raises:
        ProblemError: a part that is no integer, or negative.
    """
    sizes = []
    for part in text.split("x"):
        digits = part.strip()
        plain = digits.isascii() and digits.removeprefix("-").isdecimal()
        if not plain or len(digits) > 30:
            raise ProblemError(f"shape '{text}': '{part}' is not a whole number")
        sizes.append(int(digits))
        if sizes[-1] < 0:
            raise ProblemError(f"shape '{text}': {digits} is negative")
    return tuple(sizes)
