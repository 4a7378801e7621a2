"""Configuration of the lit suite; the tests' own shell, no site configuration, no look-ups in PATH.

Features come from the caller alone: ``lit -Dvulkan=1 tests/lit`` turns ``REQUIRES: vulkan`` on.
"""
# pyright: reportUndefinedVariable=false
# lit injects `config` and `lit_config`.

import os
import shlex
import sys
from pathlib import Path

import lit.formats

suite = Path(__file__).resolve().parent
checkout = suite.parent.parent
outputs = checkout / "build" / "lit"

config.name = "tilewright"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".py"]
config.excludes = ["lit.cfg.py", "Inputs"]
config.test_source_root = str(suite)
config.test_exec_root = str(outputs)

# -P keeps a test called types.py from hiding the standard library's module.
python = f"{shlex.quote(sys.executable)} -P"
config.substitutions += [
    ("%lowering", f"{python} -m lowering"),
    ("%runtime", f"{python} -m runtime"),
    ("%filecheck", f"{python} -m filecheck --enable-var-scope --dump-input=fail"),
    ("%python", python),
    ("%samples", shlex.quote(str(checkout / "samples"))),
    ("%facts", shlex.quote(str(suite.parent / "fixtures" / "facts"))),
]

# lit starts from an almost empty environment. What picks a device or a BLAS kernel must be the same
# inside as outside, or the caller's features would speak of another device.
forwarded = ("VK_", "CUDA_", "HIP_", "ROCR_", "OPENBLAS_")
config.environment |= {
    name: value for name, value in os.environ.items() if name.startswith(forwarded)
}
config.environment["PYTHONPATH"] = str(checkout)
# The user's own caches and stores stay out of it.
config.environment["XDG_CACHE_HOME"] = str(outputs / "cache")

config.available_features |= {name for name, value in lit_config.params.items() if value == "1"}
