"""The compiler runs in children that end, what they made is kept by content, and never believed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from dialects.errors import CompileError
from kernel_sources import source
from lowering import compile as compiling
from lowering.build import BuildOptions, lower
from lowering.compile import Artifact, CompileOptions, Job, compile_all, compile_one
from lowering.target import compiler_flags, parse_target

CPU = parse_target("cpu:x86-64-v3")
FLAGS = compiler_flags(CPU)
ENTRY = "(%a: !hal.buffer, %b: !hal.buffer, %wait: !hal.fence, %signal: !hal.fence) -> !hal.buffer"
FINISH = """
  %d = hal.tensor.barrier join(%r : tensor<8xf32>) => %signal : !hal.fence
  %o = hal.tensor.export %d : tensor<8xf32> -> !hal.buffer
  util.return %o : !hal.buffer
}
"""
COPIES = f"""
util.func public @f{ENTRY} {{
  %x = hal.tensor.import wait(%wait) => %a : !hal.buffer -> tensor<4xf32>
  %y = hal.tensor.import wait(%wait) => consume %b : !hal.buffer -> tensor<8xf32>
  %c0 = arith.constant 0 : index
  %r = flow.tensor.update %x, %y[%c0] : tensor<4xf32> -> %y as tensor<8xf32>{FINISH}"""
FILLS = f"""
util.func public @f{ENTRY} {{
  %v = arith.constant 1.0 : f32
  %y = flow.tensor.splat %v : tensor<8xf32>
  %r = hal.tensor.alias wait(%wait) => %y : tensor<8xf32> to %b : !hal.buffer{FINISH}"""
ALLOCATES = """
func.func @f(%a: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]} ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%x: f32, %old: f32):
      %s = arith.addf %x, %x : f32
      linalg.yield %s : f32
  } -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
"""


@pytest.fixture(scope="module")
def job() -> Job:
    """A candidate as the build makes it."""
    (candidate,), _ = lower(source(), "test.mlir", CPU, BuildOptions())
    return Job(name="probe", text=candidate.text, flags=FLAGS)


@pytest.fixture(scope="module")
def made(job: Job, compile_cache: Path) -> Artifact:
    """What the compiler makes of it, once for this file."""
    return compile_one(job, CompileOptions(cache=compile_cache))


@pytest.fixture
def entry(job: Job, made: Artifact, compile_cache: Path, tmp_path: Path) -> Path:
    """A cache of its own that holds the job's entry, which a test may spoil."""
    del made  # it is what fills the cache
    name = f"{compiling._key(job)}.zip"
    return Path(shutil.copy(compile_cache / name, tmp_path / name))


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running the compiler is a failure."""

    def refuse(name: str) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "no compiler")

    monkeypatch.setattr(compiling, "find_tool", refuse)


def write_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Put a script in the compiler's place."""
    tool = folder / "compiler"
    tool.write_text(f"#!{sys.executable}\n{script}")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(compiling, "find_tool", lambda _: str(tool))


def is_gone(pid: int, patience_s: float = 5.0) -> bool:
    """Whether the process ends; one that only nobody has waited for counts as gone."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_module_and_code(made: Artifact) -> None:
    assert made.code is not None
    assert made.code[:4] == b"\x7fELF"
    assert made.code_suffix == ".so"
    assert len(made.vmfb) > len(made.code)


def test_two_compiles_give_identical_bytes(job: Job, made: Artifact) -> None:
    assert compile_one(job, CompileOptions()) == made


@pytest.mark.usefixtures("no_compiler")
def test_a_cached_job_runs_no_compiler(job: Job, made: Artifact, entry: Path) -> None:
    assert compile_one(job, CompileOptions(cache=entry.parent)) == made
    with pytest.raises(CompileError, match="cannot compile: no compiler"):
        compile_one(job, CompileOptions())


def test_a_damaged_entry_is_compiled_again(job: Job, made: Artifact, entry: Path) -> None:
    """And replaced by a good one."""
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)
    assert compile_one(job, CompileOptions(cache=entry.parent)) == made
    assert compiling._read_cache(entry.parent, compiling._key(job)) == made
    assert list(entry.parent.iterdir()) == [entry]


@pytest.mark.parametrize("damage", ["cut off", "empty", "an empty zip", "a folder", "missing"])
def test_a_spoilt_entry_is_none(job: Job, made: Artifact, entry: Path, damage: str) -> None:
    """Read, it is a miss; written over, it is good again where a file can stand."""
    content = entry.read_bytes()
    texts = {"cut off": content[: len(content) // 2], "an empty zip": b"PK\x05\x06" + bytes(18)}
    entry.unlink()
    if damage == "a folder":
        (entry / "in").mkdir(parents=True)
    elif damage != "missing":
        entry.write_bytes(texts.get(damage, b""))
    key = compiling._key(job)
    assert compiling._read_cache(entry.parent, key) is None
    compiling._write_cache(entry.parent, key, made)
    assert compiling._read_cache(entry.parent, key) == (None if damage == "a folder" else made)
    assert list(entry.parent.iterdir()) == [entry]


@pytest.mark.usefixtures("no_compiler")
def test_no_byte_of_an_entry_goes_unchecked(job: Job, entry: Path) -> None:
    """Whichever byte is flipped, the entry is none."""
    good = entry.read_bytes()
    for position in {*range(0, len(good), len(good) // 50), *range(80), len(good) - 1}:
        spoilt = bytearray(good)
        spoilt[position] ^= 0x10
        entry.write_bytes(spoilt)
        assert compiling._read_cache(entry.parent, compiling._key(job)) is None


def test_an_impossible_cache_only_costs_time(job: Job, made: Artifact, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert compile_one(job, CompileOptions(cache=tmp_path / "file" / "cache")) == made
    for place in ("file", "file/cache", "x" * 300):
        compiling._write_cache(tmp_path / place, "key", made)
        assert compiling._read_cache(tmp_path / place, "key") is None
    assert (tmp_path / "file").read_text() == "in the way"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("call", ["mkdir", "mkstemp", "replace"])
def test_a_cache_that_cannot_be_written_only_costs_time(
    made: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Read-only, full: whatever the call is that fails, nothing is left behind."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "read-only")

    owner = {"mkdir": Path, "mkstemp": compiling.tempfile, "replace": os}[call]
    monkeypatch.setattr(owner, call, fail)
    compiling._write_cache(tmp_path, "key", made)
    assert list(tmp_path.iterdir()) == []


def test_options_are_part_of_the_key(job: Job) -> None:
    """Another flag, another demand, another text: another entry. The name is only for messages."""
    jobs = [
        job,
        Job(name="other", text=job.text, flags=FLAGS),
        Job(name="probe", text=job.text, flags=(*FLAGS, "--iree-opt-strip-assertions")),
        Job(name="probe", text=job.text, flags=FLAGS, in_place=False),
        Job(name="probe", text=job.text, flags=FLAGS, amend=True),
        Job(name="probe", text=job.text + "\n", flags=FLAGS),
    ]
    keys = [compiling._key(j) for j in jobs]
    assert keys[0] == keys[1]
    assert len(set(keys)) == len(keys) - 1


def test_the_deadline_ends_the_compiler(job: Job) -> None:
    """A real one; what it was doing is not waited for."""
    begin = time.monotonic()
    with pytest.raises(CompileError, match=r"probe: the compiler ran past its deadline of 0.05 s"):
        compile_one(job, CompileOptions(deadline_s=0.05))
    assert time.monotonic() - begin < 5


def test_the_deadline_ends_the_whole_group(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child and what it has started, also when they ignore polite signals."""
    pids = tmp_path / "pids"
    script = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)\n"
    )
    write_compiler(monkeypatch, tmp_path, script)
    with pytest.raises(CompileError, match="ran past its deadline"):
        compile_one(job, CompileOptions(deadline_s=1.5))
    started = [int(p) for p in pids.read_text().split()]
    assert len(started) == 2
    assert all(is_gone(pid) for pid in started)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit(7)", "the compiler failed with code 7: no diagnostic"),
        ("import os; os.abort()", "the compiler crashed with signal 6: no diagnostic"),
        (
            "import sys; sys.stderr.write('noise\\nx.mlir:1:2: error: odd\\n'); sys.exit(1)",
            "the compiler failed with code 1: x.mlir:1:2: error: odd",
        ),
        ("import sys; sys.stderr.buffer.write(b'\\xff\\xfe' * 500); sys.exit(1)", "code 1: \ufffd"),
        ("pass", "cannot compile|dumped no host entry"),
    ],
)
def test_a_failing_compiler_is_explained(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    write_compiler(monkeypatch, tmp_path, script)
    with pytest.raises(CompileError, match=message) as caught:
        compile_one(job, CompileOptions())
    assert caught.value.where == "probe"
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "the compiler failed with code 1: kernel.mlir:1:1: error: custom op"),
        (ALLOCATES, "the host entry must work in place, it has 'stream.resource.alloc'"),
        (COPIES, "the host entry must work in place, it has 'stream.cmd.copy'"),
        (FILLS, "the host entry must work in place, it has 'stream.cmd.fill'"),
    ],
    ids=["no IR", "allocates", "copies", "fills"],
)
def test_modules_that_are_refused(text: str, message: str, compile_cache: Path) -> None:
    """By the compiler, or because their host entry does what costs time at every call."""
    options = CompileOptions(cache=compile_cache)
    refused = Job(name="probe", text=text, flags=FLAGS)
    with pytest.raises(CompileError, match=f"probe: {message}"):
        compile_one(refused, options)
    assert not (compile_cache / f"{compiling._key(refused)}.zip").exists()


def test_only_demanded_of_jobs_in_place(compile_cache: Path) -> None:
    """A peer may allocate."""
    peer = Job(name="peer", text=ALLOCATES, flags=FLAGS, in_place=False)
    assert compile_one(peer, CompileOptions(cache=compile_cache)).vmfb


def test_one_failure_does_not_stop_the_others(
    job: Job, made: Artifact, compile_cache: Path
) -> None:
    """Results are in the order of the jobs, each is told once."""
    told: list[str] = []
    jobs = [Job(name="first", text="nonsense"), job, Job(name="last", text="{")]
    results = compile_all(jobs, CompileOptions(cache=compile_cache, jobs=3), told.append)
    assert [type(r) for r in results] == [CompileError, Artifact, CompileError]
    assert results[1] == made
    assert sorted(told) == ["first", "last", "probe"]
