"""Options and fixtures that all tests share."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import settings

from golden_files import UPDATE, Golden
from vulkan_device import vulkan_device as name_of_vulkan_device

if TYPE_CHECKING:
    from fake_cuda import FakeCuda
    from packs import Packs  # loads the compiler, which a machine with a card may lack

# How long an example takes says something of the machine and of its other work alone.
settings.register_profile("untimed")
settings.load_profile("untimed")

COMPILED_HERE = ("hip",)  # devices that --device adds to the packs of the samples


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a run may ask for beyond this machine's processor and Vulkan."""
    parser.addoption(
        "--device",
        action="append",
        default=[],
        choices=["cuda", "hip", "vulkan"],
        help="run the tests that need a device of this kind; may be given again. Those of vulkan "
        "run anyway where there is one",
    )
    parser.addoption(
        "--packs",
        metavar="DIR",
        help="packs that were compiled elsewhere: run the tests of devices alone, on these",
    )
    parser.addoption("--full", action="store_true", help="run the long loops too")
    parser.addoption(UPDATE, action="store_true", help="write the golden files, do not compare")


class DeviceModule(pytest.Module):
    """A module of tests on a machine that may lack the compiler: then it is skipped by name."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            missing = error.__cause__
            if not isinstance(missing, ModuleNotFoundError):
                raise
            return pytest.skip(f"needs '{missing.name}', not installed", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """With ``--packs`` no module has to load."""
    if parent.config.getoption("--packs") is None:
        return None
    return DeviceModule.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--packs`` only the tests of the devices that were asked for run, uncompiled ones not.

    A test that compiles, which is not for the machine with the card, asks for ``compile_cache``.
    """
    if config.getoption("--packs") is None:
        return
    kinds = config.getoption("--device")
    asked = [
        i
        for i in items
        if any(m.args[0] in kinds for m in i.iter_markers("device"))
        and "compile_cache" not in getattr(i, "fixturenames", ())
    ]
    config.hook.pytest_deselected(items=[i for i in items if i not in asked])
    items[:] = asked


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test runs for each ``given_candidate`` or ``given_pack`` of ``--packs``, on its devices."""
    if {"given_candidate", "given_pack"} & set(metafunc.fixturenames):
        from given_packs import parametrize

        parametrize(metafunc)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cases of the packs' candidates were right on each device."""
    from case_counts import summary_lines

    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    for line in summary_lines(reports):
        terminalreporter.write_line(line)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a device or a patience that this run does not have."""
    for marker in item.iter_markers("device"):
        (kind,) = marker.args
        if kind == "vulkan":
            _require_vulkan(asked=kind in (item.config.getoption("--device") or []))
        elif kind not in item.config.getoption("--device"):
            pytest.skip(f"needs --device {kind}")
    if item.get_closest_marker("full") and not item.config.getoption("--full"):
        pytest.skip("needs --full")


@pytest.fixture(scope="session", autouse=True)
def poisoned() -> Iterator[None]:
    """Every fresh device allocation of ours holds 0xFF, so that reading it unwritten shows."""
    from runtime import Session
    from runtime.cuda.device import CudaDevice
    from runtime.device import Device

    kinds = (Session, Device, CudaDevice)
    signatures = [inspect.unwrap(c.__init__).__kwdefaults__ for c in kinds]
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
    """A compile cache of this run, so that a module is compiled once by all its processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    cache = folder / "compile-cache"
    cache.mkdir(exist_ok=True)
    return cache


@pytest.fixture(scope="session")
def targets(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What packs of the samples are built for: also the devices that were asked for."""
    from packs import TARGETS

    asked: list[str] = request.config.getoption("--device") or []
    return (*TARGETS, *(f"device:{kind}" for kind in asked if kind in COMPILED_HERE))


@pytest.fixture(scope="session")
def packs(
    tmp_path_factory: pytest.TempPathFactory, compile_cache: Path, targets: tuple[str, ...]
) -> Packs:
    """A pack for each sample; tests share them and must not change them."""
    from packs import build_packs

    return build_packs(tmp_path_factory.mktemp("packs"), compile_cache, targets)


@pytest.fixture(scope="session")
def cuda_pack(tmp_path_factory: pytest.TempPathFactory, compile_cache: Path) -> Path:
    """A pack of two software members for a CUDA ISA, of f16 operands and an f32 result."""
    from packs import SAMPLES, build_pack, with_few_members

    folder = tmp_path_factory.mktemp("cuda-pack")
    sample = Path(__file__).parent.parent / "samples" / SAMPLES["matmul_f16"]
    (folder / "source.mlir").write_text(with_few_members(sample.read_text()))
    targets = ("cuda:sm_90a",)
    build_pack(folder / "source.mlir", folder / "pack", compile_cache, targets, body="software")
    return folder / "pack"


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The CUDA driver that is found, in Python; torch and the management library are not there."""
    from cuda_arrays import gemm
    from fake_cuda import FakeCuda

    fake = FakeCuda()
    fake.kernels["gemm"] = gemm
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    return fake


@pytest.fixture(scope="session")
def windows_module(request: pytest.FixtureRequest) -> bytes:
    """IREE's part of :class:`windows.Windows`, compiled here unless packs were."""
    from windows import windows_module

    folder = request.config.getoption("--packs")
    return windows_module(Path(folder) if folder else None)


@pytest.fixture(scope="session")
def gguf() -> ModuleType:
    """The reference implementation of block formats."""
    try:
        return importlib.import_module("gguf")
    except ImportError:
        _missing("no gguf package")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """The golden files of this test."""
    update = bool(request.config.getoption(UPDATE))
    return Golden.of_test(request.path.stem, request.node.name, update=update)


def _require_vulkan(*, asked: bool = False) -> None:
    if name_of_vulkan_device() is None:
        _missing("no Vulkan device", asked=asked)


def _missing(what: str, *, asked: bool = False) -> NoReturn:
    """Skipped where somebody develops without it.

    A device that was asked for, or went missing in CI, is a fault.
    """
    if asked or os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
