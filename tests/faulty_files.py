"""File calls of which the n-th fails, for tests of what a store leaves behind."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Literal

from runtime.files import SYSTEM, FileCalls
from stored_choices import NO_SYNC

# instead: the call does nothing and fails. after: it is done, then fails, as a network file system
# may. always: this call and every later one does nothing and fails. crash and crash-after: the
# process is gone at that call, before or after it is done, so that nothing later happens.
Mode = Literal["instead", "after", "always", "crash", "crash-after"]
MODES: tuple[Mode, ...] = ("instead", "after", "always", "crash", "crash-after")


class Crash(BaseException):
    """The process ended here: nothing that the product does afterwards reaches the disk."""


@dataclasses.dataclass(kw_only=True)
class Fault:
    """Fails the ``number``-th call, counted from 1, with ``code``; ``hit`` names that call."""

    number: int
    mode: Mode
    code: int = 0
    calls: int = 0
    hit: str | None = None
    handles: set[int] = dataclasses.field(default_factory=set)

    def file_calls(self) -> FileCalls:
        """The system's calls with this fault among them; a sync that works costs nothing."""
        names = [field.name for field in dataclasses.fields(FileCalls)]
        return FileCalls(**{name: self._wrapped(name, getattr(NO_SYNC, name)) for name in names})

    def close_left_open(self) -> None:
        """Close what a crashed process would have closed by ending."""
        for handle in self.handles:
            os.close(handle)
        self.handles.clear()

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any) -> Any:
            self.calls += 1
            first = self.calls == self.number
            if first:
                self.hit = name
            if self.mode.startswith("crash") and self.calls >= self.number:
                if first and self.mode == "crash-after":
                    self._do(name, call, arguments)
                raise Crash
            if not first and not (self.mode == "always" and self.calls > self.number):
                return self._do(name, call, arguments)
            # A close that fails has closed the handle all the same.
            if self.mode == "after" or name == "close":
                result = self._do(name, call, arguments)
                if name == "open":
                    self._do("close", SYSTEM.close, (result,))
            raise OSError(self.code, os.strerror(self.code))

        return wrapper

    def _do(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        result = call(*arguments)
        if name == "open":
            self.handles.add(result)
        elif name == "close":
            self.handles.discard(arguments[0])
        return result
