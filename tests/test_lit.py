"""Runs lit once over the selected files of its suite and shows each of them as one test."""

from __future__ import annotations

import os

import pytest

from lit_suite import FEATURES, SUITE, LitRun, run_lit, suite_files
from vulkan_device import vulkan_device

FILES = [path.relative_to(SUITE).as_posix() for path in suite_files()]


def features(config: pytest.Config) -> set[str]:
    """The features of this run: Vulkan where it is, always in CI, and the devices asked for."""
    found: set[str] = {*(config.getoption("--device") or ())}
    if vulkan_device() or os.environ.get("CI") == "true":
        found.add("vulkan")
    return found & FEATURES


@pytest.fixture(scope="module")
def lit_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LitRun:
    """One run of lit for all files that pytest selected here."""
    selected = [
        SUITE / str(item.callspec.params["file"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    report = tmp_path_factory.mktemp("lit") / "report.json"
    return run_lit(selected, report, features(request.config))


@pytest.mark.parametrize("file", FILES)
def test_lit(file: str, lit_run: LitRun) -> None:
    """The file passes, fails as expected, or needs a device that is not here."""
    code, output = lit_run.codes[file], lit_run.outputs[file]
    if code == "UNSUPPORTED":
        pytest.skip(output.strip())
    assert code in {"PASS", "XFAIL"}, output
