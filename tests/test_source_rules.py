"""House rules that no linter knows: what may not stand in the product, or in any file."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from source_tree import PACKAGES, ROOT, committed_files, is_cli, product_files

LONGEST_FILE = 400
DEVICE = re.compile(
    r"h100|h200|a100|rtx ?[0-9]{4}|radeon|geforce|8060s|7900|mi[23][0-9]0|llvmpipe|lavapipe", re.I
)
HOME_FOLDER = re.compile(
    r"(?<![\w.~-])/(?:root|(?:home|Users)/[A-Za-z_][\w.-]*)(?=[/\s\"'`:,)]|$)", re.M
)
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def broken_rules(source: str, file: str) -> list[str]:
    """What a product file does that the library must not, as ``line: what``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in ENVIRONMENT:
                found.append((node.lineno, f"os.{name}"))
            case ast.ImportFrom(module="os", names=aliases):
                found += [(node.lineno, f"os.{a.name}") for a in aliases if a.name in ENVIRONMENT]
            case ast.Call(func=ast.Name(id="print")) if not is_cli(file):
                found.append((node.lineno, "print"))
            case ast.ExceptHandler() if _is_broad(node.type) and _does_nothing(node.body):
                found.append((node.lineno, "broad except that swallows"))
            case ast.With() if any(_suppresses_all(item.context_expr) for item in node.items):
                found.append((node.lineno, "broad except that swallows"))
    found += [
        (number, f"names a device: {match[0]}")
        for number, line in enumerate(source.splitlines(), 1)
        if not line.lstrip().startswith("#") and (match := DEVICE.search(line))
    ]
    return [f"{line}: {what}" for line, what in sorted(found)]


def _is_broad(caught: ast.expr | None) -> bool:
    match caught:
        case None | ast.Name(id="Exception" | "BaseException"):
            return True
        case ast.Tuple(elts=several):
            return any(_is_broad(one) for one in several)
    return False


def _does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(one, ast.Pass | ast.Continue)
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in body
    )


def _suppresses_all(context: ast.expr) -> bool:
    match context:
        case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=caught):
            return any(_is_broad(one) for one in caught)
    return False


@pytest.mark.parametrize("file", product_files())
def test_product_file_keeps_the_rules(file: str) -> None:
    """No environment reads, no stray prints, nothing swallowed, no device named, not too long."""
    source = (ROOT / file).read_text()
    assert broken_rules(source, file) == []
    lines = source.count("\n")
    assert lines <= LONGEST_FILE


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['A']",
        "import os\nos.getenv('A')",
        "from os import environ",
        "print(1)",
        "try:\n    f()\nexcept Exception:\n    pass",
        "try:\n    f()\nexcept:\n    ...",
        "try:\n    f()\nexcept (OSError, Exception):\n    pass",
        "with contextlib.suppress(Exception):\n    f()",
        "fast = name == 'H200'",
        "fast = name == 'RTX 4090'",
    ],
)
def test_a_broken_rule_is_seen(source: str) -> None:
    """The check fires on each thing that it forbids."""
    assert broken_rules(source, "runtime/load.py")


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("runtime/cli.py", "print(1)"),
        ("lowering/__main__.py", "print(1)"),
        ("runtime/load.py", "try:\n    f()\nexcept OSError:\n    pass"),
        ("runtime/load.py", "try:\n    f()\nexcept Exception as e:\n    raise LoadError from e"),
        ("runtime/load.py", "# measured on an H200\nx = 1"),
    ],
)
def test_a_kept_rule_is_silent(file: str, source: str) -> None:
    """The check lets through what may stand."""
    assert broken_rules(source, file) == []


ISA = re.compile(r"\bsm_[0-9]|\bgfx[0-9]")
KNOWS_ISAS = ("lowering/target.py", "lowering/instructions.py", "lowering/tiles/")
READS_ARTIFACTS = "lowering/artifacts/"


@pytest.mark.parametrize("file", product_files())
def test_isas_are_named_where_they_may_be(file: str) -> None:
    """What a part is called decides nothing at run time, and little before."""
    named = ISA.search((ROOT / file).read_text())
    assert named is None or file.startswith((*KNOWS_ISAS, READS_ARTIFACTS))


def test_no_paths_of_one_machine() -> None:
    """No committed text names a home folder, or the place of this checkout."""
    found = []
    for path in committed_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {m[0]}" for m in HOME_FOLDER.finditer(text)]
        if str(ROOT) in text:
            found.append(f"{path.relative_to(ROOT)}: {ROOT}")
    assert found == []


@pytest.mark.parametrize("folder", ["root", "home/ann", "Users/ann"])
def test_a_path_of_one_machine_is_seen(folder: str) -> None:
    """A home folder is found in text, a longer word that holds one is not."""
    assert HOME_FOLDER.search(f'cache = "/{folder}/.cache"')
    assert HOME_FOLDER.search(f"see /{folder}")
    assert not HOME_FOLDER.search(f"see docs/{folder}/x and /{folder.split('/')[0]}s/")


def test_every_package_is_listed() -> None:
    """The packages that are shipped are the folders that hold product files."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {".".join(Path(file).parent.parts) for file in product_files()}
    assert folders == set(listed)
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)
