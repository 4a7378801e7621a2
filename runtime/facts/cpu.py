"""Facts of the host processor, from the files in which Linux reports them.

What a system does not report stays unknown; nothing here fails.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from dialects.facts import DeviceFacts

from .origin import sourced

MAX_WORKERS = 64  # IREE's default for --task_topology_max_group_count
_CPUS = "sys/devices/system/cpu"

# 32-bit lanes of one register, widest first.
_LANES = (("avx512f", 16), ("avx2", 8), ("avx", 8), ("sse2", 4), ("asimd", 4), ("neon", 4))
_REVISION = ("CPU implementer", "CPU variant", "CPU part", "CPU revision")
_SIBLINGS = ("core_cpus_list", "thread_siblings_list")  # the new name and the old one
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_SOURCES = {
    "isa": "uname: machine",
    "name": "/proc/cpuinfo: model name",
    "driver": "/proc/cpuinfo: microcode, or implementer, variant, part and revision",
    "wave_widths": "/proc/cpuinfo: widest SIMD flag",
    "features": "/proc/cpuinfo: flags that all usable processors have",
    "multiprocessors": f"/{_CPUS}: usable physical cores of one NUMA node, 1 for local-sync",
    "l2_bytes": f"/{_CPUS}: cache of level 2",
    "clock_khz": f"/{_CPUS}: cpuinfo_max_freq",
    "memory_bytes": "/proc/meminfo: MemTotal",
}


def read_cpu_facts(
    *,
    parallel: bool,
    root: Path = Path("/"),
    usable: Iterable[int] | None = None,
    machine: str | None = None,
) -> DeviceFacts:
    """Facts of the host, as one worker or, with ``parallel``, as IREE's default set of workers.

    ``root`` holds ``proc`` and ``sys``, ``usable`` are the logical processors this process may run
    on, ``machine`` is uname's; left out, they are this machine's.
    """
    cpus = sorted(_affinity() if usable is None else set(usable))
    processors = _processors(_text(root / "proc/cpuinfo"), cpus)
    first = processors[0] if processors else {}
    features = _features(processors)
    cpu = root / _CPUS / f"cpu{cpus[0] if cpus else 0}"
    facts = DeviceFacts(
        source="read from the operating system",
        backend="cpu",
        isa=(platform.machine() if machine is None else machine) or None,
        name=first.get("model name"),
        driver=_revision(first),
        wave_widths=_wave_widths(features),
        features=features,
        multiprocessors=_workers(root, cpus) if parallel else 1,
        l2_bytes=_l2_bytes(cpu),
        clock_khz=_integer(_text(cpu / "cpufreq/cpuinfo_max_freq")),
        memory_bytes=_memory_bytes(_text(root / "proc/meminfo")),
    )
    return sourced(facts, _SOURCES)


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _integer(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _processors(text: str, usable: list[int]) -> list[dict[str, str]]:
    """The fields of each usable logical processor; a block without a number is of the board."""
    blocks = [_fields(block) for block in text.split("\n\n")]
    return [b for b in blocks if _integer(b.get("processor", "")) in usable]


def _features(processors: list[dict[str, str]]) -> tuple[str, ...] | None:
    listed = [p.get("flags", p.get("Features")) for p in processors]
    known = [set(flags.split()) for flags in listed if flags is not None]
    return tuple(sorted(set.intersection(*known))) if known else None


def _wave_widths(features: tuple[str, ...] | None) -> tuple[int, ...] | None:
    return next(((lanes,) for flag, lanes in _LANES if flag in (features or ())), None)


def _revision(processor: dict[str, str]) -> str | None:
    if "microcode" in processor:
        return f"microcode {processor['microcode']}"
    parts = [f"{k.removeprefix('CPU ')} {processor[k]}" for k in _REVISION if k in processor]
    return " ".join(parts) or None


def _workers(root: Path, cpus: list[int]) -> int:
    """One worker a physical core, on one NUMA node, as IREE makes them; the fullest node counts.

    A processor whose core is not reported counts as a core of its own.
    """
    nodes: dict[str, set[str]] = {}
    for number in cpus:
        cpu = root / _CPUS / f"cpu{number}"
        node = next((path.name for path in sorted(cpu.glob("node[0-9]*"))), "")
        siblings = (_text(cpu / "topology" / name) for name in _SIBLINGS)
        core = next(filter(None, siblings), f"{number}")
        nodes.setdefault(node, set()).add(core)
    return min(MAX_WORKERS, max((len(cores) for cores in nodes.values()), default=1))


def _l2_bytes(cpu: Path) -> int | None:
    for cache in sorted(cpu.glob("cache/index[0-9]*")):
        if _text(cache / "level") == "2" and _text(cache / "type") in ("Data", "Unified"):
            size = _text(cache / "size")
            count = _integer(size[:-1]) if size[-1:] in _UNITS else _integer(size)
            return None if count is None else count * _UNITS.get(size[-1:], 1)
    return None


def _memory_bytes(meminfo: str) -> int | None:
    number, _, unit = _fields(meminfo).get("MemTotal", "").partition(" ")
    count = _integer(number)
    return None if count is None or unit != "kB" else count << 10
