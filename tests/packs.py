"""Packs that tests of the run time share: the samples with few members, and copies to spoil."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dialects.manifest import KernelEntry, Manifest, Record, manifest_from_text, manifest_text
from lowering.build import BuildOptions, build
from lowering.compile import CompileOptions
from lowering.pack import write_pack
from lowering.target import parse_target
from runtime.facts import read_facts

SAMPLES = {
    "matmul_f32": "01_matmul_f32.mlir",
    "matmul_f16": "02_matmul_f16.mlir",
    "matmul_transposed_b": "03_matmul_transposed_b.mlir",
    "batch_matmul": "04_batch_matmul.mlir",
    "matmul_bias_relu": "05_matmul_bias_relu.mlir",
}
TARGETS = ("cpu", "vulkan")
_FOLDER = Path(__file__).resolve().parent.parent / "samples"
_MEMBER = re.compile(r"^ *\{m = [^}]*\},?\n", re.M)
_KEPT = {
    'backends = ["cpu"]': 2,
    'backends = ["rocm", "vulkan"]': 1,
    'backends = ["rocm"]': 1,
    "": 1,
    'backends = ["cuda", "rocm", "vulkan"]': 3,
}
_ONE = {'backends = ["cpu"]': 1}


@dataclass(frozen=True, kw_only=True)
class Packs:
    """One pack for each sample, for this processor, any Vulkan device and those asked for."""

    folder: Path
    cache: Path

    def path(self, kernel: str) -> Path:
        """The pack of one kernel. Tests share it: copy it before changing anything."""
        return self.folder / kernel

    def source(self, kernel: str) -> Path:
        """The IR that the pack was built from."""
        return self.folder / SAMPLES[kernel]

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [self.path(kernel) for kernel in SAMPLES]


def build_packs(folder: Path, cache: Path, targets: tuple[str, ...] = TARGETS) -> Packs:
    """Build a pack for each sample; ``cache`` is a compile cache that others may share."""
    packs = Packs(folder=folder, cache=cache)
    for kernel, name in SAMPLES.items():
        packs.source(kernel).write_text(with_few_members((_FOLDER / name).read_text()))
        build_pack(packs.source(kernel), packs.path(kernel), cache, targets)
    return packs


def build_pack(
    source: Path,
    out: Path,
    cache: Path,
    targets: tuple[str, ...] = TARGETS,
    body: str = "",
) -> None:
    """Compile one source, by default for this processor and any Vulkan device."""
    chosen = [parse_target(t, read_facts) for t in targets]
    options = BuildOptions(body=body, compile=CompileOptions(cache=cache))
    write_pack(build(source.read_text(), str(source), chosen, options), out)


def with_few_members(source: str, kept: Mapping[str, int] = _KEPT) -> str:
    """The source with so many members of each kind: two for the CPU, one for all, ..."""
    seen: Counter[str] = Counter()

    def keep(match: re.Match[str]) -> str:
        (kind,) = re.findall(r"backends = \[[^]]*\]", match[0]) or [""]
        seen[kind] += 1
        return match[0] if seen[kind] <= kept.get(kind, 0) else ""

    return re.sub(r",((?:\s|//.*\n)*\])", r"\1", _MEMBER.sub(keep, source))


def with_one_member(source: str) -> str:
    """The source with nothing but its first member for the CPU."""
    return with_few_members(source, _ONE)


def copied(pack: Path, out: Path) -> Path:
    """A copy that a test may spoil."""
    shutil.copytree(pack, out)
    return out


def manifest_of(pack: Path) -> Manifest:
    """The manifest of a pack."""
    return manifest_from_text((pack / "manifest.json").read_bytes(), where=str(pack))


def kernel_of(pack: Path) -> KernelEntry:
    """The only kernel of a pack."""
    (kernel,) = manifest_of(pack).kernels
    return kernel


def change_records(pack: Path, change: Callable[[Record], Record]) -> None:
    """Rewrite the records of a pack of one kernel, with a digest that fits."""
    manifest = manifest_of(pack)
    (kernel,) = manifest.kernels
    changed = replace(kernel, members=tuple(change(record) for record in kernel.members))
    text = manifest_text(replace(manifest, kernels=(changed,)))
    (pack / "manifest.json").write_text(text)


def replace_module(pack: Path, name: str, content: bytes) -> None:
    """Give the candidate of that name, on any target, other code that its digest agrees with."""

    def change(record: Record) -> Record:
        if record.name != name or record.files is None:
            return record
        (pack / record.files.vmfb).write_bytes(content)
        digests = {**record.files.sha256, record.files.vmfb: hashlib.sha256(content).hexdigest()}
        return replace(record, files=replace(record.files, sha256=digests))

    change_records(pack, change)


def cpu_records(pack: Path) -> list[Record]:
    """The records of a pack's only kernel that run on the processor, in family order."""
    return [r for r in kernel_of(pack).members if r.identity.target.startswith("cpu")]
