"""Runs an emitted CUDA kernel's text wave by wave on the host: IR, inline PTX, workgroup memory.

Lanes of a wave are one array, so a branch on a lane's own value cannot be said at all. Copies land
when they are issued or only when they are waited for, waves go in either order between barriers: a
race shows as another result. Global memory is checked for bounds and alignment, stores are counted,
matrix loads must meet no bank twice. Fragments follow the PTX ISA, section 9.7.14.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]
Env = dict[str, Any]
Step = Callable[["Wave"], None]
Ops = list["Step | Loop | str"]

WAVE = 32
SHARED_BASE = 1024
_SPACING = 1 << 40  # between the buffers' addresses
_LANES = np.arange(WAVE)
_FLOATS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}
_OPERANDS: dict[str, tuple[Any, Any]] = {
    "f16": (np.float16, np.float32),
    "bf16": (ml_dtypes.bfloat16, np.float32),
    "s8": (np.int8, np.int64),
    "u8": (np.uint8, np.int64),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.float32),
    "e5m2": (ml_dtypes.float8_e5m2, np.float32),
}


class Fault(AssertionError):
    """What a device would trap on, or silently get wrong."""


def _require(condition: bool | np.bool_, what: str) -> None:
    if not condition:
        raise Fault(what)


@dataclass
class Workgroup:
    """What the waves of a workgroup share."""

    constants: Sequence[int]
    buffers: Sequence[Array]  # bytes, each with its own alignment from 16 up
    number: tuple[int, int, int]
    eager: bool
    shared: Array = field(default_factory=lambda: np.zeros(0, np.uint8))
    stores: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    conflicts: int = 0

    def locate(self, address: Array, width: int) -> tuple[int, Array]:
        """(buffer, offsets) of global addresses, all within one buffer."""
        which = address // _SPACING - 1
        _require((which == which[0]).all(), "lanes read different buffers")
        offset = address % _SPACING
        _require((offset % width == 0).all(), f"a global address is no multiple of {width}")
        size = len(self.buffers[int(which[0])])
        _require((offset + width <= size).all(), "a global address is out of bounds")
        return int(which[0]), offset

    def read(self, address: Array, width: int) -> Array:
        """``width`` bytes at each address."""
        which, offset = self.locate(address, width)
        return self.buffers[which][offset[:, None] + np.arange(width)]

    def write(self, address: Array, data: Array) -> None:
        """Bytes to the last buffer, counted."""
        which, offset = self.locate(address, data.shape[1])
        _require(which == len(self.buffers) - 1, "a store to an operand")
        place = offset[:, None] + np.arange(data.shape[1])
        self.buffers[which][place] = data
        np.add.at(self.stores, place, 1)

    def shared_place(self, address: Array, width: int) -> Array:
        """Indices into workgroup memory of ``width`` bytes at each address."""
        _require((address % width == 0).all(), f"a shared address is no multiple of {width}")
        start = address - SHARED_BASE
        inside = (start >= 0) & (start + width <= len(self.shared))
        _require(inside.all(), "a shared address is out of bounds")
        return start[:, None] + np.arange(width)


class Wave:
    """One wave's registers and its copies on their way."""

    def __init__(self, group: Workgroup, index: int) -> None:
        self.group, self.index = group, index
        self.env: Env = {}
        self.open: list[tuple[Array, Array]] = []
        self.groups: list[list[tuple[Array, Array]]] = []

    def copy(self, place: Array, data: Array) -> None:
        """One asynchronous copy."""
        if self.group.eager:
            self.group.shared[place] = data
        self.open.append((place, data))

    def commit(self) -> None:
        """Close a group of copies."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int) -> None:
        """All groups but the last ``pending`` have landed."""
        while len(self.groups) > pending:
            for place, data in self.groups.pop(0):
                self.group.shared[place] = data


@dataclass
class Loop:
    """``scf.for``: bounds, carried names, body, and what it yields."""

    variable: str
    count: str
    initial: list[str]
    carried: list[str]
    result: str
    body: Ops
    yielded: list[str]


def parse(text: str) -> Ops:
    """The ops of an emitted function body."""
    lines = [line.strip() for line in text.splitlines()]
    ops, rest = _block(lines)
    assert not rest
    return ops


def _block(lines: list[str]) -> tuple[Ops, list[str]]:
    ops: Ops = []
    while lines:
        line, lines = lines[0], lines[1:]
        if line == "}":
            return ops, lines
        if " = scf.for " in line:
            inner, lines = _block(lines)
            assert isinstance(inner[-1], str)
            yielded = _names(inner.pop())  # type: ignore[arg-type]
            head = re.match(
                r"(%\w+):\d+ = scf\.for (%\w+) = %\w+ to (%\w+) step %\w+ iter_args\((.*)\) -> ",
                line,
            )
            assert head is not None, line
            pairs = [p.split(" = ") for p in head[4].split(", ")]
            carried, initial = [p[0] for p in pairs], [p[1] for p in pairs]
            ops.append(Loop(head[2], head[3], initial, carried, head[1], inner, yielded))
        elif line.startswith("scf.yield"):
            ops.append(line.partition(" : ")[0])
        elif line in ("gpu.barrier", "return"):
            ops.append(line)
        else:
            ops.append(_step(line))
    return ops, []


def _names(text: str) -> list[str]:
    return re.findall(r"%[\w#]+", text)


def run(wave: Wave, ops: Ops) -> Generator[None, None, None]:
    """Execute; yields at every barrier."""
    for op in ops:
        if isinstance(op, Loop):
            count = wave.env[op.count]
            _require((count == count[0]).all(), "a loop's count differs between lanes")
            values = [wave.env[n] for n in op.initial]
            for iteration in range(int(count[0])):
                wave.env[op.variable] = np.full(WAVE, iteration)
                wave.env.update(zip(op.carried, values, strict=True))
                yield from run(wave, op.body)
                values = [wave.env[n] for n in op.yielded]
            wave.env.update({f"{op.result}#{i}": v for i, v in enumerate(values)})
        elif op == "gpu.barrier":
            yield
        elif callable(op):
            op(wave)


def execute(group: Workgroup, ops: Ops, threads: int, *, reverse: bool) -> None:
    """Run a workgroup; between barriers one wave after the other."""
    waves = [Wave(group, i) for i in range(threads // WAVE)]
    threads_left = [run(w, ops) for w in waves]
    order = list(reversed(threads_left)) if reverse else threads_left
    while order:
        ended = [next(thread, "end") == "end" for thread in order]
        _require(all(ended) or not any(ended), "waves do not meet the same barriers")
        if all(ended):
            return


# --- one op of the IR ------------------------------------------------------------------------


def _wrap(value: Array, type_: str) -> Array:
    bits = _BITS[type_]
    if bits == 64:
        return value
    value = np.asarray(value, np.int64) & ((1 << bits) - 1)
    return np.where(value >> (bits - 1), value - (1 << bits), value) if bits > 1 else value


def _unsigned(value: Array, type_: str) -> Array:
    bits = _BITS[type_]
    return value if bits == 64 else value & ((1 << bits) - 1)


_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "addi": np.add,
    "subi": np.subtract,
    "muli": np.multiply,
    "andi": np.bitwise_and,
    "ori": np.bitwise_or,
    "xori": np.bitwise_xor,
    "divui": np.floor_divide,
    "remui": np.remainder,
    "shrui": np.right_shift,
    "shli": np.left_shift,
    "minui": np.minimum,
    "maxui": np.maximum,
    "maxsi": np.maximum,
}
_FLOATING: dict[str, Callable[[Array, Array], Array]] = {
    "addf": np.add,
    "mulf": np.multiply,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "ult": np.less,
    "slt": np.less,
}


def _step(line: str) -> Step:
    """The op of one line."""
    if "llvm.inline_asm" in line:
        return _asm(line)
    name, _, what = line.partition(" = ")
    op, type_ = what.split(" ", 1)[0], what.rpartition(" : ")[2]
    names = _names(what)

    def let(make: Callable[[Wave], Any]) -> Step:
        def step(wave: Wave) -> None:
            wave.env[name] = make(wave)

        return step

    if op == "arith.constant":
        literal = what.split()[1]
        if type_ in _FLOATS:
            return let(lambda _: np.full(WAVE, float(literal), _FLOATS[type_]))
        return let(lambda _: np.full(WAVE, int(literal), np.int64))
    if op == "hal.interface.constant.load":
        ordinal = int(re.findall(r"ordinal\((\d+)\)", what)[-1])
        return let(lambda w: np.full(WAVE, w.group.constants[ordinal]))
    if op.startswith("hal.interface.workgroup.id"):
        axis = int(op[-2])
        return let(lambda w: np.full(WAVE, w.group.number[axis]))
    if op == "gpu.thread_id":
        return let(lambda w: w.index * WAVE + _LANES)
    if op == "hal.interface.binding.subspan":
        binding = int(re.findall(r"binding\((\d+)\)", what)[-1])
        return let(lambda _: np.full(WAVE, (binding + 1) * _SPACING))
    if op == '"memref.alloc"()':
        count = int(re.findall(r"memref<(\d+)xi8", what)[0])
        return _allocate(name, count)
    if op == "memref.extract_aligned_pointer_as_index":
        return let(lambda w: w.env[names[0]])
    if op == "memref.load":
        return let(_memref_load(what, names))
    if op == "llvm.extractvalue":
        index = int(re.findall(r"\[(\d+)\]", what)[0])
        return let(lambda w: w.env[names[0]][index])
    assert op.startswith("arith."), line
    return let(_arith(op[6:], what, names, type_))


def _allocate(name: str, count: int) -> Step:
    def step(wave: Wave) -> None:
        if not len(wave.group.shared):
            wave.group.shared = np.full(count, 0xFF, np.uint8)  # not a number, in every type
        wave.env[name] = np.full(WAVE, SHARED_BASE)

    return step


def _memref_load(what: str, names: list[str]) -> Callable[[Wave], Array]:
    element = re.findall(r"memref<\?x(\w+),", what)[0]
    dtype = _FLOATS.get(element) or np.dtype(f"int{_BITS[element]}")
    width = np.dtype(dtype).itemsize

    def load(wave: Wave) -> Array:
        address = wave.env[names[0]] + wave.env[names[1]] * width
        return wave.group.read(address, width).copy().view(dtype)[:, 0]

    return load


def _arith(op: str, what: str, names: list[str], type_: str) -> Callable[[Wave], Array]:
    if op in _INTEGER:
        signed = op in ("maxsi",)
        view = (lambda v, _: v) if signed else _unsigned

        def compute(w: Wave) -> Array:
            a, b = (view(w.env[n], type_) for n in names)
            return _wrap(_INTEGER[op](a, b), type_)

        return compute
    if op in _FLOATING:
        return lambda w: _FLOATING[op](w.env[names[0]], w.env[names[1]])
    if op == "cmpi":
        predicate = what.split()[1].rstrip(",")
        signed = predicate[0] == "s"
        view = (lambda v, _: v) if signed else _unsigned
        return lambda w: _COMPARE[predicate](*(view(w.env[n], type_) for n in names))
    if op == "select":
        return lambda w: np.where(w.env[names[0]], w.env[names[1]], w.env[names[2]])
    source, _, result = type_.partition(" to ")
    if op in ("extui", "index_castui"):
        return lambda w: _unsigned(w.env[names[0]], source)
    if op in ("trunci", "index_cast", "extsi"):
        return lambda w: _wrap(w.env[names[0]], result)
    if op in ("truncf", "extf", "sitofp"):
        return lambda w: w.env[names[0]].astype(_FLOATS[result])
    assert op == "bitcast", what
    integer = np.dtype(f"int{_BITS[result]}")
    return lambda w: w.env[names[0]].view(integer).astype(np.int64)


# --- inline PTX ------------------------------------------------------------------------------


def _asm(line: str) -> Step:
    found = re.match(
        r'(?:(%\w+) = )?llvm\.inline_asm (?:has_side_effects )?"([^"]*)", "([^"]*)" ?(.*) '
        r": \((.*)\) -> (.*)",
        line,
    )
    assert found is not None, line
    name, text, constraints, operands, _, result = found.groups()
    outputs = [c for c in constraints.split(",") if c.startswith("=")]
    inputs = [c for c in constraints.split(",") if not c.startswith(("=", "~")) and c]
    names = _names(operands)
    assert len(names) == len(inputs), line
    statements = [_statement(s) for s in text.strip(" {}").split(";") if s.strip()]
    struct = result.startswith("!llvm.struct")

    def step(wave: Wave) -> None:
        registers: Env = {}
        for position, (constraint, operand) in enumerate(zip(inputs, names, strict=True)):
            register = int(constraint) if constraint.isdigit() else len(outputs) + position
            registers[f"${register}"] = wave.env[operand]
        for statement in statements:
            statement(wave, registers)
        if name is not None:
            values = [registers[f"${i}"] for i in range(len(outputs))]
            wave.env[name] = values if struct else values[0]

    return step


Statement = Callable[[Wave, Env], None]


def _statement(text: str) -> Statement:
    text = text.strip().lstrip("{ ")
    guard = None
    if text.startswith("@"):
        guard, text = text[1:].split(" ", 1)
    opcode, _, rest = text.partition(" ")
    words = re.findall(r"[$\w]+", rest)
    make = next((m for prefix, m in _PTX if opcode.startswith(prefix)), None)
    assert make is not None, text
    return make(opcode, rest, words, guard)


def _value(registers: Env, word: str) -> Array:
    if word[0] in "0123456789-":
        return np.full(WAVE, int(word, 0), np.int64)
    return registers[word]


def _ignore(*_: Any) -> Statement:
    return lambda wave, registers: None


def _setp(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    parts = opcode.split(".")
    compare = {"gt": np.greater, "eq": np.equal}[parts[1]]

    def do(_: Wave, r: Env) -> None:
        result = compare(_value(r, words[1]), _value(r, words[2]))
        r[words[0]] = result & r[words[3]] if "and" in parts else result

    return do


def _selp(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    def do(_: Wave, r: Env) -> None:
        r[words[0]] = np.where(r[words[3]], _value(r, words[1]), _value(r, words[2]))

    return do


def _logic(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    op = opcode.split(".")[0]

    def do(_: Wave, r: Env) -> None:
        a = _value(r, words[1])
        if op == "not":
            r[words[0]] = ~a
            return
        b = _value(r, words[2])
        made = a & b if op == "and" else a | b if op == "or" else a << b
        r[words[0]] = made if made.dtype == bool else made & 0xFFFFFFFF

    return do


def _mov(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    def do(_: Wave, r: Env) -> None:
        if len(words) == 3:  # two halves
            r[words[0]] = (r[words[1]] & 0xFFFF) | (r[words[2]] & 0xFFFF) << 16
        else:
            r[words[0]] = _value(r, words[1])

    return do


def _place(rest: str) -> list[tuple[str, int]]:
    return [(a, int(b or 0)) for a, b in re.findall(r"\[(\$\d+)(?:\+(\d+))?\]", rest)]


def _mask(registers: Env, guard: str | None) -> Array:
    return registers[guard] if guard else np.ones(WAVE, bool)


def _cp_async(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    if opcode.startswith("cp.async.commit"):
        return lambda wave, _: wave.commit()
    if opcode.startswith("cp.async.wait_group"):
        return lambda wave, _: wave.wait(int(words[0]))
    (to, to_add), (source, source_add) = _place(rest)
    width, size = int(words[-2]), words[-1]
    assert (width == 16) == (".cg." in opcode)

    def do(wave: Wave, r: Env) -> None:
        on = _mask(r, guard)
        inside = (r[size] > 0) & on
        _require(set(np.unique(r[size])) <= {0, width}, "a copy of part of its bytes")
        data = np.zeros((WAVE, width), np.uint8)
        if inside.any():
            data[inside] = wave.group.read(r[source][inside] + source_add, width)
        if on.any():
            wave.copy(wave.group.shared_place(r[to][on] + to_add, width), data[on])

    return do


def _ld_global(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    ((source, add),) = _place(rest)
    width = {"u8": 1, "u16": 2}[opcode.split(".")[-1]]

    def do(wave: Wave, r: Env) -> None:
        on, value = _mask(r, guard), r[words[0]].copy()
        if on.any():
            raw = wave.group.read(r[source][on] + add, width).copy()
            value[on] = raw.view(f"<u{width}")[:, 0]
        r[words[0]] = value

    return do


def _st(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    ((to, add),) = _place(rest)
    values = [w for w in re.findall(r"[$\w]+", rest.partition("]")[2])]
    each = int(opcode.rpartition(".b")[2]) // 8
    shared = opcode.startswith("st.shared")

    def do(wave: Wave, r: Env) -> None:
        on = _mask(r, guard)
        if not on.any():
            return
        parts = []
        for v in values:
            raw = r[v][on]
            integer = raw.view(np.int32) if raw.dtype == np.float32 else raw
            parts.append(integer.astype(np.int64)[:, None].view(np.uint8)[:, :each])
        data, address = np.concatenate(parts, 1), r[to][on] + add
        if shared:
            wave.group.shared[wave.group.shared_place(address, data.shape[1])] = data
        else:
            wave.group.write(address, data)

    return do


def _ldmatrix(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    ((source, add),) = _place(rest)
    flipped = ".trans" in opcode

    def do(wave: Wave, r: Env) -> None:
        group = wave.group
        rows = group.shared[group.shared_place(r[source] + add, 16)].reshape(4, 8, 16)
        for eight in ((r[source] + add) // 16 % 8).reshape(4, 8):
            group.conflicts += len(set(eight)) != 8
        for matrix in range(4):
            halves = np.ascontiguousarray(rows[matrix]).view("<u2")
            halves = halves.T if flipped else halves
            pairs = halves[_LANES // 4, 2 * (_LANES % 4)].astype(np.int64)
            r[words[matrix]] = (
                pairs | halves[_LANES // 4, 2 * (_LANES % 4) + 1].astype(np.int64) << 16
            )

    return do


def _prmt(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    select = int(words[3], 16)

    def do(_: Wave, r: Env) -> None:
        both = (r[words[1]] & 0xFFFFFFFF) | (r[words[2]] & 0xFFFFFFFF) << 32
        made = np.zeros(WAVE, np.int64)
        for byte in range(4):
            made |= (both >> (8 * (select >> (4 * byte) & 7)) & 0xFF) << (8 * byte)
        r[words[0]] = made

    return do


def _bytes_of(words: list[Array]) -> Array:
    """[lane][register][byte]."""
    stacked = np.stack([w & 0xFFFFFFFF for w in words], 1).astype("<u4")
    return np.ascontiguousarray(stacked)[..., None].view(np.uint8)


def _mma(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    operand, _ = opcode.split(".")[-2], assert_same(opcode)
    dtype, wide = _OPERANDS[operand]
    p, q = _LANES // 4, _LANES % 4

    def matrix(registers: list[Array], rows: int, places: list[tuple[int, int]]) -> Array:
        raw, made = _bytes_of(registers), np.zeros((rows, 32), np.uint8)
        for register, (down, across) in enumerate(places):
            made[(p + down)[:, None], (4 * q + across)[:, None] + np.arange(4)] = raw[:, register]
        values = made.view(dtype).astype(wide)
        _require(not np.isnan(values.astype(np.float64)).any(), "an operand was never written")
        return values

    def do(_: Wave, r: Env) -> None:
        a = matrix([r[w] for w in words[4:8]], 16, [(0, 0), (8, 0), (0, 16), (8, 16)])
        b = matrix([r[w] for w in words[8:10]], 8, [(0, 0), (0, 16)])
        product = a @ b.T
        for i in range(4):
            add = product[p + 8 * (i // 2), 2 * q + i % 2]
            total = r[words[10 + i]] + add
            r[words[i]] = _wrap(total, "i32") if wide is np.int64 else total.astype(np.float32)

    return do


def assert_same(opcode: str) -> None:
    """A and B have one type, the sums another."""
    total, a, b, old = opcode.split(".")[-4:]
    assert (a, total) == (b, old)


_PTX: tuple[tuple[str, Callable[..., Statement]], ...] = (
    (".reg", _ignore),
    ("setp.", _setp),
    ("selp.", _selp),
    ("not.", _logic),
    ("and.", _logic),
    ("or.", _logic),
    ("shl.", _logic),
    ("mov.", _mov),
    ("cp.async.", _cp_async),
    ("ld.global.", _ld_global),
    ("st.", _st),
    ("ldmatrix.", _ldmatrix),
    ("prmt.", _prmt),
    ("mma.sync.", _mma),
)
