"""Runs IREE's compiler: a child process a module, with a deadline, in parallel, cached by content.

A child, because an infeasible matrix instruction aborts the compiler's process, and a bad case was
seen to run for minutes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from iree.compiler.tools.binaries import find_tool

from dialects.errors import CompileError, Error

from .artifacts.applied import check_applied
from .artifacts.spirv_legalize import REVISION, legalize_spirv
from .children import run_child
from .relink import with_objects

CODE_SUFFIXES = (".spv", ".ptx", ".hsaco", ".so")
OUTPUT_NAME = "module.vmfb"
INPUT_NAME = "kernel.mlir"  # fixed: the compiler writes its input's name into what it emits
DEADLINE_S = 120.0
_MORE = "more/"
_DIGEST_BYTES = 32  # a cache entry starts with the sha256 of its content, a zip
_EXPORT = re.compile(
    r"hal\.executable\.source private @(\w+) \{\s+hal\.executable\.export public @(\w+) "
)
LISTING_SUFFIX = ".rocmasm"
_LISTED = "listing"  # its name in a cache entry
_LISTING = ["--iree-hal-dump-executable-intermediates-to=listings"]
_COMMON = [
    "--iree-vm-bytecode-module-strip-source-map=true",
    "--iree-input-demote-f64-to-f32=false",  # an f64 kernel is one
]


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """``cache`` None compiles afresh; ``jobs`` None is one child a core."""

    deadline_s: float = DEADLINE_S
    jobs: int | None = None
    cache: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One module to compile; ``in_place`` demands host entries that allocate and copy nothing.

    ``amend`` has the device code checked and completed, and put back into the module. ``listing``
    keeps the back end's listing of the machine code. ``compilation_info`` is what the kernel's own
    configuration must be found to be.
    """

    name: str
    text: str
    flags: tuple[str, ...] = ()
    in_place: bool = True
    amend: bool = False
    listing: bool = False
    compilation_info: str | None = None


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """What the compiler made: the loadable module and the raw device code, when there is any.

    ``code`` has the kernel that does the work. ``more`` are the other kernels by name, where the
    back end gives each an object of its own; ``listing`` is of the code, where it was asked for.
    """

    vmfb: bytes
    code: bytes | None
    code_suffix: str | None
    more: tuple[tuple[str, bytes], ...] = ()
    listing: bytes | None = None

    @property
    def codes(self) -> tuple[bytes, ...]:
        """All code objects, that of the kernel that does the work first."""
        return () if self.code is None else (self.code, *(content for _, content in self.more))


@cache
def compiler_version() -> str:
    """``iree-base-compiler 3.13.0``, as manifests and cache keys name it; looked up once."""
    return f"iree-base-compiler {version('iree-base-compiler')}"


def compile_all(
    jobs: Sequence[Job],
    options: CompileOptions,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Artifact | CompileError]:
    """Compile every job; a failed one gives its error, so that the caller names all of them."""

    def one(job: Job) -> Artifact | CompileError:
        try:
            return compile_one(job, options)
        except Error as error:
            kind = type(error) if isinstance(error, CompileError) else CompileError
            return kind(error.message, where=error.where or job.name)
        finally:
            progress(job.name)

    with ThreadPoolExecutor(max_workers=options.jobs or os.cpu_count() or 1) as pool:
        return list(pool.map(one, jobs))


def compile_one(job: Job, options: CompileOptions) -> Artifact:
    """Compile one module, or take it from the cache.

    Raises:
        CompileError: the compiler refused, crashed or ran past the deadline; or the host entry
            allocates or copies although it must not.
    """
    key = _key(job)
    cached = _read_cache(options.cache, key)
    if cached is not None:
        return cached
    try:
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            artifact = _run(job, Path(folder), options.deadline_s)
    except OSError as error:  # no compiler, no room for its files
        raise CompileError(f"cannot compile: {error.strerror or error}", where=job.name) from None
    _write_cache(options.cache, key, artifact)
    return artifact


def _key(job: Job) -> str:
    digest = hashlib.sha256()
    amended = f"amended {REVISION}" if job.amend else ""
    flags = (*_COMMON, *job.flags, *(_LISTING if job.listing else ()))
    parts = (compiler_version(), *flags, str(job.in_place), amended, job.text)
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _run(job: Job, folder: Path, deadline_s: float) -> Artifact:
    (folder / "code").mkdir()
    (folder / "phases").mkdir()
    (folder / "listings").mkdir()
    dumps = ["--iree-hal-dump-executable-binaries-to=code"]
    if job.listing:
        dumps += _LISTING
    if job.in_place:
        dumps.append("--dump-compilation-phases-to=phases")
    if job.compilation_info is not None:
        dumps.append("--iree-hal-dump-executable-configurations-to=configurations")
    _compile(job, job.text, dumps, folder, deadline_s)
    if job.compilation_info is not None:
        configured = sorted((folder / "configurations").glob("*.mlir"))
        texts = [path.read_text() for path in configured]
        check_applied(job.compilation_info, texts, where=job.name)
    if job.in_place:
        _check_in_place(job, folder / "phases")
    codes = _codes(folder / "code")
    if job.amend:
        codes = _amended(job, codes, folder, deadline_s)
    first, *more = codes.items() or [(None, None)]
    listings = sorted((folder / "listings").glob(f"*{LISTING_SUFFIX}"))
    return Artifact(
        vmfb=(folder / OUTPUT_NAME).read_bytes(),
        code=first[1],
        code_suffix=Path(first[0]).suffix if first[0] else None,
        more=tuple((name, content) for name, content in more if name and content is not None),
        listing=listings[0].read_bytes() if listings else None,
    )


def _codes(folder: Path) -> dict[str, bytes]:
    """The objects by file name, without the module's.

    ``__kernel``, the executable that does the work, sorts before all others that bodies emit.
    """
    paths = sorted((p for p in folder.iterdir() if p.suffix in CODE_SUFFIXES), key=lambda p: p.stem)
    return {p.name.removeprefix("module_"): p.read_bytes() for p in paths}


def _amended(
    job: Job, codes: dict[str, bytes], folder: Path, deadline_s: float
) -> dict[str, bytes]:
    """Complete the device code and link it into the module in place of what was compiled."""
    amended = {name: legalize_spirv(code, where=job.name) for name, code in codes.items()}
    if amended == codes:
        return codes
    for name, content in amended.items():
        (folder / name).write_bytes(content)
    objects = {_executable(name, job): name for name in amended}
    _compile(job, with_objects(job.text, objects, where=job.name), [], folder, deadline_s)
    return amended


def _executable(name: str, job: Job) -> str:
    """The executable of an object that is called ``<executable>_<entry>`` and a suffix."""
    stem = Path(name).stem
    for symbol, entry in _EXPORT.findall(job.text):
        if stem == f"{symbol}_{entry}":
            return symbol
    raise CompileError(f"the compiler made an object '{name}' of no executable", where=job.name)


def _compile(job: Job, text: str, flags: Sequence[str], folder: Path, deadline_s: float) -> None:
    """Run the compiler on a text in ``folder``; the module is left there."""
    (folder / INPUT_NAME).write_text(text)
    command = [find_tool("iree-compile"), INPUT_NAME, "-o", OUTPUT_NAME]
    command += [*_COMMON, *job.flags, *flags]
    ended = run_child(command, folder, deadline_s, "the compiler", where=job.name)
    if ended.code:
        raise CompileError(_explain(ended.code, ended.diagnostics), where=job.name)


def _explain(code: int, diagnostics: bytes) -> str:
    lines = [line.strip() for line in diagnostics.decode(errors="replace").splitlines()]
    errors = [line for line in lines if "error:" in line or "ERROR:" in line]
    how = f"crashed with signal {-code}" if code < 0 else f"failed with code {code}"
    reason = errors[0] if errors else next((line for line in lines if line), "no diagnostic")
    return f"the compiler {how}: {reason[:400]}"


def _check_in_place(job: Job, phases: Path) -> None:
    """Silent clones cost a copy of the result a call, and leave the caller's buffer unwritten."""
    text = "\n".join(path.read_text() for path in sorted(phases.glob("*.stream.mlir")))
    if not text:
        raise CompileError("the compiler dumped no host entry to check", where=job.name)
    for op in ("stream.resource.alloc", "stream.cmd.copy", "stream.cmd.fill"):
        if op in text:
            raise CompileError(f"the host entry must work in place, it has '{op}'", where=job.name)


def _read_cache(cache: Path | None, key: str) -> Artifact | None:
    if cache is None:
        return None
    try:
        entry = (cache / f"{key}.zip").read_bytes()
    except OSError:
        return None  # absent: compile
    digest, content = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None  # damaged: compile again
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    code = next((name for name in files if name.startswith("code")), None)
    more = [(n.removeprefix(_MORE), b) for n, b in files.items() if n.startswith(_MORE)]
    return Artifact(
        vmfb=files[OUTPUT_NAME],
        code=files[code] if code else None,
        code_suffix=code.removeprefix("code") if code else None,
        more=tuple(more),
        listing=files.get(_LISTED),
    )


def _write_cache(cache: Path | None, key: str, artifact: Artifact) -> None:
    """Best effort and atomic: a reader sees a whole entry or none."""
    if cache is None:
        return
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(OUTPUT_NAME, artifact.vmfb)
        if artifact.code is not None:
            archive.writestr(f"code{artifact.code_suffix}", artifact.code)
        for name, content in artifact.more:
            archive.writestr(f"{_MORE}{name}", content)
        if artifact.listing is not None:
            archive.writestr(_LISTED, artifact.listing)
    content = buffer.getvalue()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=cache, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(name, cache / f"{key}.zip")
        except OSError:
            os.unlink(name)
    except OSError:
        return  # a full or read-only cache only costs time
