"""A lit suite is worth what makes it fail: each way to be wrong, in a suite of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lit_suite import CONFIG, SUITE, run_lit

RUN = "# RUN: %python %s | %filecheck %s\n"
PRINTS = 'print("tier = software")\n'


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """An empty suite with the project's own configuration, all in the temporary folder."""
    folder = tmp_path / "tests" / "lit"
    folder.mkdir(parents=True)
    shutil.copy(SUITE / CONFIG, folder)
    return folder


def code_of(suite: Path, text: str, **features: bool) -> tuple[int, str]:
    """Exit code of lit, and the code it gives to a test of that text."""
    (suite / "probe.py").write_text(text)
    run = run_lit([suite], suite.parent / "report.json", features)
    return run.exit_code, run.codes["probe.py"]


def test_right_check_passes(suite: Path) -> None:
    """The base of the cases below: this one is right."""
    assert code_of(suite, RUN + "# CHECK: tier = software\n" + PRINTS) == (0, "PASS")
    assert (suite.parent.parent / "build" / "lit").is_dir()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(RUN + "# CHECK: tier = native\n" + PRINTS, id="wrong CHECK"),
        pytest.param(RUN + "# CHECK-NOT: software\n" + PRINTS, id="CHECK-NOT that matches"),
        pytest.param(RUN + "# CHECK: tier\n", id="empty output"),
        pytest.param(RUN + PRINTS, id="no CHECK at all"),
        pytest.param(
            RUN + "# CHECK: tier\n" + PRINTS + "raise SystemExit(1)\n",
            id="tool fails, text matches",
        ),
        pytest.param("# RUN: not %python %s\n" + PRINTS, id="not, on a tool that succeeds"),
        pytest.param("# RUN: %pyhton %s\n" + PRINTS, id="unknown substitution"),
    ],
)
def test_wrong_test_fails(suite: Path, text: str) -> None:
    """A wrong test fails, and the run with it."""
    assert code_of(suite, text) == (1, "FAIL")


def test_file_without_run_line_fails(suite: Path) -> None:
    """A file that runs nothing does not pass."""
    assert code_of(suite, PRINTS) == (1, "UNRESOLVED")


def test_features_come_from_the_caller(suite: Path) -> None:
    """A test that needs a feature runs only when the caller says that it is there."""
    text = "# REQUIRES: vulkan\n" + RUN + "# CHECK: tier = native\n" + PRINTS
    assert code_of(suite, text) == (0, "UNSUPPORTED")
    assert code_of(suite, text, vulkan=True) == (1, "FAIL")


def test_substitutions(suite: Path) -> None:
    """The samples' folder is the one of the checkout, and inputs are no tests."""
    (suite / "Inputs").mkdir()
    (suite / "Inputs" / "text.py").write_text("no test")
    text = (
        "# RUN: %python %s %samples | %filecheck %s\n"
        "import sys\n"
        f"# CHECK: {suite.parent.parent.resolve()}/samples{{{{$}}}}\n"
        "print(sys.argv[1])\n"
    )
    assert code_of(suite, text) == (0, "PASS")
