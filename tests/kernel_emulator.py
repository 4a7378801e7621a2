"""Executes a kernel's IR for every lane of every workgroup at once, on numpy.

Lanes run in lock step between barriers, so what lock step would hide is checked: memory that is not
written, addresses outside, misaligned accesses, races, barriers and matrix instructions that some
lanes do not meet. Which lane holds what of a matrix is the compiler's own answer
(:mod:`matrix_lanes`), not the emitter's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

from emulated_ir import Block, Program, Step, shaped
from emulated_memory import EmulatorError, Memory
from matrix_lanes import lanes_of

Values = dict[int, "np.ndarray | Memory | None"]
Watch = Callable[[Step, Values], None]

DTYPES: dict[str, np.dtype] = {
    "index": np.dtype(np.uint64),
    "i1": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "bf16": np.dtype(ml_dtypes.bfloat16),
}
_MATRIX_DTYPES = {"si8": np.dtype(np.int8), "ui8": np.dtype(np.uint8)}


def _unsigned(value: np.ndarray) -> np.ndarray:
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "i" else value


def _through_unsigned(
    op: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def applied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return op(_unsigned(a), _unsigned(b)).view(a.dtype)

    return applied


def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.any(b == 0):
        raise EmulatorError("divides by zero")
    return a // b


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.any(b == 0):
        raise EmulatorError("divides by zero")
    return a % b


def _shifted(
    op: Callable[[np.ndarray, np.ndarray], np.ndarray], a: np.ndarray, b: np.ndarray
) -> np.ndarray:
    if np.any((b < 0) | (b >= 8 * a.dtype.itemsize)):
        raise EmulatorError("shifts by as much as all bits of a value")
    return op(a, b)


_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.addf": np.add,
    "arith.mulf": np.multiply,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.shli": lambda a, b: _shifted(np.left_shift, a, b),
    "arith.shrsi": lambda a, b: _shifted(np.right_shift, a, b),
    "arith.shrui": lambda a, b: _shifted(_through_unsigned(np.right_shift), a, b),
    "arith.xori": np.bitwise_xor,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.divui": _through_unsigned(_divided),
    "arith.remui": _through_unsigned(_remainder),
    "arith.ceildivui": _through_unsigned(lambda a, b: _divided(a + (b - b.dtype.type(1)), b)),
    "arith.minui": _through_unsigned(np.minimum),
    "arith.maxui": _through_unsigned(np.maximum),
}
_COMPARE: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    0: np.equal,
    1: np.not_equal,
    6: lambda a, b: _unsigned(a) < _unsigned(b),
    7: lambda a, b: _unsigned(a) <= _unsigned(b),
    9: lambda a, b: _unsigned(a) >= _unsigned(b),
}
_CONVERT = {"index_cast", "extf", "truncf", "extsi", "trunci", "sitofp", "fptosi"}
_CONVERT_UNSIGNED = {"index_castui", "extui", "uitofp"}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What a kernel is launched with.

    ``buffers`` are bytes, one array a binding; ``spans`` is how many of them each operand takes.
    """

    grid: Sequence[int]
    threads: int
    wave: int
    constants: Sequence[int]
    buffers: Sequence[np.ndarray]
    spans: Sequence[int]


class Emulator:
    """One launch of one program."""

    def __init__(self, program: Program, launch: Launch, watch: Watch | None = None) -> None:
        """``watch`` is called after each step with all values so far."""
        self.launch, self.watch = launch, watch
        groups = prod(launch.grid)
        self.count = groups * launch.threads
        self.group = np.repeat(np.arange(groups), launch.threads)
        self.lane = np.tile(np.arange(launch.threads), groups)
        self.everyone = np.ones(self.count, bool)
        self.values: Values = {}
        self.buffers: list[Memory] = []
        self.shared: list[Memory] = []
        self.needed: set[int] = set()  # barriers before which workgroup memory was used, by id
        self.epoch = 0
        self.products = 0
        self._run(program.block, self.everyone)

    def _run(self, block: Block, mask: np.ndarray) -> None:
        for step in block.steps:
            handler = _HANDLERS.get(step.name)
            if handler is None:
                raise EmulatorError(f"no emulation of {step.name}")
            handler(self, step, mask)
            if self.watch:
                self.watch(step, self.values)

    def array(self, number: int) -> np.ndarray:
        """A value that is not memory."""
        value = self.values[number]
        assert isinstance(value, np.ndarray)
        return value

    def memory(self, number: int) -> Memory:
        """A value that is memory."""
        value = self.values[number]
        assert isinstance(value, Memory)
        return value

    def all_lanes(self, number: int) -> np.ndarray:
        """A value with a row for each lane."""
        value = self.array(number)
        return np.broadcast_to(value, (self.count, *value.shape[1:]))

    def uniform(self, number: int) -> int:
        """A scalar that all lanes agree on."""
        value = self.array(number)
        if np.any(value != value[0]):
            raise EmulatorError("lanes disagree on a size or a bound")
        return int(value[0])

    def met(self, step: Step, mask: np.ndarray) -> None:
        """Every lane takes part."""
        if not mask.all():
            raise EmulatorError(f"some lanes do not meet {step.name}")

    def index(self, step: Step, memory: int, indices: Sequence[int]) -> np.ndarray:
        """The linear cell of each lane: row-major over the static sizes of the memref."""
        sizes, _ = shaped(step.read_types[memory])
        place = np.zeros(1, np.uint64)
        for axis, number in enumerate(indices):
            value = self.array(number)
            if axis:
                place = place * np.uint64(sizes[axis])
            place = place + value
        return np.broadcast_to(place, (self.count,))

    def waves(self, value: np.ndarray) -> np.ndarray:
        """(waves, lanes of one, ...)."""
        return value.reshape(-1, self.launch.wave, *value.shape[1:])


def _dtype(text: str) -> tuple[tuple[int, ...], np.dtype]:
    sizes, element = shaped(text)
    return sizes, DTYPES[element]


def _cell(element: str) -> int:
    """Bytes of one element of a memref, which may be a vector."""
    sizes, inner = shaped(element)
    return prod(sizes) * DTYPES[inner].itemsize


def _constant(run: Emulator, step: Step, _: np.ndarray) -> None:
    sizes, dtype = _dtype(step.types[0])
    run.values[step.writes[0]] = np.full((1, *sizes), step.attributes["value"], dtype)


def _binary(run: Emulator, step: Step, _: np.ndarray) -> None:
    a, b = (run.array(r) for r in step.reads)
    with np.errstate(over="ignore", invalid="ignore"):
        run.values[step.writes[0]] = _BINARY[step.name](a, b).astype(a.dtype)


def _compare(run: Emulator, step: Step, _: np.ndarray) -> None:
    a, b = (run.array(r) for r in step.reads)
    run.values[step.writes[0]] = _COMPARE[step.attributes["predicate"]](a, b)


def _select(run: Emulator, step: Step, _: np.ndarray) -> None:
    condition, a, b = (run.array(r) for r in step.reads)
    condition = condition.reshape(-1, *[1] * (a.ndim - 1))
    run.values[step.writes[0]] = np.where(condition, a, b)


def _convert(run: Emulator, step: Step, _: np.ndarray) -> None:
    value = run.array(step.reads[0])
    if step.name.partition(".")[2] in _CONVERT_UNSIGNED:
        value = _unsigned(value)
    with np.errstate(over="ignore", invalid="ignore"):
        run.values[step.writes[0]] = value.astype(_dtype(step.types[0])[1])


def _fma(run: Emulator, step: Step, _: np.ndarray) -> None:
    a, b, c = (run.array(r).astype(np.float64) for r in step.reads)
    run.values[step.writes[0]] = (a * b + c).astype(_dtype(step.types[0])[1])


def _alloc(run: Emulator, step: Step, _: np.ndarray) -> None:
    sizes, element = shaped(step.types[0])
    cell = _cell(element)
    content = np.full((prod(run.launch.grid), prod(sizes) * cell), 0xFF, np.uint8)
    memory = Memory("workgroup memory", content, cell, shared=True)
    run.shared.append(memory)
    run.values[step.writes[0]] = memory


def _subspan(run: Emulator, step: Step, _: np.ndarray) -> None:
    binding = step.attributes["binding"]
    element = shaped(step.types[0])[1]
    offset, count = (run.uniform(r) for r in step.reads)
    if offset % step.attributes["alignment"]:
        raise EmulatorError(f"binding {binding} starts at byte {offset}")
    content = run.launch.buffers[binding][offset:].reshape(1, -1)
    read_only = step.attributes.get("descriptor_flags", 0) == 1
    cell = _cell(element)
    if step.attributes["alignment"] > cell:
        raise EmulatorError(f"binding {binding}: nobody promised more than {cell} B of alignment")
    if count != -(-run.launch.spans[binding] // cell):
        raise EmulatorError(f"binding {binding}: {count} cells of {cell} B are not what is bound")
    memory = Memory(f"binding {binding}", content, cell, shared=False, read_only=read_only)
    run.buffers.append(memory)
    run.values[step.writes[0]] = memory


def _load(run: Emulator, step: Step, mask: np.ndarray) -> None:
    memory = run.memory(step.reads[0])
    vector = step.name == "vector.load"
    sizes, dtype = _dtype(step.types[0])
    alignment = step.attributes.get("alignment") or memory.cell
    index = run.index(step, 0, step.reads[1:])
    raw = memory.load(
        run.group[mask],
        index[mask],
        run.lane[mask],
        run.epoch,
        count=sizes[0] if vector else 1,
        alignment=alignment,
    )
    result = np.zeros((run.count, *sizes), dtype)
    result[mask] = np.ascontiguousarray(raw).view(dtype).reshape(-1, *sizes)
    run.values[step.writes[0]] = result


def _store(run: Emulator, step: Step, mask: np.ndarray) -> None:
    memory = run.memory(step.reads[1])
    value = run.all_lanes(step.reads[0])[mask]
    raw = np.ascontiguousarray(value).reshape(len(value), -1).view(np.uint8)
    alignment = step.attributes.get("alignment") or memory.cell
    index = run.index(step, 1, step.reads[2:])
    where = (run.group[mask], index[mask])
    memory.store(*where, raw, run.lane[mask], run.epoch, alignment=alignment)


def _bitcast(run: Emulator, step: Step, _: np.ndarray) -> None:
    value = np.ascontiguousarray(run.array(step.reads[0]))
    run.values[step.writes[0]] = value.view(_dtype(step.types[0])[1])


def _broadcast(run: Emulator, step: Step, _: np.ndarray) -> None:
    sizes, dtype = _dtype(step.types[0])
    value = run.array(step.reads[0])
    shape = (len(value), *sizes)
    run.values[step.writes[0]] = np.broadcast_to(value[:, None], shape).astype(dtype)


def _extract(run: Emulator, step: Step, _: np.ndarray) -> None:
    (position,) = step.attributes["static_position"]
    run.values[step.writes[0]] = run.array(step.reads[0])[:, position]


def _from_elements(run: Emulator, step: Step, _: np.ndarray) -> None:
    run.values[step.writes[0]] = np.stack([run.all_lanes(r) for r in step.reads], axis=1)


def _for(run: Emulator, step: Step, mask: np.ndarray) -> None:
    begin, end, by = (run.uniform(r) for r in step.reads[:3])
    if by == 0:
        raise EmulatorError("a loop does not advance")
    (body,) = step.bodies
    carried = [run.values[r] for r in step.reads[3:]]
    for at in range(begin, end, by):
        run.values[body.arguments[0]] = np.full(1, at, np.uint64)
        run.values.update(zip(body.arguments[1:], carried, strict=True))
        run._run(body, mask)
        carried = [run.values[r] for r in body.steps[-1].reads]
    run.values.update(zip(step.writes, carried, strict=True))


def _if(run: Emulator, step: Step, mask: np.ndarray) -> None:
    condition = run.all_lanes(step.reads[0])
    for body, taken in zip(step.bodies, (mask & condition, mask & ~condition), strict=False):
        if taken.any():
            run._run(body, taken)


def _barrier(run: Emulator, step: Step, mask: np.ndarray) -> None:
    run.met(step, mask)
    if any(memory.used == run.epoch for memory in run.shared):
        run.needed.add(id(step))
    run.epoch += 1


def _thread(run: Emulator, step: Step, _: np.ndarray) -> None:
    run.values[step.writes[0]] = run.lane.astype(np.uint64)


def _workgroup(run: Emulator, step: Step, _: np.ndarray) -> None:
    x, y, _z = run.launch.grid
    axis = step.attributes["dimension"]
    place = (run.group % x, run.group // x % y, run.group // (x * y))[axis]
    run.values[step.writes[0]] = place.astype(np.uint64)


def _launch_constant(run: Emulator, step: Step, _: np.ndarray) -> None:
    ordinal = step.attributes["ordinal"]
    if ordinal >= len(run.launch.constants):
        raise EmulatorError(f"constant {ordinal} of {len(run.launch.constants)}")
    value = run.launch.constants[ordinal]
    run.values[step.writes[0]] = np.full(1, value, np.int32)


def _nothing(run: Emulator, step: Step, _: np.ndarray) -> None:
    pass


def _product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a @ b + c of stacks of matrices, in the type of c; sums in f32 or i32."""
    wide = np.dtype(np.int32) if c.dtype.kind == "i" else np.dtype(np.float32)
    with np.errstate(invalid="ignore"):
        return (a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(c.dtype)


def _amd_product(run: Emulator, step: Step, mask: np.ndarray) -> None:
    run.met(step, mask)
    run.products += 1
    shape = tuple(step.attributes[axis] for axis in "mnk")
    lanes = lanes_of(step.name, shape, step.types[0], step.read_types[0], run.launch.wave)
    a, b, c = (run.waves(run.all_lanes(r).reshape(run.count, -1)) for r in step.reads)
    if "unsignedA" in step.attributes:
        a, b = _unsigned(a), _unsigned(b)
    product = _product(lanes.a.gather(a), lanes.b.gather(b), lanes.c.gather(c))
    run.values[step.writes[0]] = lanes.c.scatter(product, c).reshape(run.count, -1)


def _mma_type(text: str) -> tuple[int, int, np.dtype]:
    rows, columns, element = text.partition("<")[2].partition(",")[0].split("x")
    return int(rows), int(columns), _MATRIX_DTYPES.get(element) or DTYPES[element]


def _mma_constant(run: Emulator, step: Step, mask: np.ndarray) -> None:
    run.met(step, mask)
    rows, columns, dtype = _mma_type(step.types[0])
    value = run.array(step.reads[0])[0]
    waves = run.count // run.launch.wave
    run.values[step.writes[0]] = np.full((waves, rows, columns), value, dtype)


def _mma_places(
    run: Emulator, step: Step, memory: Memory, at: int, rows: int, columns: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(group, cell, element in it) of each element of a wave's matrix in memory."""
    first = run.waves(run.index(step, at, step.reads[at + 1 :]))
    if np.any(first != first[:, :1]):
        raise EmulatorError(f"lanes of a wave disagree on the place of {step.name}")
    per = memory.cell // dtype.itemsize
    r, c = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
    if "transpose" in step.attributes:
        r, c = c, r
    element = first[:, :1, None].astype(np.int64) * per + r * step.attributes["leadDimension"] * per
    element = element + c
    return (
        np.broadcast_to(run.waves(run.group)[:, :1, None], element.shape),
        element // per,
        (element % per),
    )


def _wave_owner(run: Emulator, group: np.ndarray) -> np.ndarray:
    """A matrix access is one of its whole wave: the owner is the wave's first lane."""
    return np.broadcast_to(run.waves(run.lane)[:, :1, None], group.shape)


def _mma_load(run: Emulator, step: Step, mask: np.ndarray) -> None:
    run.met(step, mask)
    memory = run.memory(step.reads[0])
    rows, columns, dtype = _mma_type(step.types[0])
    group, cell, inner = _mma_places(run, step, memory, 0, rows, columns, dtype)
    raw = memory.load(
        group.reshape(-1),
        cell.reshape(-1).astype(np.uint64),
        _wave_owner(run, group).reshape(-1),
        run.epoch,
    )
    elements = np.ascontiguousarray(raw).view(dtype)
    picked = np.take_along_axis(elements, inner.reshape(-1, 1), axis=1)
    run.values[step.writes[0]] = picked.reshape(-1, rows, columns)


def _mma_store(run: Emulator, step: Step, mask: np.ndarray) -> None:
    run.met(step, mask)
    memory = run.memory(step.reads[1])
    rows, columns, dtype = _mma_type(step.read_types[0])
    group, cell, _ = _mma_places(run, step, memory, 1, rows, columns, dtype)
    value = np.ascontiguousarray(run.array(step.reads[0]))
    memory.store(
        group.reshape(-1),
        cell.reshape(-1).astype(np.uint64),
        value.reshape(-1, 1).view(np.uint8),
        _wave_owner(run, group).reshape(-1),
        run.epoch,
    )


def _mma_compute(run: Emulator, step: Step, mask: np.ndarray) -> None:
    run.met(step, mask)
    run.products += 1
    run.values[step.writes[0]] = _product(*(run.array(r) for r in step.reads))


_HANDLERS: dict[str, Callable[[Emulator, Step, np.ndarray], None]] = {
    **dict.fromkeys(_BINARY, _binary),
    **{f"arith.{name}": _convert for name in (*_CONVERT, *_CONVERT_UNSIGNED)},
    "arith.constant": _constant,
    "arith.cmpi": _compare,
    "arith.select": _select,
    "math.fma": _fma,
    "memref.alloc": _alloc,
    "memref.load": _load,
    "memref.store": _store,
    "vector.load": _load,
    "vector.store": _store,
    "vector.bitcast": _bitcast,
    "vector.broadcast": _broadcast,
    "vector.extract": _extract,
    "vector.from_elements": _from_elements,
    "scf.for": _for,
    "scf.if": _if,
    "scf.yield": _nothing,
    "func.return": _nothing,
    "gpu.barrier": _barrier,
    "gpu.thread_id": _thread,
    "gpu.subgroup_mma_constant_matrix": _mma_constant,
    "gpu.subgroup_mma_load_matrix": _mma_load,
    "gpu.subgroup_mma_store_matrix": _mma_store,
    "gpu.subgroup_mma_compute": _mma_compute,
    "amdgpu.wmma": _amd_product,
    "amdgpu.mfma": _amd_product,
    "hal.interface.workgroup.id": _workgroup,
    "hal.interface.constant.load": _launch_constant,
    "hal.interface.binding.subspan": _subspan,
}
