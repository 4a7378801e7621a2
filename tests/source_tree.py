"""The checkout's source files, for tests that read them."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("dialects", "lowering", "runtime")


def product_files() -> list[str]:
    """Python files of the three packages, relative to the checkout."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )


def committed_files() -> list[Path]:
    """The files that git has or would take; all but hidden and built ones where there is no git."""
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(p.startswith(".") or p == "build" for p in path.relative_to(ROOT).parts)
        ]
    return sorted(path for path in paths if path.is_file())


def imported_names(source: str, file: str) -> set[str]:
    """Full dotted names of all that a module imports, wherever in it, relative imports resolved.

    ``from a import b`` gives both ``a`` and ``a.b``: b may be a module. Calls of ``import_module``
    and ``__import__`` on a literal count as imports.
    """
    package = Path(file).with_suffix("").parts[:-1]  # an __init__ is relative to its own folder too
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=module, names=aliases, level=level):
                anchor = list(package[: len(package) - level + 1]) if level else []
                base = ".".join([*anchor, *([module] if module else [])])
                names |= {base, *(f"{base}.{alias.name}" for alias in aliases)}
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names.add(f"{'.'.join(package)}{name}" if name.startswith(".") else name)
    return names


def is_cli(file: str) -> bool:
    """Whether a product file is a command line, which may print and hand over to the other half."""
    name = Path(file).name
    return name == "__main__.py" or name.startswith("cli")
