"""Options that every command which chooses and runs has, and the session that they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from dialects.errors import UsageError

from . import store
from .executors import EXECUTORS
from .session import Session
from .shape_choice import Tuning
from .timer import CACHE_POLICIES

CLI_BUDGET_MS = 20000.0  # a person waits for the answer; the library's default is a second


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that chooses and runs."""
    parser.add_argument("--device", default="local-task", metavar="URI")
    parser.add_argument(
        "--executor", choices=EXECUTORS, help="who launches the kernels; direct is for CUDA"
    )
    parser.add_argument("--store", metavar="DIR", help="remember choices here, not in the cache")
    parser.add_argument("--budget-ms", type=float, default=CLI_BUDGET_MS, metavar="MS")
    parser.add_argument(
        "--caches",
        default="hot",
        choices=CACHE_POLICIES,
        help="time with hot caches, or cold ones by rotating buffers",
    )
    parser.add_argument("--member", metavar="NAME", help="force a candidate")
    parser.add_argument(
        "--against", default="numpy,iree_default", metavar="PEERS", help="peers, by commas"
    )


def peer_names(args: argparse.Namespace, known: Sequence[str]) -> tuple[str, ...]:
    """The peers that ``--against`` asks for.

    Raises:
        UsageError: one that is not among the ``known`` of the command.
    """
    names = tuple(p for p in args.against.split(",") if p)
    for name in names:
        if name not in known:
            raise UsageError(f"peer '{name}' is not one of {', '.join(known)}")
    return names


def kernel_name(names: Sequence[str], asked: str | None) -> str:
    """The kernel to use of a pack's: the one asked for, or the only one.

    Raises:
        UsageError: there are several and none was named.
    """
    if not asked and len(names) != 1:
        raise UsageError(f"the pack has {len(names)} kernels, name one: {', '.join(names)}")
    return asked or names[0]


def session_for(
    pack: Path | str,
    args: argparse.Namespace,
    default_store: Callable[[], Path] | None,
    tuning: Tuning = "first_use",
) -> Session:
    """A session with the device, budget and store of the arguments.

    Raises:
        StoreError: the named directory cannot hold a store.
        UsageError: a budget that is none.
    """
    if args.store:
        store.check_directory(Path(args.store))
    if not args.budget_ms > 0:
        raise UsageError(f"--budget-ms must be positive, found {args.budget_ms:g}")
    otherwise = default_store() if default_store is not None and not args.store else None
    directory = Path(args.store) if args.store else otherwise
    return Session(
        [pack],
        device=args.device,
        executor=args.executor or "iree",
        store=directory,
        tuning=tuning,
        budget_ms=args.budget_ms,
        cache=args.caches,
    )
