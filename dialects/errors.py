"""Typed errors that both halves of the project raise and the command lines print."""

from __future__ import annotations

from typing import ClassVar


class Error(Exception):
    """Base of every error a user may see.

    ``message`` is lower case and says what was found and what was required; ``where`` is a file,
    an MLIR location or an operand, when there is one.
    """

    kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def failures(self) -> list[dict[str, str | None]]:
        """The records of this error in the JSON contract of the command lines."""
        return [{"kind": self.kind, "message": self.message, "where": self.where}]

    def lines(self) -> list[str]:
        """What a command line prints on stderr, one line a failure."""
        texts = [
            f"{f['where']}: error: {f['message']}" if f["where"] else f"error: {f['message']}"
            for f in self.failures()
        ]
        return [" ".join(text.splitlines()) for text in texts]


class UsageError(Error):
    """Arguments that cannot mean anything; the command lines exit with 2."""

    kind = "usage"


class ExpressionError(Error):
    """A constant expression that does not parse, or that names something unbound."""

    kind = "expression"


class DeclarationError(Error):
    """An ``xpu.*`` attribute that is unknown, malformed or false."""

    kind = "declaration"


class ParseError(Error):
    """Input IR that does not parse or does not verify."""

    kind = "parse"


class UnsupportedError(Error):
    """A kernel or type that no body covers, with the spelling that works."""

    kind = "unsupported"


class TargetError(Error):
    """A target or facts file that is not understood."""

    kind = "target"


class CompileError(Error):
    """The back end refused, crashed, or ran past its deadline."""

    kind = "compile"


class DeadlineError(CompileError):
    """The back end, or a tool that reads its output, ran past the deadline of a child process."""


class FormatError(Error):
    """A JSON document of ours (manifest, facts, store entry) that is malformed."""

    kind = "format"


class PackError(Error):
    """A pack that is damaged, cut off, or made for another schema or runtime."""

    kind = "pack"


class DeviceError(Error):
    """A device that is not there, or that failed."""

    kind = "device"


class OperandError(Error):
    """An operand of the wrong rank, type, byte order, shape or device."""

    kind = "operand"


class ProblemError(Error):
    """Sizes that are negative, too large, or disagree."""

    kind = "problem"


class LaunchRefused(Error):
    """No member of a family can run the problem on this device (seed section 2)."""

    kind = "refused"


class StoreError(Error):
    """A store directory that the command was told to use and cannot."""

    kind = "store"


class Failures(Error):
    """Several failures that are reported together, then raised once (seed section 1, gates)."""

    kind = "failures"

    def __init__(self, errors: list[Error]) -> None:
        super().__init__("; ".join(str(e) for e in errors))
        self.errors = errors

    def failures(self) -> list[dict[str, str | None]]:
        return [record for error in self.errors for record in error.failures()]
