"""Statements of inline PTX on the registers of a wave (PTX ISA; fragments: section 9.7.14)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from emulated_wave import LANES, RANK_SHIFT, WAVE, Array, Env, Wave, require, wrapped

_OPERANDS: dict[str, tuple[Any, Any]] = {
    "f16": (np.float16, np.float32),
    "bf16": (ml_dtypes.bfloat16, np.float32),
    "s8": (np.int8, np.int64),
    "u8": (np.uint8, np.int64),
    "e4m3": (ml_dtypes.float8_e4m3fn, np.float32),
    "e5m2": (ml_dtypes.float8_e5m2, np.float32),
}
Statement = Callable[[Wave, Env], None]


def statement(text: str) -> Statement:
    """One statement. Branches only skip what does nothing to the lanes that take them."""
    text = re.sub(r"^[\s{]*(\w+:)?[\s}]*", "", text)
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


_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def _integer(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    op = _INTEGER[opcode.split(".")[0]]
    bits = int(opcode[-2:])

    def do(_: Wave, r: Env) -> None:
        r[words[0]] = wrapped(op(_value(r, words[1]), _value(r, words[2])), bits)

    return do


def _widened(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    """Between unsigned words and 64-bit ones."""

    def do(_: Wave, r: Env) -> None:
        r[words[0]] = _value(r, words[1]) & 0xFFFFFFFF

    return do


def _ignore(*_: Any) -> Statement:
    return lambda wave, registers: None


def _sync(*_: Any) -> Statement:
    return lambda wave, registers: wave.sync()


def _arrive(*_: Any) -> Statement:
    return lambda wave, registers: wave.arrive()


def _setp(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    parts = opcode.split(".")
    compare = {
        "gt": np.greater,
        "ge": np.greater_equal,
        "le": np.less_equal,
        "eq": np.equal,
        "ne": np.not_equal,
    }[parts[1]]

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
        if op == "shl":
            made = np.where(b > 31, 0, a << np.minimum(b, 31))
        else:
            made = a & b if op == "and" else a | b
        r[words[0]] = made if made.dtype == bool else made & 0xFFFFFFFF

    return do


def _mov(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    def do(_: Wave, r: Env) -> None:
        if rest.startswith("{"):  # into two halves
            whole = _value(r, words[2])
            r[words[0]], r[words[1]] = whole & 0xFFFF, whole >> 16 & 0xFFFF
        elif len(words) == 3:  # of two halves
            r[words[0]] = (r[words[1]] & 0xFFFF) | (r[words[2]] & 0xFFFF) << 16
        else:
            old = r.get(words[0], np.zeros(WAVE, np.int64))
            r[words[0]] = np.where(_mask(r, guard), _value(r, words[1]), old)

    return do


def _place(rest: str) -> list[tuple[str, int]]:
    return [(a, int(b or 0)) for a, b in re.findall(r"\[([$\w]+)(?:\+(\d+))?\]", rest)]


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
        require(set(np.unique(r[size])) <= {0, width}, "a copy of part of its bytes")
        data = np.zeros((WAVE, width), np.uint8)
        if inside.any():
            data[inside] = wave.group.read(r[source][inside] + source_add, width)
        if on.any():
            place = wave.group.shared_place(r[to][on] + to_add, width)
            wave.copy(place, data[on], LANES[on])

    return do


def _vector(opcode: str) -> int:
    return int(next((p[1:] for p in opcode.split(".") if p in ("v2", "v4")), 1))


def _ld_global(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    ((source, add),) = _place(rest)
    each = {"u8": 1, "u16": 2, "u32": 4, "b32": 4}[opcode.split(".")[-1]]
    names = words[: _vector(opcode)]

    def do(wave: Wave, r: Env) -> None:
        on = _mask(r, guard)
        if not on.any():
            return
        raw = wave.group.read(r[source][on] + add, each * len(names)).copy()
        for i, name in enumerate(names):
            value = r[name].copy()
            value[on] = raw.view(f"<u{each}")[:, i]
            r[name] = value

    return do


def _ld_shared(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    ((source, add),) = _place(rest)
    dtype = np.float32 if opcode.endswith(".f32") else np.int32
    wide = np.float32 if opcode.endswith(".f32") else np.int64
    names = words[: _vector(opcode)]

    def do(wave: Wave, r: Env) -> None:
        raw = wave.group.read_shared(wave, r[source] + add, 4 * len(names)).copy()
        for i, name in enumerate(names):
            r[name] = raw.view(dtype)[:, i].astype(wide)

    return do


def _mapa(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    def do(_: Wave, r: Env) -> None:
        r[words[0]] = r[words[1]] + ((int(words[2]) + 1) << RANK_SHIFT)

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
            place = wave.group.shared_place(address, data.shape[1])
            wave.group.store_shared(wave, place, LANES[on])
            wave.group.shared[place] = data
        else:
            wave.group.write(address, data)

    return do


def _ldmatrix(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    ((source, add),) = _place(rest)
    flipped = ".trans" in opcode

    def do(wave: Wave, r: Env) -> None:
        group = wave.group
        place = group.shared_place(r[source] + add, 16)
        rows = group.load_shared(wave, place, LANES).reshape(4, 8, 16)
        for eight in ((r[source] + add) // 16 % 8).reshape(4, 8):
            group.conflicts += len(set(eight)) != 8
        for matrix in range(4):
            halves = np.ascontiguousarray(rows[matrix]).view("<u2")
            halves = halves.T if flipped else halves
            pairs = halves[LANES // 4, 2 * (LANES % 4)].astype(np.int64)
            r[words[matrix]] = (
                pairs | halves[LANES // 4, 2 * (LANES % 4) + 1].astype(np.int64) << 16
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


def _shf(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    assert opcode == "shf.r.wrap.b32"

    def do(_: Wave, r: Env) -> None:
        low, high, bits = (_value(r, w) for w in words[1:])
        both = (low & 0xFFFFFFFF) | (high & 0xFFFFFFFF) << 32
        # of 64 bits, none of which a shift to the right by less than 32 fills from above
        r[words[0]] = both >> (bits & 31) & 0xFFFFFFFF

    return do


def _halves(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    """Packed f16: exact in f32, rounded once."""
    op, *how = opcode.split(".")
    assert how == ["rn", "f16x2"]
    compute = {"sub": np.subtract, "mul": np.multiply}[op]

    def do(_: Wave, r: Env) -> None:
        a, b = (
            (_value(r, w) & 0xFFFFFFFF).astype("<u4").view("<f2").astype(np.float32)
            for w in words[1:]
        )
        with np.errstate(over="ignore", invalid="ignore"):
            made = compute(a, b).astype("<f2")
        r[words[0]] = made.view("<u4").astype(np.int64)

    return do


def _bytes_of(words: list[Array]) -> Array:
    """[lane][register][byte]."""
    stacked = np.stack([w & 0xFFFFFFFF for w in words], 1).astype("<u4")
    return np.ascontiguousarray(stacked)[..., None].view(np.uint8)


def _mma(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    operand, _ = opcode.split(".")[-2], assert_same(opcode)
    dtype, wide = _OPERANDS[operand]
    p, q = LANES // 4, LANES % 4

    def matrix(registers: list[Array], rows: int, places: list[tuple[int, int]]) -> Array:
        raw, made = _bytes_of(registers), np.zeros((rows, 32), np.uint8)
        for register, (down, across) in enumerate(places):
            made[(p + down)[:, None], (4 * q + across)[:, None] + np.arange(4)] = raw[:, register]
        values = made.view(dtype).astype(wide)
        require(not np.isnan(values.astype(np.float64)).any(), "an operand was never written")
        return values

    def do(_: Wave, r: Env) -> None:
        a = matrix([r[w] for w in words[4:8]], 16, [(0, 0), (8, 0), (0, 16), (8, 16)])
        b = matrix([r[w] for w in words[8:10]], 8, [(0, 0), (0, 16)])
        product = a @ b.T
        for i in range(4):
            add = product[p + 8 * (i // 2), 2 * q + i % 2]
            total = r[words[10 + i]] + add
            r[words[i]] = wrapped(total, 32) if wide is np.int64 else total.astype(np.float32)

    return do


def _cvt(opcode: str, rest: str, words: list[str], guard: str | None) -> Statement:
    """Two f32 to one word of 16-bit floats, the second operand in the low half."""
    dtype = _OPERANDS[opcode.split(".")[-2].removesuffix("x2")][0]

    def do(_: Wave, r: Env) -> None:
        high, low = (r[w].astype(dtype).view(np.uint16).astype(np.int64) for w in words[1:3])
        r[words[0]] = low | high << 16

    return do


def assert_same(opcode: str) -> None:
    """A and B have one type, the sums another."""
    total, a, b, old = opcode.split(".")[-4:]
    assert (a, total) == (b, old)


_PTX: tuple[tuple[str, Callable[..., Statement]], ...] = (
    (".reg", _ignore),
    ("bra", _ignore),
    ("cvt.u", _widened),
    *((f"{op}.{kind}", _integer) for op in _INTEGER for kind in ("s32", "s64", "lo.s32")),
    ("setp.", _setp),
    ("selp.", _selp),
    ("not.", _logic),
    ("and.", _logic),
    ("or.", _logic),
    ("shl.", _logic),
    ("mov.", _mov),
    ("cp.async.", _cp_async),
    ("ld.global.", _ld_global),
    ("ld.shared", _ld_shared),
    ("mapa.", _mapa),
    ("barrier.cluster.arrive.release", _arrive),
    ("bar.warp.sync", _sync),
    ("st.", _st),
    ("ldmatrix.", _ldmatrix),
    ("prmt.", _prmt),
    ("cvt.rn.", _cvt),
    ("shf.", _shf),
    ("sub.", _halves),
    ("mul.", _halves),
    ("mma.sync.", _mma),
)
