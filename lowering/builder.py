"""Writes kernels from Python: the inverse of reading a contraction out of IR.

``source_text`` gives the module that an author would write by hand; the pipeline reads the same
:class:`Contraction` back from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from dialects.declarations import Declarations, Hold, Occupancy
from dialects.errors import UnsupportedError
from dialects.member import Member
from dialects.operands import Contraction, EpilogueStep, Operand, check_contraction
from dialects.types import element_type

from .tiles.epilogue import FLOAT_OPS, INTEGER_OPS


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """One kernel: its name, what it computes, and what its author declares."""

    name: str
    contraction: Contraction
    declarations: Declarations


def source_text(kernels: Sequence[KernelSource]) -> str:
    """The module of these kernels as MLIR text.

    Raises:
        Error: a contraction that makes no sense, or that the IR cannot say.
    """
    for kernel in kernels:
        _check(kernel)
    decoders = [_decoder(o) for k in kernels for o in k.contraction.operands if o.source]
    return "\n".join([*dict.fromkeys(decoders), *(_Function(k).text() for k in kernels)])


def dense(
    type_: str,
    accumulator: str = "f32",
    *,
    batch: bool = False,
    transposed_b: bool = False,
    accumulate: bool = False,
    extras: tuple[Operand, ...] = (),
    epilogue: tuple[EpilogueStep, ...] = (),
    result: str | None = None,
    source_b: str | None = None,
) -> Contraction:
    """A matrix product over dims (B,) M, N, K with the names that the samples use.

    ``source_b`` is the block format that B comes in, which needs ``transposed_b``.
    """
    lead = ("B",) if batch else ()
    return Contraction(
        batch="B" if batch else None,
        m="M",
        n="N",
        k="K",
        a=Operand(name="a", type=type_, dims=(*lead, "M", "K")),
        b=Operand(
            name="b",
            type=type_,
            dims=(*lead, *(("N", "K") if transposed_b else ("K", "N"))),
            source=source_b,
        ),
        c=Operand(name="c", type=result or accumulator, dims=(*lead, "M", "N")),
        accumulator=accumulator,
        accumulate=accumulate,
        extras=extras,
        epilogue=epilogue,
    )


def _check(kernel: KernelSource) -> None:
    c = kernel.contraction
    check_contraction(c)
    if c.more:
        raise UnsupportedError(
            f"kernel '{kernel.name}': the builder writes one product, found {len(c.products)}: "
            "write the kernel in cooperative-matrix IR"
        )
    for operand in c.operands:
        type_ = element_type(operand.type)
        widened = operand in (c.a, c.b) and type_.bits < element_type(c.accumulator).bits
        if type_.kind == "unsigned" and not widened:
            raise UnsupportedError(
                f"kernel '{kernel.name}': only a and b can be unsigned, '{operand.name}' is "
                f"{type_}: the IR has no sign besides that of the op that widens"
            )


class _Function:
    """Writes one function. Operands are ``%arg_<name>``, which no other value is called."""

    def __init__(self, source: KernelSource) -> None:
        self.source, self.contraction = source, source.contraction
        self.loops = source.contraction.dims
        self._count = 0

    def text(self) -> str:
        c = self.contraction
        inputs = [c.a, c.b, *c.extras, *([c.c] if c.accumulate else [])]
        arguments = ", ".join(f"%arg_{o.name}: {_stored(o)} {_named(o)}" for o in inputs)
        attributes = ", ".join(_attributes(self.source.declarations))
        body, result = self._body()
        lines = "\n".join(f"  {line}" for line in body)
        return (
            f"func.func @{self.source.name}({arguments}) -> {_tensor(c.c)}\n"
            f"    attributes {{{attributes}}} {{\n{lines}\n"
            f"  return {result} : {_tensor(c.c)}\n}}\n"
        )

    def _body(self) -> tuple[list[str], str]:
        c = self.contraction
        accumulated = Operand(name="c", type=c.accumulator, dims=c.c.dims)
        lines: list[str] = []
        start = f"%arg_{c.c.name}"
        if not c.accumulate:
            lines += self._sizes()
            lines += self._empty("%empty", accumulated)
            mlir = element_type(c.accumulator).mlir
            lines += [
                f"%zero = arith.constant {_literal(0.0, c.accumulator)} : {mlir}",
                f"%init = linalg.fill ins(%zero : {mlir}) outs(%empty : {_tensor(accumulated)})"
                f" -> {_tensor(accumulated)}",
            ]
            start = "%init"
        lines += self._product(start, accumulated)
        value, current = "%product", c.accumulator
        for step in c.epilogue:
            added, value, current = self._step(step, value, current)
            lines += added
        return lines, value

    def _sizes(self) -> list[str]:
        """``tensor.dim`` of each size of C, from the first operand that has it."""
        c, lines = self.contraction, []
        for dim in c.c.dims:
            operand = next(o for o in (c.a, c.b) if dim in o.dims)
            axis = operand.dims.index(dim)
            lines.append(f"%axis_{dim} = arith.constant {axis} : index")
            source = f"%arg_{operand.name}, %axis_{dim} : {_stored(operand)}"
            lines.append(f"%size_{dim} = tensor.dim {source}")
        return lines

    def _empty(self, name: str, operand: Operand) -> list[str]:
        sizes = ", ".join(f"%size_{d}" for d in operand.dims)
        return [f"{name} = tensor.empty({sizes}) : {_tensor(operand)}"]

    def _product(self, start: str, accumulated: Operand) -> list[str]:
        c = self.contraction
        maps = ", ".join(_map(self.loops, o.dims) for o in (c.a, c.b, accumulated))
        iterators = ", ".join('"reduction"' if d == c.k else '"parallel"' for d in self.loops)
        wide = element_type(c.accumulator)
        a, b = (element_type(o.type) for o in (c.a, c.b))
        (decode_a, first), (decode_b, second) = _decoded(c.a), _decoded(c.b)
        lines = [
            *(decode_a + decode_b),
            f"%product = linalg.generic {{indexing_maps = [{maps}],",
            f"    iterator_types = [{iterators}]}}",
            f"    ins({first}, {second} : {_tensor(c.a)}, {_tensor(c.b)})"
            f" outs({start} : {_tensor(accumulated)}) {{",
            f"^bb0(%x: {a.mlir}, %y: {b.mlir}, %sum: {wide.mlir}):",
        ]
        names = []
        for name, type_ in (("%x", a), ("%y", b)):
            if type_.mlir == wide.mlir:
                names.append(name)
                continue
            op = {"float": "extf", "signed": "extsi", "unsigned": "extui"}[type_.kind]
            lines.append(f"  {name}w = arith.{op} {name} : {type_.mlir} to {wide.mlir}")
            names.append(f"{name}w")
        table = FLOAT_OPS if wide.kind == "float" else INTEGER_OPS
        return [
            *lines,
            f"  %prod = arith.{table['mul']} {names[0]}, {names[1]} : {wide.mlir}",
            f"  %next = arith.{table['add']} %sum, %prod : {wide.mlir}",
            f"  linalg.yield %next : {wide.mlir}",
            f"}} -> {_tensor(accumulated)}",
        ]

    def _step(self, step: EpilogueStep, value: str, current: str) -> tuple[list[str], str, str]:
        """One elementwise op of its own; the lowering merges them."""
        c = self.contraction
        self._count += 1
        name, wanted = f"%step{self._count}", step.type or current
        have, want = (Operand(name="v", type=t, dims=c.c.dims) for t in (current, wanted))
        extra = next((o for o in c.extras if o.name == step.operand), None)
        operands = [(value, have), *([(f"%arg_{extra.name}", extra)] if extra else [])]
        lines = self._sizes() if c.accumulate and self._count == 1 else []
        lines += self._empty(f"{name}_empty", want)
        maps = ", ".join(_map(c.c.dims, o.dims) for _, o in [*operands, ("", want)])
        iterators = ", ".join(['"parallel"'] * len(c.c.dims))
        names = ", ".join(n for n, _ in operands)
        types = ", ".join(_tensor(o) for _, o in operands)
        mlir = element_type(current).mlir
        arguments = [f"%v: {mlir}", *([f"%e: {element_type(extra.type).mlir}"] if extra else [])]
        lines += [
            f"{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}",
            f"    ins({names} : {types}) outs({name}_empty : {_tensor(want)}) {{",
            f"^bb0({', '.join(arguments)}, %old: {element_type(wanted).mlir}):",
            *_step_body(step, current, wanted, extra),
            f"  linalg.yield %r : {element_type(wanted).mlir}",
            f"}} -> {_tensor(want)}",
        ]
        return lines, name, wanted


def _step_body(step: EpilogueStep, current: str, wanted: str, extra: Operand | None) -> list[str]:
    have, want = element_type(current), element_type(wanted)
    if step.op == "cast":
        return [f"  %r = arith.{_cast(current, wanted)} %v : {have.mlir} to {want.mlir}"]
    table = FLOAT_OPS if have.kind == "float" else INTEGER_OPS
    if extra is None:
        constant = _literal(step.constant or 0.0, current)
        return [
            f"  %k = arith.constant {constant} : {have.mlir}",
            f"  %r = arith.{table[step.op]} %v, %k : {have.mlir}",
        ]
    lines, name = [], "%e"
    if extra.type != current:
        source = element_type(extra.type).mlir
        lines.append(f"  %w = arith.{_cast(extra.type, current)} %e : {source} to {have.mlir}")
        name = "%w"
    return [*lines, f"  %r = arith.{table[step.op]} %v, {name} : {have.mlir}"]


def _cast(source: str, result: str) -> str:
    have, want = element_type(source), element_type(result)
    wider = want.bits > have.bits
    if have.kind == "float":
        return ("extf" if wider else "truncf") if want.kind == "float" else "fptosi"
    if want.kind == "float":
        return "sitofp"
    return "extsi" if wider else "trunci"


def _tensor(operand: Operand) -> str:
    return f"tensor<{'?x' * len(operand.dims)}{element_type(operand.type).mlir}>"


def _stored(operand: Operand) -> str:
    """The type of the argument: raw bytes for a block format."""
    return f"tensor<{'?x' * len(operand.dims)}{element_type(operand.stored_type).mlir}>"


def _decoder_name(operand: Operand) -> str:
    return f"decode_{operand.source}_{operand.type}_{len(operand.dims)}d"


def _decoder(operand: Operand) -> str:
    """The declaration that stands for decoding the operand."""
    return (
        f"func.func private @{_decoder_name(operand)}({_stored(operand)}) -> {_tensor(operand)}"
        f" attributes {{xpu.decode = {_string(operand.source or '')}}}\n"
    )


def _decoded(operand: Operand) -> tuple[list[str], str]:
    """The lines that decode an operand, and the value that a product reads."""
    argument = f"%arg_{operand.name}"
    if operand.source is None:
        return [], argument
    types = f"({_stored(operand)}) -> {_tensor(operand)}"
    value = f"%elements_{operand.name}"
    return [f"{value} = func.call @{_decoder_name(operand)}({argument}) : {types}"], value


def _named(operand: Operand) -> str:
    return f'{{xpu.name = "{operand.name}"}}'


def _map(loops: Sequence[str], dims: Sequence[str]) -> str:
    return f"affine_map<({', '.join(loops)}) -> ({', '.join(dims)})>"


def _literal(value: float, type_: str) -> str:
    return f"{value:.16e}" if element_type(type_).kind == "float" else str(int(value))


def _attributes(declared: Declarations) -> list[str]:
    result = ["xpu.kernel", f"xpu.dims = [{_quoted(declared.dims)}]"]
    occupancy = _occupancy(declared.occupancy)
    if occupancy:
        result.append(f"xpu.occupancy = {{{occupancy}}}")
    if declared.wave_width is not None:
        result.append(f"xpu.wave = {{width = {declared.wave_width}}}")
    if declared.fast_math:
        result.append("xpu.fast_math")
    if declared.requires is not None:
        result.append(f'xpu.requires = "{declared.requires}"')
    if declared.members:
        members = ", ".join(_member(m) for m in declared.members)
        result.append(f"xpu.instantiate_max = {len(declared.members)}")
        result.append(f"xpu.instantiate = [{members}]")
    return result + [_hold(h) for h in declared.holds]


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(_string(n) for n in names)


def _string(text: str) -> str:
    """A string attribute: what is not plain is written as the bytes of its UTF-8 form."""
    plain = {*range(32, 127)} - {ord('"'), ord("\\")}
    return '"' + "".join(chr(b) if b in plain else f"\\{b:02X}" for b in text.encode()) + '"'


def _occupancy(occupancy: Occupancy) -> str:
    values = {f.name: getattr(occupancy, f.name) for f in fields(occupancy)}
    return ", ".join(f'{k} = "{v}"' for k, v in values.items() if v is not None)


def _member(member: Member) -> str:
    pairs = [f"{k} = {v}" for k, v in member.tile.values().items() if v]
    if member.body is not None:
        pairs.append(f"body = {_string(member.body)}")
    if member.backends:
        pairs.append(f"backends = [{_quoted(member.backends)}]")
    return f"{{{', '.join(pairs)}}}"


def _hold(hold: Hold) -> str:
    pairs = [f"tracked = {_string(hold.tracked)}"]
    pairs += [
        f"{k} = [{_quoted(v)}]"
        for k, v in (("backends", hold.backends), ("members", hold.members))
        if v
    ]
    return f"xpu.{hold.cause} = {{{', '.join(pairs)}}}"
