"""The manifest of a pack (schema v1): the only contract between the compiler and the run time.

Absent is a value: a field that nobody could measure is null, never 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from .block_formats import block_format, stored_sizes
from .codec import decode, dumps, loads
from .errors import Error, FormatError
from .expressions import Expression, evaluate
from .launch import Launch, SplitK
from .launch import Step as Step
from .member import Tile, check_tile
from .occupancy import Usage
from .operands import Contraction, OperandGroup, check_contraction
from .types import element_type

FILE_NAME = "manifest.json"
SCHEMA_VERSION = 1
REQUIRES_RUNTIME = "iree 3.13"
MOST_SPLITS = 1024
SPLITS = "splits"  # the slices of K by name: no size can be called so
MULTIPROCESSORS = "multiprocessors"  # of the device, by name: what a persistent grid fills
UNKNOWN_MULTIPROCESSORS = (1 << 16) - 1  # more than there are tiles to share out: a grid of tiles
Mode = Literal["read", "write", "readwrite"]
AccessMode = Literal["none", "read", "write", "readwrite", "accumulate"]
GateStatus = Literal["ok", "failed", "warned", "held"]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a kernel; the last is the result, which the caller owns.

    ``type`` is the element type of the tensor that is passed: raw bytes where ``source`` names a
    block format, whose tensor then has bytes along its last axis.
    """

    name: str
    type: str
    dims: tuple[str, ...]
    mode: Mode
    source: str | None = None

    def stored_shape(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of the tensor that is passed, from the sizes by name."""
        return stored_sizes([values[d] for d in self.dims], self.source)


@dataclass(frozen=True, kw_only=True)
class Identity:
    """``code_hash`` is the sha256 of the device code alone: renaming a file does not change it.

    ``isa`` is the ISA of the code where it is another than the target names: an older one that the
    compiler knows and the target runs. Null where the code is for the target itself.
    """

    member: str
    body: str
    target: str
    code_hash: str | None
    compiler: str
    isa: str | None = None


@dataclass(frozen=True, kw_only=True)
class Files:
    """Paths within the pack. ``sha256`` holds one digest a path.

    ``assembly`` is the back end's own listing of a code object that holds machine code.
    """

    vmfb: str
    code_object: str | None
    assembly: str | None = None
    sha256: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """What one workgroup takes, read from the artifact; null where the back end reports nothing.

    ``matrix_permille`` is the share of matrix instructions among those of the main loop.
    ``sources`` names who said a field when it was not the artifact's reader.
    """

    registers: int | None = None
    sgprs: int | None = None
    spill_bytes: int | None = None
    spill_store_bytes: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None
    threads_per_group: int | None = None
    wave_width: int | None = None
    resident_groups: int | None = None
    feasible_blocks: tuple[int, ...] | None = None
    occupancy_limiter: str | None = None
    matrix_permille: int | None = None
    sources: dict[str, str] | None = None

    @property
    def shared_bytes(self) -> int | None:
        """Static and dynamic shared bytes together."""
        known = [b for b in (self.static_shared_bytes, self.dynamic_shared_bytes) if b is not None]
        return sum(known) if known else None

    @cached_property
    def usage(self) -> Usage:
        """What of it decides how many workgroups are resident."""
        return Usage(
            threads=self.threads_per_group,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Access:
    """The access mode of one buffer parameter and where it was derived from.

    ``none`` is a parameter that is never touched, ``accumulate`` one that atomics update.
    """

    param: str
    mode: AccessMode
    origin: str


@dataclass(frozen=True, kw_only=True)
class GateRecord:
    """What one build gate said of this record."""

    gate: str
    status: GateStatus
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a rule dropped a member: its need and the limit it met."""

    rule: str
    need: int | None
    limit: int | None
    message: str


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a device and a call must offer for the code.

    ``features`` by name, ``wave_width`` the one width that the code is for. ``alignment`` says what
    must be a multiple of what: a size by its name and a stride as ``<argument>.<axis>`` in
    elements, where an argument starts by its own name in bytes, 16 at most; without that, it must
    start as its strides are aligned. ``waves`` are those along m and n among which the block tile
    is shared out, where they are all that the block has. ``row_lanes`` is how many lanes copy one
    row of a staged tile, where whole rows are copied at a time.
    ``contiguous`` says that only dense operands without a size of zero are served.
    """

    features: tuple[str, ...] = ()
    wave_width: int | None = None
    alignment: dict[str, int] | None = None
    waves: tuple[int, int] | None = None
    row_lanes: int | None = None
    contiguous: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """An operand that can be packed once: ``bytes`` is an expression over the sizes."""

    operand: str
    bytes: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """One (member, body, target).

    ``compilation_info`` is what the compiler's own code generation was asked for, and applied.
    """

    identity: Identity
    tile: Tile
    launch: Launch | None
    files: Files | None
    workspace: str | None
    prepared: Prepared | None
    needs: Needs
    footprint: Footprint
    access: tuple[Access, ...]
    groups: tuple[OperandGroup, ...]
    gates: tuple[GateRecord, ...]
    refused: Refusal | None
    split: SplitK | None = None
    compilation_info: str | None = None

    @cached_property
    def name(self) -> str:
        """``member/body``, unique for one kernel and target."""
        return f"{self.identity.member}/{self.identity.body}"

    @cached_property
    def full_name(self) -> str:
        """``member/body@target``, unique for one kernel."""
        return f"{self.name}@{self.identity.target}"

    @cached_property
    def tier(self) -> str:
        """``native`` when any operand group is."""
        return "native" if any(g.tier == "native" for g in self.groups) else "software"

    def workspace_bytes(self, sizes: Mapping[str, int], splits: int = 1) -> int:
        """Workspace of one call at these sizes, 0 when it takes none."""
        if splits > 1 and self.split is not None:
            return evaluate(self.split.workspace, {**sizes, SPLITS: splits})
        return evaluate(self.workspace, sizes) if self.workspace else 0


@dataclass(frozen=True, kw_only=True)
class Peer:
    """The same kernel compiled by the back end's own defaults, for comparison only.

    ``footprint`` is that of the most demanding kernel of its file, null where no code is read.
    """

    name: str
    target: str
    vmfb: str
    sha256: str
    footprint: Footprint | None = None


@dataclass(frozen=True, kw_only=True)
class KernelEntry:
    """One kernel of a pack. ``workspace`` is enough for any of its members, in bytes.

    ``contraction`` is what the kernel computes, so that a checker can do without the source.
    """

    family: str
    kernel: str
    dims: tuple[str, ...]
    args: tuple[Argument, ...]
    contraction: Contraction
    workspace: str | None
    members: tuple[Record, ...]
    peers: tuple[Peer, ...] = ()

    @property
    def result(self) -> Argument:
        """The argument that receives the result."""
        return self.args[-1]

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """The arguments before the result."""
        return self.args[:-1]

    @property
    def read_arguments(self) -> tuple[Argument, ...]:
        """The arguments that a caller fills: the inputs, and a result that is added to."""
        return self.args if self.result.mode == "readwrite" else self.inputs


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole pack. ``digest`` is over the text without it, so that any flipped byte shows."""

    schema_version: int = SCHEMA_VERSION
    requires_runtime: str = REQUIRES_RUNTIME
    digest: str = ""
    kernels: tuple[KernelEntry, ...]


def manifest_text(manifest: Manifest) -> str:
    """The bytes of ``manifest.json``: deterministic, with a correct digest."""
    text = dumps(replace(manifest, digest=""))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return text.replace(_digest_member(""), _digest_member(digest), 1)


def _digest_member(digest: object) -> str:
    return f'"digest": "{digest}"'


def manifest_from_text(text: str | bytes, *, where: str) -> Manifest:
    """Read and check a manifest.

    Raises:
        FormatError: malformed, of another schema or runtime, with a digest that does not fit, or
            naming a size or type that is not there.
    """
    value = loads(text, where=where)
    if not isinstance(value, dict):
        raise FormatError("a manifest must be an object", where=where)
    version, runtime = value.get("schema_version"), value.get("requires_runtime")
    if version != SCHEMA_VERSION:
        raise FormatError(
            f"pack of schema {json.dumps(version)}, this runtime reads {SCHEMA_VERSION}",
            where=where,
        )
    if runtime != REQUIRES_RUNTIME:
        raise FormatError(
            f"pack requires runtime {json.dumps(runtime)}, this one is '{REQUIRES_RUNTIME}'",
            where=where,
        )
    digest = value.get("digest")
    # Of the bytes, since a repeated key or another blank would not show in the values.
    raw = text.encode() if isinstance(text, str) else text
    plain = raw.replace(_digest_member(digest).encode(), _digest_member("").encode(), 1)
    if hashlib.sha256(plain).hexdigest() != digest:
        raise FormatError("the manifest's digest does not match its content", where=where)
    manifest = decode(Manifest, value, where=where)
    for kernel in manifest.kernels:
        try:
            _check_kernel(kernel)
        except Error as error:
            raise FormatError(f"kernel '{kernel.kernel}': {error.message}", where=where) from None
    return manifest


def _check_kernel(kernel: KernelEntry) -> None:
    if not kernel.args:
        raise FormatError("has no arguments")
    for operand in (*kernel.args, *kernel.contraction.operands):
        element_type(operand.type)
        if operand.source is not None:
            block_format(operand.source)
        _check_names(f"operand {operand.name}", set(operand.dims), kernel)
    _check_names("contraction", set(kernel.contraction.dims), kernel)
    check_contraction(kernel.contraction)
    if kernel.workspace:
        _check_names(f"workspace '{kernel.workspace}'", Expression(kernel.workspace).names, kernel)
    for record in kernel.members:
        _check_record(record, kernel)


def _check_record(record: Record, kernel: KernelEntry) -> None:
    check_tile(record.tile)
    what = f"member {record.name}"
    texts = [record.workspace, record.prepared.bytes if record.prepared else None]
    _check_texts(what, texts, kernel)
    _check_texts(what, _grids(record.launch), kernel, {MULTIPROCESSORS})
    for name, alignment in (record.needs.alignment or {}).items():
        if alignment < 1:
            raise FormatError(f"{what}: alignment of {name} is {alignment}")
    needs = record.needs
    for number in (needs.wave_width, needs.row_lanes, *(needs.waves or ())):
        if number is not None and number < 1:
            raise FormatError(f"{what}: needs waves or rows of {number} lanes")
    split = record.split
    if split is not None:
        if split.k_block < 1 or not 1 <= split.max_splits <= MOST_SPLITS:
            raise FormatError(
                f"{what}: splits K in blocks of {split.k_block}, at most {split.max_splits}"
            )
        _check_texts(what, [split.workspace, *_grids(split.launch)], kernel, {SPLITS})


def _grids(launch: Launch | None) -> list[str]:
    """The expressions of a launch and those that follow it."""
    if launch is None:
        return []
    return [text for step in launch.steps for text in step.grid or ()]


def _check_texts(
    what: str, texts: Sequence[str | None], kernel: KernelEntry, more: Set[str] = frozenset()
) -> None:
    for text in filter(None, texts):
        _check_names(f"{what}: '{text}'", Expression(text).names - more, kernel)


def _check_names(what: str, names: Set[str], kernel: KernelEntry) -> None:
    unknown = names - set(kernel.dims)
    if unknown:
        raise FormatError(f"{what} names {sorted(unknown)}, not one of {list(kernel.dims)}")
