"""A measuring process that misbehaves: ``fake_worker.py LOG MODE VICTIM``.

It speaks the worker's protocol without a device. Its process id is appended to LOG; when it comes
to the candidate VICTIM it does what MODE says.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any


def say(event: Any) -> None:
    """One line."""
    print(json.dumps(event), flush=True)


def close_output() -> None:
    """Go on living without a voice."""
    os.close(1)
    time.sleep(600)


def spoil_encoding() -> None:
    """Bytes that are no text."""
    os.write(1, b"\xff\xfe\n")
    time.sleep(600)


MODES: dict[str, Callable[[], object]] = {
    "well": lambda: None,
    "traps": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "aborts": lambda: os.kill(os.getpid(), signal.SIGABRT),
    "hangs": lambda: time.sleep(600),
    "exits": lambda: os._exit(3),
    "ends": lambda: os._exit(0),
    "prints garbage": lambda: print("Segmentation fault?", flush=True) or time.sleep(600),
    "prints a list": lambda: say([1, 2]),
    "prints what nobody knows": lambda: say({"progress": 7}),
    "prints half a line": lambda: print('{"step": "pro', end="", flush=True) or os._exit(0),
    "prints bad samples": lambda: say({"end": "complete", "samples": {"a": ["fast"]}}),
    "prints no text": spoil_encoding,
    "closes its output": close_output,
    "reports a failure": lambda: say({"failed": sys.argv[3], "reason": "wrong in 1 of 9 elements"}),
    "reports an error": lambda: say({"error": "the device is gone"}),
}


def trial(names: list[str]) -> None:
    """Answer one request."""
    for name in names:
        say({"step": "prove", "name": name})
        if name == sys.argv[3]:
            MODES[sys.argv[2]]()
    say({"end": "complete", "samples": {n: [float(i)] * 5 for i, n in enumerate(names, 1)}})


def main() -> None:
    """Serve until the input ends."""
    with open(sys.argv[1], "a") as log:
        log.write(f"{os.getpid()}\n")
    match sys.argv[2]:
        case "never starts":
            time.sleep(600)
        case "exits at once":
            sys.exit(7)
        case "greets wrongly":
            say({"hello": "world"})
        case "has no device":
            say({"error": "cannot open device 'x'"})
            sys.exit(1)
    say({"ready": "here"})
    for line in sys.stdin:
        trial(json.loads(line)["names"])


if __name__ == "__main__":
    main()
