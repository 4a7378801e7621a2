"""Targets: what a module is compiled for, written from DeviceFacts instead of a table of devices.

``#iree_gpu.target`` and the compiler's flags come from the facts of a live device, a facts file, or
the ISA's own limits where nothing is known: the compiler must never refuse what only the driver may
refuse (design section 4).
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from dialects.errors import DeclarationError, TargetError
from dialects.facts import DeviceFacts, facts_from_json

ReadFacts = Callable[[str], DeviceFacts]
PeerMatrix = Literal["default", "none"]  # matrix instructions that a peer is told of

# psABI levels of x86-64, best first: the compiler's name and the flags a processor must show, by
# the names that the operating system reports (x86-64 psABI, section 3.1.1).
_V2 = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
X86_LEVELS = (("x86-64-v4", _V4), ("x86-64-v3", _V3), ("x86-64-v2", _V2), ("x86-64", ()))

# Largest limits of an ISA where the driver's are not known: PTX ISA 8.0 (shared opt-in of the
# largest part), RDNA/CDNA LDS, and the Vulkan specification's own field widths.
_WIDEST_SHARED = {"cuda": 232448, "rocm": 65536, "vulkan": 65536}
_LARGE_LDS = 163840  # of gfx950
_WIDEST_COUNTS = {
    "cuda": (2147483647, 65535, 65535),
    "rocm": (2147483647, 2147483647, 2147483647),
    "vulkan": (65535, 65535, 65535),
}
_IREE_BACKEND = {
    "cuda": ("cuda", "cuda-nvptx-fb", "cuda"),
    "rocm": ("rocm", "rocm-hsaco-fb", "hip"),
    "vulkan": ("vulkan-spirv", "vulkan-spirv-fb", "vulkan"),
}
_PEER_MATRIX = {
    "sm_": (
        "NV_MMA_SYNC_F32_16x8x16_F16",
        "NV_MMA_SYNC_F16_16x8x16_F16",
        "NV_MMA_SYNC_F32_16x8x16_BF16",
    ),
    "gfx11": ("WMMAR3_F32_16x16x16_F16", "WMMAR3_F32_16x16x16_BF16", "WMMAR3_I32_16x16x16_I8"),
    "gfx12": ("WMMAR4_F32_16x16x16_F16", "WMMAR4_F32_16x16x16_BF16", "WMMAR4_I32_16x16x16_I8"),
    "gfx94": ("MFMA_F32_16x16x16_F16", "MFMA_F32_32x32x8_F16", "MFMA_I32_16x16x32_I8"),
}
# On Vulkan IREE goes by the vendor's ISA: for matrix instructions and for tiles without them. Its
# table was made for the one vendor whose waves have this width alone.
_PEER_VULKAN_WAVES, _PEER_VULKAN_ARCH = (32,), "sm_89"
_SIZES = (1024, 1024, 1024)
# The PTX version that has an ISA, newest first (PTX ISA, release notes): what is written for it.
_OLDEST_PTX = ((120, (8, 7)), (100, (8, 6)), (89, (7, 8)), (86, (7, 1)), (80, (7, 0)))
_MOST = (1 << 31) - 1  # the attribute holds i32
# Compute capabilities whose name the compiler's LLVM writes as PTX's ``.target``; for any other it
# silently writes the oldest. Code for one runs on all later ones, which suffixed code does not:
# "a" is for that one alone, "f" for its family (PTX ISA 8.8, table of target architectures).
PTX_TARGETS = (
    *(30, 32, 35, 37, 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89),
    *(90, 100, 101, 103, 120, 121),
)
PTX_SPECIFIC = {"a": (90, 100, 101, 103, 120, 121), "f": (100, 101, 103, 120, 121)}
_PTX_ISA = re.compile(r"sm_([0-9]{2,3})([af]?)")
_ISA = {"cuda": _PTX_ISA.pattern, "rocm": r"gfx[0-9a-f]{3,4}"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """One thing to compile for. ``name`` is how the manifest and messages call it.

    ``isa`` is what the compiler is asked for: an older baseline where it does not know the target's
    own, which :attr:`baseline` then is.
    """

    backend: str
    isa: str
    name: str
    facts: DeviceFacts

    @property
    def wave(self) -> int:
        """Wave width for block arithmetic: the narrowest offered, 32 when unknown."""
        return min(self.facts.wave_widths or _waves(self.isa) or (32,))

    @property
    def shared_bytes(self) -> int:
        """Workgroup memory of one block: the driver's limit, or else the most that the ISA has."""
        known = self.facts.shared_limit
        if known is not None:
            return known
        return _LARGE_LDS if self.isa == "gfx950" else _WIDEST_SHARED[self.backend]

    @property
    def compute_capability(self) -> int | None:
        """Of what the code is for, 90 of ``sm_90a``; None where it is not PTX."""
        found = _PTX_ISA.fullmatch(self.isa)
        return int(found[1]) if found else None

    @property
    def baseline(self) -> str | None:
        """The ISA of the code where it is not that of the target's name."""
        known = self.backend != "cuda" or self.name == f"{self.backend}:{self.isa}"
        return None if known else self.isa

    @property
    def needs(self) -> tuple[str, ...]:
        """Processor flags that the code will need at run time."""
        return dict(X86_LEVELS).get(self.isa, ()) if self.backend == "cpu" else ()


def parse_target(spec: str, read_facts: ReadFacts | None = None) -> Target:
    """The target of ``cpu``, ``cuda:sm_90a``, ``rocm:gfx1100``, ``vulkan``, a facts file or
    ``device:<uri>``.

    ``read_facts`` reads a live device; without it ``cpu`` is the processor family's baseline.

    Raises:
        TargetError: not one of these, or a facts file that cannot be read.
    """
    head, _, rest = spec.partition(":")
    if head == "device" and rest:
        if read_facts is None:
            raise TargetError(f"target '{spec}' needs a device, none can be read here")
        return target_from_facts(read_facts(rest))
    if spec == "cpu":
        facts = read_facts("local-task") if read_facts else _baseline()
        return target_from_facts(facts)
    if head == "cpu" and rest in dict(X86_LEVELS):
        return _cpu(DeviceFacts(backend="cpu", features=dict(X86_LEVELS)[rest]), rest)
    if head in _ISA and re.fullmatch(_ISA[head], rest):
        return target_from_facts(DeviceFacts(backend=head, isa=rest, wave_widths=_waves(rest)))
    if spec == "vulkan":
        return target_from_facts(DeviceFacts(backend="vulkan"))
    if spec.endswith(".json") or _is_file(spec):
        return target_from_facts(_facts_file(spec))
    raise TargetError(
        f"target '{spec}' is not one of cpu, cuda:sm_NN, rocm:gfxNNN, vulkan, "
        "a facts file, device:<uri>"
    )


def with_wave(target: Target, width: int | None, *, where: str) -> Target:
    """The target of a kernel whose body assumes waves of ``width`` lanes (``xpu.wave``).

    The CPU has no lanes that a body could index, so the declaration states nothing there.

    Raises:
        DeclarationError: the target's waves have other widths only.
    """
    if width is None or target.backend == "cpu":
        return target
    offered = target.facts.wave_widths
    if offered is None and target.backend == "rocm":
        offered = (32, 64)  # RDNA; GCN and CDNA have one width
    if offered is not None and width not in offered:
        widths = " and ".join(str(w) for w in offered)
        raise DeclarationError(
            f"xpu.wave {{width = {width}}}: {target.name} has waves of {widths}", where=where
        )
    return replace(target, facts=replace(target.facts, wave_widths=(width,)))


def _waves(isa: str) -> tuple[int, ...] | None:
    """The only wave width of an ISA (PTX ISA, AMD GCN and CDNA ISA guides); None has a choice."""
    if isa.startswith("sm_"):
        return (32,)
    return (64,) if re.match(r"gfx[6-9]", isa) else None


def _is_file(spec: str) -> bool:
    try:
        return Path(spec).is_file()
    except OSError:  # too long for a name, or in a folder that cannot be read
        return False


def _facts_file(path: str) -> DeviceFacts:
    try:
        return facts_from_json(Path(path).read_bytes(), where=path)
    except OSError as error:
        raise TargetError(f"cannot read facts file: {error.strerror}", where=path) from None


def _baseline() -> DeviceFacts:
    return DeviceFacts(backend="cpu", isa=platform.machine(), features=())


def target_from_facts(facts: DeviceFacts) -> Target:
    """The target that the facts describe.

    Raises:
        TargetError: a backend without code generation, or a GPU of unknown ISA.
    """
    if facts.backend == "cpu":
        return _cpu(facts, _cpu_isa(facts))
    if facts.backend == "vulkan":
        return Target(backend="vulkan", isa="spirv", name="vulkan", facts=facts)
    if facts.backend in _IREE_BACKEND:
        if not facts.isa:
            raise TargetError(f"facts of a {facts.backend} device lack its isa")
        if not re.fullmatch(_ISA[facts.backend], facts.isa):
            raise TargetError(f"isa {facts.isa!r} of a {facts.backend} device is not understood")
        isa = _known_ptx(facts.isa) if facts.backend == "cuda" else facts.isa
        return Target(
            backend=facts.backend, isa=isa, name=f"{facts.backend}:{facts.isa}", facts=facts
        )
    raise TargetError(f"backend '{facts.backend}' is not one of cpu, cuda, rocm, vulkan")


def _known_ptx(isa: str) -> str:
    """The ISA itself, or the newest baseline that its compute capability covers.

    Raises:
        TargetError: it is older than any that the compiler knows.
    """
    found = _PTX_ISA.fullmatch(isa)
    assert found is not None
    number, suffix = int(found[1]), found[2]
    if number in PTX_SPECIFIC.get(suffix, PTX_TARGETS):
        return isa
    covered = [known for known in PTX_TARGETS if known <= number]
    if not covered:
        raise TargetError(f"isa {isa!r} is older than sm_{PTX_TARGETS[0]}, the oldest known")
    return f"sm_{covered[-1]}"


def _cpu(facts: DeviceFacts, isa: str) -> Target:
    return Target(backend="cpu", isa=isa, name=f"cpu:{isa}", facts=replace(facts, isa=isa))


def _cpu_isa(facts: DeviceFacts) -> str:
    """The best level whose flags are all there; other processor families use their baseline."""
    if facts.isa not in (None, "x86_64", "AMD64", *dict(X86_LEVELS)):
        return "generic"
    flags = set(facts.features or ())
    return next(level for level, required in X86_LEVELS if flags.issuperset(required))


def compiler_flags(target: Target) -> tuple[str, ...]:
    """Flags of ``iree-compile``; GPU targets are named in the module instead.

    ukernels are off: the default ones miscompile some inner tiles.
    """
    if target.backend != "cpu":
        return ()
    return (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-cpu={target.isa}",
        "--iree-llvmcpu-enable-ukernels=none",
    )


def module_attributes(
    target: Target,
    *,
    peer: PeerMatrix | None = None,
    ptx_version: tuple[int, int] | None = None,
) -> str:
    """The ``hal.device.targets`` attribute of a module, empty for the CPU.

    A ``peer`` is the compiler's own work: by default it is told the matrix instructions that its
    own table gives the ISA's family, where our kernels want none chosen for them.
    ``ptx_version`` is the oldest PTX ISA that has what the module writes itself.
    """
    if target.backend == "cpu":
        return ""
    backend, container, device = _IREE_BACKEND[target.backend]
    arch, features = _arch(target, ptx_version)
    if peer and target.facts.wave_widths == _PEER_VULKAN_WAVES and target.backend == "vulkan":
        arch = _PEER_VULKAN_ARCH
    executable = (
        f'#hal.executable.target<"{backend}", "{container}", '
        f"{{{'abi = ' + chr(34) + 'hip' + chr(34) + ', ' if target.backend == 'rocm' else ''}"
        f"iree_codegen.target_info = #iree_gpu.target<"
        f'arch = "{arch}", features = "{features}", wgp = <{_limits(target, peer)}>>}}>'
    )
    return f'hal.device.targets = [#hal.device.target<"{device}", [{executable}]> : !hal.device]'


def _arch(target: Target, ptx_version: tuple[int, int] | None) -> tuple[str, str]:
    """Without features the back end takes the oldest PTX version that has the ISA.

    It refuses to write an older one, so only a newer one is asked for: drivers take no version
    above their own.
    """
    generation = target.compute_capability
    if generation is not None and ptx_version is not None:
        oldest = next((v for since, v in _OLDEST_PTX if generation >= since), (0, 0))
        if ptx_version > oldest:
            return target.isa, "+ptx{}{}".format(*ptx_version)
    if target.backend in ("cuda", "rocm"):
        return target.isa, ""
    return "", "spirv:v1.6,cap:Shader"


def _limits(target: Target, peer: PeerMatrix | None) -> str:
    facts, backend = target.facts, target.backend
    compute, storage = _types(target)
    counts = facts.max_workgroup_counts or _WIDEST_COUNTS[backend]
    sizes = facts.max_workgroup_sizes or _SIZES
    parts = [
        f"compute = {compute}",
        f"storage = {storage}",
        "subgroup = shuffle|arithmetic",
        *([] if backend == "vulkan" else ["dot = dp4xi8toi32"]),
        f"mma = [{_peer_list(target, peer) if peer else _matrix_list(target)}]",
        f"subgroup_size_choices = {list(facts.wave_widths or (target.wave,))}",
        f"max_workgroup_sizes = {[min(s, _MOST) for s in sizes]}",
        f"max_thread_count_per_workgroup = {facts.max_threads_per_block or 1024}",
        f"max_workgroup_memory_bytes = {target.shared_bytes}",
        f"max_workgroup_counts = {[min(c, _MOST) for c in counts]}",
    ]
    if backend == "rocm":
        parts += ["max_load_instruction_bits = 128", "simds_per_wgp = 4", "vgpr_space_bits = 8192"]
    return ", ".join(parts)


def _matrix_list(target: Target) -> str:
    """Empty keeps the compiler from choosing matrix instructions of its own.

    On Vulkan a list that is not empty only switches the cooperative-matrix capability on: which
    entries stand in it makes no difference to a kernel that we emit.
    """
    listed = target.backend == "vulkan" and target.facts.native_matrix_configs
    return "<WMMAR3_F32_16x16x16_F16>" if listed else ""


def _peer_list(target: Target, peer: PeerMatrix) -> str:
    """What IREE 3.13 lists for the newest parts of a family that it knows.

    On Vulkan, of what it lists for the vendor, what the driver lists too.
    """
    if peer == "none":
        return ""
    if target.backend == "vulkan":
        offered = {(c.m, c.n, c.k, c.a, c.acc) for c in target.facts.native_matrix_configs or ()}
        there = [acc for acc in ("f32", "f16") if (16, 16, 16, "f16", acc) in offered]
        known = there if target.facts.wave_widths == _PEER_VULKAN_WAVES else []
        return ", ".join(f"<NV_WMMA_{acc.upper()}_16x16x16_F16>" for acc in known)
    families = [f for f in _PEER_MATRIX if target.isa.startswith(f)]
    if target.backend == "cuda" and (target.compute_capability or 0) < 80:
        return ""  # its table offers some there that its back end cannot select
    return ", ".join(f"<{name}>" for family in families for name in _PEER_MATRIX[family])


def _types(target: Target) -> tuple[str, str]:
    """Arithmetic and storage widths; on Vulkan only what the facts list, all when unknown."""
    everything = ("fp64|fp32|fp16|int64|int32|int16|int8", "b64|b32|b16|b8")
    if target.backend != "vulkan":
        return everything
    listed, stored = target.facts.features, target.facts.storage_features
    compute = ["fp32", "int32"]
    for name in ("fp64", "fp16", "int64", "int16", "int8"):
        if listed is None or name in listed:
            compute.append(name)
    storage = ["b32", *(s for s in ("b16", "b8") if stored is None or s in stored)]
    return "|".join(compute), "|".join(storage)
