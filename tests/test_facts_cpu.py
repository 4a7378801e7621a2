"""Facts of the processor, from fake trees of /proc and /sys and from this machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from dialects.facts import DeviceFacts, facts_from_json, facts_to_json
from runtime.facts import read_facts
from runtime.facts.cpu import read_cpu_facts

AVX512 = "fpu sse sse2 avx avx2 fma avx512f avx512vl"
AVX2 = "fpu sse sse2 avx avx2 fma"


def make_tree(root: Path, files: dict[str, str]) -> Path:
    """A tree of /proc and /sys files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def x86_cpuinfo(flags: list[str]) -> str:
    """cpuinfo of as many logical processors as there are flag lines."""
    return "".join(
        f"processor\t: {i}\nmodel name\t: Some Processor\nmicrocode\t: 0xb4\nflags\t\t: {f}\n\n"
        for i, f in enumerate(flags)
    )


def cpu_files(number: int, siblings: str, l2: str = "2048K") -> dict[str, str]:
    """Topology and caches of one logical processor."""
    cpu = f"sys/devices/system/cpu/cpu{number}"
    caches = {
        "0": ("1", "Data", "48K"),
        "1": ("1", "Instruction", "32K"),
        "2": ("2", "Unified", l2),
    }
    files = {
        f"{cpu}/cache/index{index}/{name}": f"{text}\n"
        for index, cache in caches.items()
        for name, text in zip(("level", "type", "size"), cache, strict=True)
    }
    return {**files, f"{cpu}/topology/core_cpus_list": f"{siblings}\n"}


@pytest.fixture
def smt_tree(tmp_path: Path) -> Path:
    """Two cores of two threads, (0, 2) and (1, 3), with 512-bit SIMD."""
    files = {
        "proc/cpuinfo": x86_cpuinfo([AVX512] * 4),
        "proc/meminfo": "MemTotal:       24731708 kB\nMemFree:        23801732 kB\n",
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "4200000\n",
    }
    for number, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        files |= cpu_files(number, siblings)
    return make_tree(tmp_path, files)


def test_a_processor_with_avx512(smt_tree: Path) -> None:
    facts = read_cpu_facts(parallel=True, root=smt_tree, usable=range(4), machine="x86_64")
    assert facts == DeviceFacts(
        source="read from the operating system",
        backend="cpu",
        isa="x86_64",
        name="Some Processor",
        driver="microcode 0xb4",
        wave_widths=(16,),
        multiprocessors=2,
        l2_bytes=2 << 20,
        clock_khz=4_200_000,
        memory_bytes=24731708 << 10,
        features=("avx", "avx2", "avx512f", "avx512vl", "fma", "fpu", "sse", "sse2"),
        sources=facts.sources,
    )


def test_every_known_field_of_a_processor_has_a_source(smt_tree: Path) -> None:
    facts = read_cpu_facts(parallel=True, root=smt_tree, usable=range(4), machine="x86_64")
    plain = {"schema_version", "source", "backend", "sources"}
    assert set(facts.sources or {}) == set(facts_to_json(facts)) - plain


@pytest.mark.parametrize(
    ("usable", "workers"), [((0, 1, 2, 3), 2), ((0, 2), 1), ((0, 1), 2), ((3,), 1)]
)
def test_workers_are_the_usable_physical_cores(
    smt_tree: Path, usable: tuple[int, ...], workers: int
) -> None:
    parallel = read_cpu_facts(parallel=True, root=smt_tree, usable=usable, machine="x86_64")
    alone = read_cpu_facts(parallel=False, root=smt_tree, usable=usable, machine="x86_64")
    assert (parallel.multiprocessors, alone.multiprocessors) == (workers, 1)
    assert replace(alone, multiprocessors=workers) == parallel


def test_workers_are_of_one_numa_node_and_at_most_64(tmp_path: Path) -> None:
    cpus = tmp_path / "sys/devices/system/cpu"
    for number in range(200):
        (cpus / f"cpu{number}" / f"node{int(number >= 30)}").mkdir(parents=True)

    def workers(usable: range) -> int | None:
        facts = read_cpu_facts(parallel=True, root=tmp_path, usable=usable, machine="x86_64")
        return facts.multiprocessors

    assert workers(range(40)) == 30
    assert workers(range(20, 80)) == 50
    assert workers(range(200)) == 64


def test_a_processor_with_avx2_only(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path, {"proc/cpuinfo": x86_cpuinfo([AVX2, AVX2]), **cpu_files(0, "0", "1M")}
    )
    facts = read_cpu_facts(parallel=True, root=root, usable=(0, 1), machine="x86_64")
    assert facts.wave_widths == (8,)
    assert "avx512f" not in (facts.features or ())
    assert facts.l2_bytes == 1 << 20
    assert facts.multiprocessors == 2
    assert (facts.clock_khz, facts.memory_bytes) == (None, None)
    assert not {"clock_khz", "memory_bytes"} & set(facts.sources or {})


def test_a_flag_that_one_usable_processor_lacks_is_no_feature(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"proc/cpuinfo": x86_cpuinfo([AVX512, AVX2])})
    both = read_cpu_facts(parallel=True, root=root, usable=(0, 1), machine="x86_64")
    first = read_cpu_facts(parallel=True, root=root, usable=(0,), machine="x86_64")
    assert (both.wave_widths, first.wave_widths) == ((8,), (16,))


def test_an_aarch64_processor(tmp_path: Path) -> None:
    block = (
        "processor\t: {}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd aes crc32 asimddp\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"
        "CPU revision\t: 1\n\n"
    )
    text = block.format(0) + block.format(1) + "Hardware\t: Board\nModel\t\t: Some Board\n"
    root = make_tree(tmp_path, {"proc/cpuinfo": text})
    facts = read_cpu_facts(parallel=True, root=root, usable=(0, 1), machine="aarch64")
    assert facts.isa == "aarch64"
    assert facts.features == ("aes", "asimd", "asimddp", "crc32", "fp")
    assert facts.wave_widths == (4,)
    assert facts.driver == "implementer 0x41 variant 0x3 part 0xd0c revision 1"
    assert (facts.name, facts.l2_bytes) == (None, None)
    assert facts.multiprocessors == 2


def test_a_system_that_reports_nothing_leaves_everything_unknown(tmp_path: Path) -> None:
    facts = read_cpu_facts(parallel=False, root=tmp_path, usable=(0,), machine="riscv64")
    assert set(facts_to_json(facts)) == {
        "schema_version", "source", "backend", "isa", "multiprocessors", "sources",
    }  # fmt: skip


@pytest.mark.parametrize("size", ["", "K", "12Q", "-4K", "1.5M"])
def test_a_cache_size_that_is_no_number_is_unknown(tmp_path: Path, size: str) -> None:
    root = make_tree(tmp_path, cpu_files(0, "0", size))
    assert read_cpu_facts(parallel=False, root=root, usable=(0,)).l2_bytes is None


def test_the_live_processor() -> None:
    facts = read_facts("local-task")
    assert facts.backend == "cpu"
    assert facts.isa == os.uname().machine
    assert (facts.memory_bytes or 0) > 1 << 28
    assert 1 <= (facts.multiprocessors or 0) <= len(os.sched_getaffinity(0))
    assert facts.features == tuple(sorted(set(facts.features or ())))
    assert facts == read_facts("local-task")
    assert read_facts("local-sync") == replace(facts, multiprocessors=1)
    assert facts_from_json(json.dumps(facts_to_json(facts)), where="live") == facts
