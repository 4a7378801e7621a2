"""What the programs about choices share: options, a session, who was measured."""

from __future__ import annotations

import argparse
import datetime
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from runtime import Session
from runtime.executors import EXECUTORS, ExecutorName
from runtime.shape_choice import Tuning
from runtime.timer import CACHE_POLICIES, CachePolicy


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How sessions are opened; ``store`` None remembers in memory only."""

    device: str
    executor: ExecutorName
    cache: CachePolicy
    budget_ms: float
    store: str | None = None
    thorough_s: float = 0.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Pack, kernel and session."""
    parser.add_argument("pack")
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--device", default="local-task")
    parser.add_argument("--executor", choices=EXECUTORS, default="iree")
    parser.add_argument("--caches", choices=CACHE_POLICIES, default="hot")
    parser.add_argument("--budget-ms", type=float, default=1000.0)
    parser.add_argument("--out", help="write everything here as JSON")


def asked_of(args: argparse.Namespace) -> Asked:
    """The session of the options."""
    return Asked(
        device=args.device, executor=args.executor, cache=args.caches, budget_ms=args.budget_ms
    )


def opened(pack: str, asked: Asked, *, tuning: Tuning = "first_use", facts: Any = None) -> Session:
    """A session as asked for."""
    return Session(
        pack,
        device=asked.device,
        executor=asked.executor,
        store=asked.store,
        tuning=tuning,
        budget_ms=asked.budget_ms,
        cache=asked.cache,
        facts=facts,
    )


def parse_shapes(text: str) -> list[tuple[int, ...]]:
    """Sizes of each shape."""
    return [tuple(int(s) for s in shape.split("x")) for shape in text.split(",")]


def processor() -> str:
    """The model that Linux reports, or the machine's family."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} threads" if names else platform.machine()


def device_json(session: Session, asked: Asked) -> dict[str, Any]:
    """Who was measured, and how."""
    cpu = session.device.backend == "cpu"
    return {
        "device": processor() if cpu else session.facts.name or session.device.uri,
        "driver": session.facts.driver,
        "versions": {
            "iree-base-runtime": version("iree-base-runtime"),
            "numpy": version("numpy"),
            "python": platform.python_version(),
        },
        "date": datetime.date.today().isoformat(),
        "executor": asked.executor,
        "caches": asked.cache,
    }
