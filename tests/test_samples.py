"""Every sample script runs and checks itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
DEADLINE_S = 300


@pytest.mark.parametrize("script", sorted(path.name for path in SAMPLES.glob("*.py")))
def test_sample(script: str, tmp_path: Path) -> None:
    """The sample ends well, from another folder than its own."""
    run = subprocess.run(
        [sys.executable, str(SAMPLES / script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout}{run.stderr}"
