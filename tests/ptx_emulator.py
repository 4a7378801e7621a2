"""Runs an emitted CUDA kernel's text wave by wave on the host: IR, inline PTX, workgroup memory.

Lanes of a wave are one array, so a branch on a lane's own value cannot be said at all. Copies land
when they are issued or only when they are waited for, waves go in either order between barriers.
Workgroup memory remembers who wrote and read it since when: a race, a copy that is not waited for
and bytes that nobody wrote are refused. Global memory is checked for bounds and alignment, stores
are counted, matrix loads must meet no bank twice. Fragments follow the PTX ISA, section 9.7.14.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from emulated_ptx import statement
from emulated_wave import (
    LANES,
    SHARED_BASE,
    SPACING,
    WAVE,
    Array,
    Env,
    Wave,
    Workgroup,
    require,
    wrapped,
)

Step = Callable[[Wave], None]
Ops = list["Step | Loop | str"]

_FLOATS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_BARRIERS = _GROUP, _CLUSTER = "gpu.barrier", "barrier.cluster.wait"
_NOTHING = re.compile(r"[\s{}]*(\w+:)?[\s{}]*")  # a brace, a label
_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "index": 64}


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
        elif "barrier.cluster.wait" in line:
            if "barrier.cluster.arrive.release" in line:
                ops.append(Wave.arrive)
            ops.append(_CLUSTER)
        else:
            ops.append(_step(line))
    return ops, []


def _names(text: str) -> list[str]:
    return re.findall(r"%[\w#]+", text)


def run(wave: Wave, ops: Ops) -> Generator[str, None, None]:
    """Execute; yields every barrier."""
    for op in ops:
        if isinstance(op, Loop):
            count = wave.env[op.count]
            require((count == count[0]).all(), "a loop's count differs between lanes")
            values = [wave.env[n] for n in op.initial]
            for iteration in range(int(count[0])):
                wave.env[op.variable] = np.full(WAVE, iteration)
                wave.env.update(zip(op.carried, values, strict=True))
                yield from run(wave, op.body)
                values = [wave.env[n] for n in op.yielded]
            wave.env.update({f"{op.result}#{i}": v for i, v in enumerate(values)})
        elif op in _BARRIERS:
            require(op == _GROUP or wave.arrived, "waits at a barrier where it has not arrived")
            yield str(op)
            wave.arrived = wave.arrived and op == _GROUP
        elif callable(op):
            op(wave)


def execute(groups: Sequence[Workgroup], ops: Ops, threads: int, *, reverse: bool) -> None:
    """Run the workgroups of a cluster; between barriers one wave after the other."""
    for group in groups:
        group.cluster = groups
    waves = [Wave(group, i) for group in groups for i in range(threads // WAVE)]
    threads_left = [run(w, ops) for w in waves]
    order = list(reversed(threads_left)) if reverse else threads_left
    while order:
        at = {next(thread, "end") for thread in order}
        require(len(at) == 1, "waves do not meet the same barriers")
        if at == {"end"}:
            for group in groups:
                require(not group.coming.any(), "ends with copies on their way")
                require(not group.afar.any(), "ends while another workgroup reads its memory")
            return
        for group in groups:
            group.meet(cluster=at == {_CLUSTER})


def _wrap(value: Array, type_: str) -> Array:
    return wrapped(value, _BITS[type_])


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
    "ceildivui": lambda a, b: -(-a // b),
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
    "sgt": np.greater,
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
        return let(lambda w: w.index * WAVE + LANES)
    if op == "hal.interface.binding.subspan":
        binding = int(re.findall(r"binding\((\d+)\)", what)[-1])
        return let(lambda _: np.full(WAVE, (binding + 1) * SPACING))
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
            wave.group.allocate(count)
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
    statements = [statement(s) for s in text.split(";") if not _NOTHING.fullmatch(s)]
    struct = result.startswith("!llvm.struct")

    def step(wave: Wave) -> None:
        registers: Env = {}
        for position, (constraint, operand) in enumerate(zip(inputs, names, strict=True)):
            register = int(constraint) if constraint.isdigit() else len(outputs) + position
            registers[f"${register}"] = wave.env[operand]
        for execute_one in statements:
            execute_one(wave, registers)
        if name is not None:
            values = [registers[f"${i}"] for i in range(len(outputs))]
            wave.env[name] = values if struct else values[0]

    return step
