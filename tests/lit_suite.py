"""The lit suite as pytest sees it: its files, its features, and one run of lit.

Only lit's public command line is used. ``python -m lit.main`` runs nothing and succeeds, and there
is no ``python -m lit``, so ``main`` is called by name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUITE = Path(__file__).parent / "lit"
SUFFIXES = {".mlir", ".py"}
CONFIG = "lit.cfg.py"
INPUTS = "Inputs"
FEATURES = frozenset({"vulkan", "cuda", "hip"})
"""Every word that REQUIRES and UNSUPPORTED may use; lit's ``-D<feature>=1`` turns one on."""

DEADLINE_S = 1800


@dataclass(frozen=True, kw_only=True)
class LitRun:
    """What one run of lit said: its exit code, then each test's code and output by its path."""

    exit_code: int
    codes: dict[str, str]
    outputs: dict[str, str]


def suite_files(suite: Path = SUITE) -> list[Path]:
    """All under the suite that must be a test, sorted: not its config, outputs and inputs."""
    return sorted(
        path
        for path in suite.rglob("*")
        if path.is_file()
        and path.name != CONFIG
        and not {INPUTS, "Output", "__pycache__"} & set(path.relative_to(suite).parts)
    )


def run_lit(tests: Iterable[Path], report: Path, features: Iterable[str] = ()) -> LitRun:
    """Run lit once over ``tests`` and read the report that it writes to ``report``.

    Raises:
        RuntimeError: lit wrote no report, with what it printed instead.
    """
    command = [sys.executable, "-c", "from lit.main import main; main()", "-q"]
    command += ["--output", str(report), *(f"-D{name}=1" for name in sorted(features))]
    run = subprocess.run(
        [*command, *map(str, tests)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    if not report.exists():
        raise RuntimeError(f"lit wrote no report:\n{run.stdout}{run.stderr}")
    results = json.loads(report.read_text())["tests"]
    named = {result["name"].split(" :: ", 1)[1]: result for result in results}
    return LitRun(
        exit_code=run.returncode,
        codes={name: result["code"] for name, result in named.items()},
        outputs={name: result["output"] for name, result in named.items()},
    )
