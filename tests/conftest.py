"""Options and fixtures that all tests share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from golden_files import UPDATE, Golden
from packs import Packs, build_packs
from runtime import Session
from runtime.device import Device
from vulkan_device import vulkan_device as name_of_vulkan_device


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a run may ask for beyond this machine's processor and Vulkan."""
    parser.addoption(
        "--device",
        action="append",
        default=[],
        choices=["cuda", "hip"],
        help="run the tests that need a device of this kind; may be given twice",
    )
    parser.addoption("--full", action="store_true", help="run the long loops too")
    parser.addoption(UPDATE, action="store_true", help="write the golden files, do not compare")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a device or a patience that this run does not have."""
    for marker in item.iter_markers("device"):
        (kind,) = marker.args
        if kind == "vulkan":
            _require_vulkan()
        elif kind not in item.config.getoption("--device"):
            pytest.skip(f"needs --device {kind}")
    if item.get_closest_marker("full") and not item.config.getoption("--full"):
        pytest.skip("needs --full")


@pytest.fixture(scope="session", autouse=True)
def poisoned() -> Iterator[None]:
    """Every fresh device allocation of ours holds 0xFF, so that reading it unwritten shows."""
    signatures = [inspect.unwrap(c.__init__).__kwdefaults__ for c in (Session, Device)]
    for defaults in signatures:
        defaults["poison"] = True
    yield
    for defaults in signatures:
        defaults["poison"] = False


@pytest.fixture(scope="session")
def vulkan_device() -> str:
    """The URI of a Vulkan device that is there."""
    _require_vulkan()
    return "vulkan"


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compile cache of this run, so that a module is compiled once."""
    return tmp_path_factory.mktemp("compile-cache")


@pytest.fixture(scope="session")
def packs(tmp_path_factory: pytest.TempPathFactory, compile_cache: Path) -> Packs:
    """A pack for each sample; tests share them and must not change them."""
    return build_packs(tmp_path_factory.mktemp("packs"), compile_cache)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden files of this test."""
    update = bool(request.config.getoption(UPDATE))
    return Golden.of_test(request.path.stem, request.node.name, update=update)


def _require_vulkan() -> None:
    if name_of_vulkan_device() is None:
        _missing("no Vulkan device")


def _missing(what: str) -> NoReturn:
    """Skipped where somebody develops without it; in CI a device that went missing is a fault."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
