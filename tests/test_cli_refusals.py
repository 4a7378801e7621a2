"""Bad input to both command lines: one line that says what and where, exit 1 or 2, no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from command_lines import Ran, run_main
from lowering import cli as lowering_cli
from packs import Packs, copied
from runtime import cli as runtime_cli
from runtime.store import entries

GOOD = "4x4x4"
NUMBER = "is not a whole number"
SHAPES = {
    "4x-4x4": "-4 is negative",
    "4x4": "takes 3 sizes (MxNxK), found 2",
    "4x4x4x4": "takes 3 sizes (MxNxK), found 4",
    "": NUMBER,
    "x": NUMBER,
    "axbxc": NUMBER,
    "1e9x4x4": NUMBER,
    "4.0x4x4": NUMBER,
    "4X4X4": NUMBER,
    "٤x4x4": NUMBER,
    "9" * 40 + "x4x4": NUMBER,
    "1099511627776x4x4": "size M = 1099511627776 is not within 0 and 2147483647",
    "2147483648x4x4": "size M = 2147483648 is not within",
    "2147483647x1x2147483647": "no candidate can run",
    "46341x46341x46341": "no candidate can run",
}
DEVICES = {
    "": "is not",
    "fpga": "device 'fpga' is not",
    "cuda": "device 'cuda'",
    "hip": "hip",
    "local-task://9": "device 'local-task://9'",
    "vulkan://99999": "99999'",
    "vulkan://GPU-00000000": "GPU-00000000'",
}
Here = Callable[..., Ran]


@pytest.fixture
def runtime(capsys: pytest.CaptureFixture[str]) -> Here:
    """``python -m runtime``."""
    return lambda *arguments: run_main(runtime_cli.main, capsys, *arguments)


@pytest.fixture
def lowering(capsys: pytest.CaptureFixture[str], packs: Packs) -> Here:
    """``python -m lowering``, with the compile cache of the test run."""
    cache = ("--cache", packs.cache)
    return lambda *arguments: run_main(lowering_cli.main, capsys, *arguments, *cache)


@pytest.fixture
def pack(packs: Packs) -> Path:
    """A pack that no test changes."""
    return packs.path("matmul_f32")


@pytest.mark.parametrize(("shape", "text"), SHAPES.items())
@pytest.mark.parametrize("command", ["explain", "run", "tune", "bench"])
def test_shapes(
    runtime: Here, pack: Path, tmp_path: Path, command: str, shape: str, text: str
) -> None:
    store = () if command == "explain" else ("--store", tmp_path)
    arguments = (command, pack, f"--shape={shape}", *store)
    if command == "explain" and text == "no candidate can run":
        assert runtime(*arguments).code == 1  # the verdicts are its product
        return
    runtime(*arguments).check_refused(1, text)
    runtime(*arguments, "--json").check_refused(1, text)


@pytest.mark.parametrize(("device", "text"), DEVICES.items())
def test_devices(runtime: Here, pack: Path, tmp_path: Path, device: str, text: str) -> None:
    arguments = (pack, "--shape", GOOD, "--store", tmp_path)
    for command in ("run", "tune", "bench"):
        runtime(command, *arguments, "--device", device).check_refused(1, text)
    runtime("explain", pack, "--shape", GOOD, "--device", device).check_refused(1, text)
    runtime("facts", "--device", device, "--json").check_refused(1, text)


@pytest.mark.parametrize("command", ["explain", "run", "tune", "bench"])
def test_packs_and_kernels(runtime: Here, pack: Path, tmp_path: Path, command: str) -> None:
    shape = ("--shape", GOOD)
    for bad in (tmp_path / "nothing", tmp_path, pack / "manifest.json", "/dev/null"):
        runtime(command, bad, *shape, "--json").check_refused(1, "no pack here")
    runtime(command, pack, *shape, "--kernel", "nothing").check_refused(1, "no kernel 'nothing'")
    runtime(command, pack, *shape, "--what").check_refused(2, "unrecognized arguments: --what")
    runtime(command, pack).check_refused(2, "required: --shape")
    runtime(command).check_refused(2, "required: PACK")


def test_damaged_packs(
    runtime: Here, packs: Packs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut off, flipped, emptied, made for something else: never loaded, by any command."""
    for number, spoil in enumerate((_cut, _flipped, _empty, _of_another_schema)):
        pack = copied(packs.path("matmul_f32"), tmp_path / f"pack{number}")
        file = spoil(pack)
        for command in ("explain", "run", "tune", "bench"):
            store = () if command == "explain" else ("--store", tmp_path / "store")
            found = runtime(command, pack, "--shape", GOOD, *store, "--json")
            found.check_refused(1, f"{file}: error: ")
            assert found.json["failures"][0]["kind"] == "pack"
        found = run_main(lowering_cli.main, capsys, "inspect", pack)
        found.check_refused(1, f"{file}: error: ")
    assert not entries(tmp_path / "store")


def _cut(pack: Path) -> Path:
    file = pack / "manifest.json"
    file.write_bytes(file.read_bytes()[:-20])
    return file


def _flipped(pack: Path) -> Path:
    file = max(pack.rglob("*.vmfb"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    return file


def _empty(pack: Path) -> Path:
    file = max(pack.rglob("*.spv"))
    file.write_bytes(b"")
    return file


def _of_another_schema(pack: Path) -> Path:
    file = pack / "manifest.json"
    file.write_text(file.read_text().replace('"schema_version": 1', '"schema_version": 2', 1))
    return file


@pytest.mark.parametrize("command", ["run", "tune", "bench"])
def test_options_of_a_run(runtime: Here, pack: Path, tmp_path: Path, command: str) -> None:
    arguments = (command, pack, "--shape", GOOD, "--store", tmp_path / "store")
    for budget, text in (
        ("0", "positive"),
        ("-1", "positive"),
        ("nan", "positive"),
        ("x", "float"),
    ):
        runtime(*arguments, "--budget-ms", budget).check_refused(2, text)
    if command != "tune":
        runtime(*arguments, "--member", "none").check_refused(1, "has no candidate 'none', has: ")
        runtime(*arguments, "--against", "numpy,me").check_refused(2, "peer 'me' is not one of")


@pytest.mark.parametrize("command", ["run", "tune", "bench"])
def test_stores(runtime: Here, pack: Path, tmp_path: Path, command: str) -> None:
    """A directory that is a file, lies under one, or cannot be made; what is there stays."""
    file = tmp_path / "file"
    file.write_text("mine")
    for bad in (file, file / "under", "/proc/nothing"):
        found = runtime(command, pack, "--shape", GOOD, "--store", bad, "--json")
        found.check_refused(1, str(bad))
        assert found.json["failures"][0]["kind"] == "store"
    assert file.read_text() == "mine"


def test_the_commands_of_the_store(runtime: Here, tmp_path: Path) -> None:
    file, store = tmp_path / "file", ("--store", tmp_path / "store")
    file.write_text("{")
    for action in ("list", "verify"):
        runtime("store", action, "--store", file).check_refused(1, "is a file")
    for action in ("show", "drop"):
        runtime("store", action, "*", "--store", file).check_refused(1, "is a file")
        runtime("store", action, *store).check_refused(2, "required: PATTERN")
    runtime("store", "show", "*", *store).check_refused(1, "no entry matches '*'")
    runtime("store", "export", tmp_path, *store).check_refused(1, "cannot write: is a directory")
    runtime("store", "export", tmp_path / "a/b", *store).check_refused(1, "no such file")
    assert not (tmp_path / "a").exists()
    runtime("store", "import", tmp_path / "none", *store).check_refused(2, "cannot read")
    runtime("store", "import", tmp_path, *store).check_refused(2, "cannot read: Is a directory")
    for text in ("{", "[]", "{}", '{"schema_version": 1, "entries": [1]}'):
        file.write_text(text)
        runtime("store", "import", file, *store, "--json").check_refused(1, str(file))
    assert not (tmp_path / "store").exists()
    for arguments in ((), ("what",)):
        runtime("store", *arguments).check_refused(2)


def test_facts_files(runtime: Here, pack: Path, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    arguments = ("explain", pack, "--shape", GOOD, "--facts")
    runtime(*arguments, tmp_path / "none", "--json").check_refused(2, "cannot read facts file")
    runtime(*arguments, tmp_path).check_refused(2, "cannot read facts file: Is a directory")
    bad: list[tuple[object, str]] = [
        ([], "an object"),
        ({"backend": 1}, "backend"),
        ({"backend": "cpu", "later": 1}, "unknown key 'later'"),
        ({"backend": "cpu", "schema_version": 2}, "facts of schema 2, required 1"),
    ]
    for value, text in bad:
        file.write_text(json.dumps(value))
        runtime(*arguments, file, "--json").check_refused(1, text)
    for content in (b"", b"{", b"\xff\xfe\x00"):
        file.write_bytes(content)
        runtime(*arguments, file).check_refused(1, "not valid JSON")


def test_commands_that_are_not_there(runtime: Here) -> None:
    runtime().check_refused(2, "required: COMMAND")
    runtime("what").check_refused(2, "invalid choice: 'what'")
    assert runtime("--help").code == 0
    assert runtime("run", "--help").code == 0


def test_sources(lowering: Here, tmp_path: Path) -> None:
    shape = ("--shape", GOOD, "--store", tmp_path / "store")
    text = tmp_path / "text.mlir"
    for content, code in ((b"module {", 1), (b"\xff\xfe", 1)):
        text.write_bytes(content)
        found = lowering("run", text, *shape, "--json")
        found.check_refused(code, str(text))
    for bad in (tmp_path / "none.mlir", tmp_path):
        lowering("run", bad, *shape, "--json").check_refused(1, f"{bad}: error: cannot read")
    assert not (tmp_path / "store").exists()


def test_the_main_job(lowering: Here, packs: Packs, tmp_path: Path) -> None:
    source, store = packs.source("matmul_f32"), ("--store", tmp_path / "store")
    for shape in ("4x-4x4", "4x4", "axbxc", "1099511627776x4x4", "46341x46341x46341"):
        lowering("run", source, f"--shape={shape}", *store).check_refused(1, SHAPES[shape])
    run = ("run", source, "--shape", GOOD, *store)
    for device in ("fpga", "cuda", "vulkan://99999"):
        lowering(*run, "--device", device, "--json").check_refused(1, DEVICES[device])
    lowering(*run, "--member", "none").check_refused(1, "has no candidate 'none'")
    lowering(*run, "--kernel", "none").check_refused(1, "no kernel 'none'")
    lowering(*run, "--against", "cublas").check_refused(2, "peer 'cublas'")
    lowering(*run, "--body", "none").check_refused(1, "none")
    lowering(*run, "--tier", "none").check_refused(2, "--tier")
    lowering(*run, "--deadline", "0").check_refused(2, "--deadline")
    file = tmp_path / "file"
    file.write_text("mine")
    lowering("run", source, "--shape", GOOD, "--store", file).check_refused(1, str(file))
    assert file.read_text() == "mine"


def test_compile(lowering: Here, packs: Packs, tmp_path: Path) -> None:
    """Nothing is left half written where the pack should go."""
    source, file = packs.source("matmul_f32"), tmp_path / "file"
    file.write_text("mine")
    for target in ("", "fpga", "cuda", "cpu:x86-64-v9", "rocm:", tmp_path / "none.json", file):
        lowering("compile", source, "--target", target, "--json").check_refused(1)
    lowering("compile", source, "--peer", "cublas").check_refused(2, "peer 'cublas' is not one of")
    lowering("compile", source, "-o", file).check_refused(1, "exists and is no directory")
    lowering("compile", source, "-o", tmp_path).check_refused(1, "not empty and holds no pack")
    lowering("compile", source, "-o", file / "x").check_refused(1, "cannot write a pack")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]
    assert file.read_text() == "mine"
