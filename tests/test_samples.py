"""Every sample script runs and checks itself; every sample kernel has a candidate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lowering.build import BuildOptions, lower
from lowering.target import parse_target

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


@pytest.mark.parametrize("target", ["cpu", "vulkan", "cuda:sm_90a", "rocm:gfx1100"])
@pytest.mark.parametrize("source", sorted(path.name for path in SAMPLES.glob("*.mlir")))
def test_sample_kernels(source: str, target: str) -> None:
    """One source serves every back end, and says in its first lines how to run it."""
    text = (SAMPLES / source).read_text()
    candidates, _ = lower(text, source, parse_target(target), BuildOptions())
    kernels = {c.info.kernel for c in candidates}
    assert len(kernels) == text.count("xpu.kernel,")
    assert text.startswith("// ")
