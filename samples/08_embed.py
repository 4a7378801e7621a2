"""Use a pack in an application: no compiler, only the run time.

    python -m lowering compile samples/01_matmul_f32.mlir --target cpu -o build/matmul
    python samples/08_embed.py build/matmul

Without an argument it compiles the pack itself, in a process of its own, so that it also runs from
a fresh checkout.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from runtime import Session

HERE = Path(__file__).parent


def compile_pack(folder: Path) -> Path:
    """Make the pack once; an application ships it instead."""
    source, pack = HERE / "01_matmul_f32.mlir", folder / "matmul"
    command = [sys.executable, "-m", "lowering", "compile", str(source), "-o", str(pack)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=HERE.parent)
    return pack


def main(pack: Path) -> None:
    """Calls with host arrays, a prepared weight, and arrays that stay on the device."""
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (37, 130)).astype(np.float32)
    weights = rng.integers(-4, 5, (130, 64)).astype(np.float32)
    with Session([pack], device="local-task", tuning="first_use", budget_ms=500) as session:
        session.prewarm("matmul_f32", [(37, 64, 130)])
        print(session.explain("matmul_f32", 37, 64, 130))

        plain = session.matmul_f32(a, weights)

        prepared = session.prepare("matmul_f32", b=weights)
        out = np.empty((37, 64), np.float32)
        session.matmul_f32(a, prepared, out=out)

        on_device = session.matmul_f32(session.array(a), session.array(weights))

    expected = a @ weights  # small integers: exact, whatever the order of the sums
    for name, result in (("plain", plain), ("prepared", out), ("device", on_device.numpy())):
        assert np.array_equal(result, expected), name
        print(f"{name}: right")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(compile_pack(Path(folder)))
