"""Imports point one way: lowering to dialects, runtime to dialects, and never to the compiler."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from source_tree import PACKAGES, ROOT, imported_names, is_cli, product_files

ALLOWED = {
    "dialects": {"dialects"},
    "lowering": {"dialects", "lowering"},
    "runtime": {"dialects", "runtime"},
}
# Modules in the language of a package that is none of ours: they load where it is installed.
OPTIONAL = {"runtime.cuda.triton_matmul": "triton"}
IR_BINDINGS = ("iree.compiler.ir", "iree.compiler._mlir_libs")


def is_within(name: str, module: str) -> bool:
    """Whether a dotted name is that module or lies in it."""
    return name == module or name.startswith(f"{module}.")


def violations(source: str, file: str) -> list[str]:
    """The imports of a product file that its place forbids."""
    package = Path(file).parts[0]
    names = sorted(imported_names(source, file))
    allowed = set(ALLOWED[package])
    if package == "lowering" and len(Path(file).parts) == 2 and is_cli(file):
        allowed.add("runtime")
    wrong = [
        name for name in names if (top := name.split(".")[0]) in PACKAGES and top not in allowed
    ]
    if package != "lowering":
        wrong += [name for name in names if is_within(name, "iree.compiler")]
    elif file != "lowering/ir.py":
        wrong += [name for name in names if any(is_within(name, m) for m in IR_BINDINGS)]
    if package == "dialects":
        wrong += [name for name in names if is_within(name, "iree")]
    return wrong


@pytest.mark.parametrize("file", product_files())
def test_imports_point_one_way(file: str) -> None:
    """Each file imports only what its package may."""
    assert violations((ROOT / file).read_text(), file) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("dialects/rules.py", "from lowering import ir"),
        ("dialects/rules.py", "import runtime.store"),
        ("dialects/rules.py", "import iree.runtime"),
        ("dialects/rules.py", "from ..runtime import store"),
        ("lowering/gates.py", "def f():\n    import runtime"),
        ("lowering/passes/cli_like.py", "from ..cli import runtime\nimport runtime"),
        ("lowering/passes/tier.py", "from iree.compiler import ir"),
        ("lowering/compile.py", "from iree.compiler.ir import Module"),
        ("runtime/load.py", "from lowering.ir import parse"),
        ("runtime/load.py", "import iree.compiler.tools"),
        ("runtime/load.py", "from iree import compiler"),
        ("runtime/facts/cpu.py", "from ...lowering import target"),
        ("runtime/load.py", "import importlib\nimportlib.import_module('iree.compiler')"),
    ],
)
def test_a_wrong_arrow_is_seen(file: str, source: str) -> None:
    """The check fires on each kind of import that it forbids."""
    assert violations(source, file)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("dialects/rules.py", "from .facts import DeviceFacts\nimport math"),
        ("lowering/passes/tier.py", "from .. import ir\nfrom dialects.rules import judge"),
        ("lowering/ir.py", "from iree.compiler import ir"),
        ("lowering/compile.py", "import iree.compiler.tools"),
        ("lowering/cli_run.py", "from runtime import Session"),
        ("lowering/__main__.py", "from .cli import main"),
        ("runtime/facts/vulkan.py", "from ..timer import Timer\nimport iree.runtime"),
    ],
)
def test_a_right_arrow_is_let_through(file: str, source: str) -> None:
    """The check is silent where an import may stand."""
    assert violations(source, file) == []


def test_runtime_loads_no_compiler() -> None:
    """All of the runtime, imported in a fresh process, loads neither compiler nor lowering."""
    modules = [
        ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
        for file in product_files()
        if file.startswith("runtime/") and not file.endswith("__main__.py")
    ]
    modules = [m for m in modules if m not in OPTIONAL or find_spec(OPTIONAL[m])]
    code = (
        "import importlib, sys\n"
        f"for name in {['runtime', *modules]!r}: importlib.import_module(name)\n"
        "print([m for m in sys.modules if f'{m}.'.startswith(('lowering.', 'iree.compiler.'))])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
