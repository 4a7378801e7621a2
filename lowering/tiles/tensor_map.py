"""Tensor maps: what the copy engine is told of a tensor, built by the kernel itself.

A map is assembled in workgroup memory and published to the workspace, from where the engine reads
it (PTX ISA, ``tensormap.replace`` and ``tensormap.cp_fenceproxy``). So sizes, strides and addresses
are those of the call, and nothing has to be passed from the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .ptx_text import PtxText, Word

BYTES = 128  # of one map
ALIGNMENT = 16  # of addresses and strides, in bytes
ROW_BYTES = 128  # of a box in workgroup memory: the width of the 128-byte swizzle
_SWIZZLE_128 = 3
# PTX ISA, table "tensormap new_val validity", field elemtype
_ELEMENTS = {"i8": 0, "u8": 0, "f8e4m3": 0, "f8e5m2": 0, "i32": 3, "f16": 6, "f32": 7, "bf16": 10}
_REPLACE = "@p tensormap.replace.tile."
_IN = ".shared::cta.b1024."


@dataclass(frozen=True, kw_only=True)
class TensorMap:
    """A tensor of rank 2 or 3, innermost axis first.

    ``base`` is its address (i64, a multiple of 16), ``strides`` the byte distances of the outer
    axes (i64, multiples of 16), ``box`` what one copy moves: 128 bytes along the innermost axis.
    """

    type: str
    base: str
    dims: tuple[Word, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]


def build(ir: PtxText, tensor: TensorMap, shared: Word, lane: Word) -> None:
    """One whole warp writes the map to workgroup memory."""
    operands = [(ir.word(shared), "i32"), (tensor.base, "i64"), (ir.word(lane), "i32")]
    text = (
        "{ .reg .pred p; .reg .b32 z; setp.eq.u32 p, $2, 0; shl.b32 z, $2, 2; "
        "add.s32 z, z, $0; st.shared.b32 [z], 0; bar.warp.sync 0xffffffff; "
        f"{_REPLACE}global_address{_IN}b64 [$0], $1; "
        f"{_REPLACE}rank{_IN}b32 [$0], {len(tensor.dims) - 1}; "
    )
    for axis, (size, extent) in enumerate(zip(tensor.dims, tensor.box, strict=True)):
        text += f"{_REPLACE}box_dim{_IN}b32 [$0], {axis}, {extent}; "
        text += f"{_REPLACE}global_dim{_IN}b32 [$0], {axis}, ${len(operands)}; "
        text += f"{_REPLACE}element_stride{_IN}b32 [$0], {axis}, 1; "
        operands.append((ir.word(size), "i32"))
    for axis, stride in enumerate(tensor.strides):
        text += f"{_REPLACE}global_stride{_IN}b64 [$0], {axis}, ${len(operands)}; "
        operands.append((stride, "i64"))
    text += (
        f"{_REPLACE}elemtype{_IN}b32 [$0], {_ELEMENTS[tensor.type]}; "
        f"{_REPLACE}interleave_layout{_IN}b32 [$0], 0; "
        f"{_REPLACE}swizzle_mode{_IN}b32 [$0], {_SWIZZLE_128}; "
        f"{_REPLACE}fill_mode{_IN}b32 [$0], 0; bar.warp.sync 0xffffffff; }}"
    )
    ir.asm(text, operands)


def publish(ir: PtxText, shared: Word, published: str) -> None:
    """One whole warp puts a map that it has built where the copy engine can read it.

    Only the workgroup itself uses it.
    """
    text = (
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.cta.sync.aligned "
        f"[$1], [$0], {BYTES};"
    )
    ir.asm(text, [(ir.word(shared), "i32"), (published, "i64")])


def acquire(ir: PtxText, maps: Sequence[str]) -> None:
    """Make maps that its workgroup has published visible to copies of the calling thread."""
    text = " ".join(
        f"fence.proxy.tensormap::generic.acquire.cta [${i}], {BYTES};" for i in range(len(maps))
    )
    ir.asm(text, [(m, "i64") for m in maps])


@dataclass(frozen=True, kw_only=True)
class Box:
    """One copy: to a workgroup address, from a map at coordinates, innermost first.

    ``cluster`` greater than 1 puts it at the same place of every workgroup of the cluster.
    """

    address: Word
    tensor: str
    coordinates: tuple[Word, ...]
    cluster: int = 1


def copy_in(ir: PtxText, boxes: Sequence[Box], barrier: Word, nbytes: int) -> None:
    """One thread has the engine fetch boxes; what lies outside the tensor is zero.

    The barrier completes once all ``nbytes`` have arrived, those that others of the cluster send
    among them.
    """
    text = "{ .reg .b16 all; "
    text += f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {nbytes};"
    operands = [(ir.word(barrier), "i32")]
    for box in boxes:
        first = len(operands)
        operands += [(ir.word(box.address), "i32"), (box.tensor, "i64")]
        operands += [(ir.word(c), "i32") for c in box.coordinates]
        where = ", ".join(f"${first + 2 + i}" for i in range(len(box.coordinates)))
        multicast = box.cluster > 1
        if multicast:
            text += f" mov.b16 all, {(1 << box.cluster) - 1};"
        text += (
            f" cp.async.bulk.tensor.{len(box.coordinates)}d.shared::cluster.global"
            f".mbarrier::complete_tx::bytes{'.multicast::cluster' if multicast else ''}"
            f" [${first}], [${first + 1}, {{{where}}}], [$0]{', all' if multicast else ''};"
        )
    ir.asm(f"{text} }}", operands)
