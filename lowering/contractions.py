"""Reads a contraction and its elementwise epilogue out of a function of ``linalg`` ops."""

from __future__ import annotations

from dataclasses import dataclass

from dialects.errors import UnsupportedError
from dialects.operands import Contraction, EpilogueStep, Operand, StepKind

from .ir import affine_results, attribute_value, mlir

_MLIR_TYPES = {
    "f64": "f64",
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "f8E4M3FN": "f8e4m3",
    "f8E5M2": "f8e5m2",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
}
_STEPS: dict[str, StepKind] = {
    "arith.addf": "add",
    "arith.addi": "add",
    "arith.mulf": "mul",
    "arith.muli": "mul",
    "arith.maximumf": "max",
    "arith.maxnumf": "max",
    "arith.maxsi": "max",
    "arith.minimumf": "min",
    "arith.minnumf": "min",
    "arith.minsi": "min",
}
_CASTS = (
    "arith.truncf",
    "arith.extf",
    "arith.sitofp",
    "arith.fptosi",
    "arith.trunci",
    "arith.extsi",
)
_ACCUMULATE = ("arith.addf", "arith.addi")
_MULTIPLY = ("arith.mulf", "arith.muli")


@dataclass(frozen=True, kw_only=True)
class _Generic:
    """A ``linalg.generic`` taken apart."""

    op: mlir.Operation
    inputs: list[mlir.Value]
    output: mlir.Value
    maps: list[tuple[int, ...]]
    iterators: list[str]
    block: mlir.Block

    @property
    def parallel(self) -> bool:
        return all(i == "parallel" for i in self.iterators)


def read_contraction(function: mlir.Operation, dims: tuple[str, ...]) -> Contraction:
    """The contraction that a kernel function returns, its sizes named by ``dims``.

    Named ``linalg`` ops must have been generalized. Sizes are named in the order batch, m, n, k.

    Raises:
        UnsupportedError: the function is not init -> contraction -> elementwise chain, with what
            was found instead.
    """
    block = function.regions[0].blocks[0]
    returned = list(block.operations)[-1].operation
    if returned.name != "func.return" or len(returned.operands) != 1:
        raise UnsupportedError("a kernel must return exactly one tensor")
    value, chain = returned.operands[0], []
    while True:
        generic = _generic(value)
        if not generic.parallel:
            break
        chain.append(generic)
        value = _main_input(generic)
    return _Reader(function, dims, generic, chain[::-1]).read()


def _generic(value: mlir.Value) -> _Generic:
    owner = value.owner
    if not isinstance(owner, mlir.Operation | mlir.OpView):
        raise UnsupportedError("the result is an argument: no contraction produces it")
    op = owner.operation
    if op.name != "linalg.generic":
        raise UnsupportedError(
            f"expected a linalg contraction or elementwise linalg.generic, found '{op.name}'"
        )
    maps = []
    for attribute in mlir.ArrayAttr(op.attributes["indexing_maps"]):
        results = affine_results(attribute)
        if results is None:
            raise UnsupportedError(f"indexing map {attribute} is not a projected permutation")
        maps.append(results)
    if len(op.results) != 1:
        raise UnsupportedError(f"linalg.generic with {len(op.results)} results")
    iterators = [str(i) for i in mlir.ArrayAttr(op.attributes["iterator_types"])]
    operands = list(op.operands)
    return _Generic(
        op=op,
        inputs=operands[:-1],
        output=operands[-1],
        maps=maps,
        iterators=["reduction" if "reduction" in i else "parallel" for i in iterators],
        block=op.regions[0].blocks[0],
    )


def _main_input(generic: _Generic) -> mlir.Value:
    """The input of an elementwise op that is itself computed, of the full shape."""
    for value, map_ in zip(generic.inputs, generic.maps, strict=False):
        if map_ == tuple(range(len(generic.iterators))) and not _is_argument(value):
            return value
    raise UnsupportedError("an elementwise op of the result reads no contraction")


def _is_argument(value: mlir.Value) -> bool:
    return not isinstance(value.owner, mlir.Operation | mlir.OpView)


class _Reader:
    """Names everything by role: dims by position, operands by argument."""

    def __init__(
        self,
        function: mlir.Operation,
        dims: tuple[str, ...],
        contraction: _Generic,
        epilogue: list[_Generic],
    ) -> None:
        self.function, self.dims = function, dims
        self.contraction, self.epilogue = contraction, epilogue
        self.arguments = list(function.regions[0].blocks[0].arguments)
        self.names: dict[int, str] = {}

    def read(self) -> Contraction:
        generic = self.contraction
        axes = self._axes()
        unsigned = self._check_body()
        a = self._operand(0, "a", axes, unsigned)
        b = self._operand(1, "b", axes, unsigned)
        accumulate = self._accumulates()
        extras, steps = self._epilogue_steps()
        accumulator = _element(generic.output)
        result = self.epilogue[-1].output if self.epilogue else generic.output
        out_dims = tuple(axes[d] for d in generic.maps[-1])
        batch, m, n, k = self.dims if len(self.dims) == 4 else (None, *self.dims)
        expected = tuple(d for d in (batch, m, n) if d)
        if out_dims != expected:
            raise UnsupportedError(f"the result must be stored as {expected}, found {out_dims}")
        return Contraction(
            batch=batch,
            m=m,
            n=n,
            k=k,
            a=a,
            b=b,
            c=Operand(name=self._result_name(accumulate), type=_element(result), dims=out_dims),
            accumulator=accumulator,
            accumulate=accumulate,
            extras=extras,
            epilogue=steps,
        )

    def _axes(self) -> dict[int, str]:
        """Name of each loop: batch is in all maps, m in A and C, n in B and C, k in A and B."""
        generic = self.contraction
        if len(generic.inputs) != 2 or generic.iterators.count("reduction") != 1:
            raise UnsupportedError(
                f"a contraction has 2 inputs and 1 reduction, found {len(generic.inputs)} and "
                f"{generic.iterators.count('reduction')}"
            )
        a, b, c = (set(m) for m in generic.maps)
        roles = {"batch": a & b & c, "m": (a & c) - b, "n": (b & c) - a, "k": (a & b) - c}
        wanted = ["batch", "m", "n", "k"] if len(self.dims) == 4 else ["m", "n", "k"]
        if [r for r in roles if roles[r]] != wanted or any(len(v) > 1 for v in roles.values()):
            found = ", ".join(f"{len(v)} {r}" for r, v in roles.items())
            raise UnsupportedError(
                f"xpu.dims {list(self.dims)} names {wanted}, the contraction has {found}"
            )
        return {next(iter(roles[r])): d for d, r in zip(self.dims, wanted, strict=True)}

    def _check_body(self) -> bool:
        """The body must be c + a * b with widening only; returns whether inputs are unsigned."""
        ops = [o.operation for o in self.contraction.block.operations]
        widening = [o.name for o in ops[:-3]]
        allowed = {"arith.extf", "arith.extsi", "arith.extui"}
        names = [o.name for o in ops[-3:]]
        fine = (
            len(ops) >= 3
            and names[0] in _MULTIPLY
            and names[1] in _ACCUMULATE
            and names[2] == "linalg.yield"
            and set(widening) <= allowed
        )
        if not fine:
            raise UnsupportedError(
                f"a contraction computes c + a * b, found {', '.join(o.name for o in ops)}"
            )
        return "arith.extui" in widening

    def _operand(self, index: int, name: str, axes: dict[int, str], unsigned: bool) -> Operand:
        value = self.contraction.inputs[index]
        if not _is_argument(value):
            raise UnsupportedError(f"operand '{name}' must be an argument, found a computed value")
        dims = tuple(axes[d] for d in self.contraction.maps[index])
        if len(dims) == 3 and dims[0] != self.dims[0]:
            raise UnsupportedError(f"operand '{name}' must be stored batch first, found {dims}")
        type_ = _element(value)
        if unsigned and type_ == "i8":
            type_ = "u8"
        return Operand(name=self._argument_name(value, name), type=type_, dims=dims)

    def _argument_name(self, value: mlir.Value, default: str) -> str:
        number = mlir.BlockArgument(value).arg_number
        name = default
        if "arg_attrs" in self.function.attributes:
            given = mlir.ArrayAttr(self.function.attributes["arg_attrs"])[number]
            name = str(attribute_value(given).get("xpu.name", default))
        if not name.isidentifier() or name in self.names.values():
            raise UnsupportedError(f"argument name '{name}' is no identifier or not unique")
        self.names[number] = name
        return name

    def _result_name(self, accumulate: bool) -> str:
        if accumulate:
            return self._argument_name(self.contraction.output, "c")
        if "c" in self.names.values():
            return "out"
        return "c"

    def _accumulates(self) -> bool:
        """Whether the initial value is a tensor argument; zeros start a fresh result."""
        start = self.contraction.output
        if _is_argument(start):
            if self.epilogue and _element(self.epilogue[-1].output) != _element(start):
                raise UnsupportedError("an accumulated result cannot change its type")
            return True
        op = start.owner.operation
        fill = _generic(start) if op.name == "linalg.generic" else None
        constant = fill.inputs[0].owner if fill and len(fill.inputs) == 1 else None
        if not isinstance(constant, mlir.Operation | mlir.OpView) or not _is_zero(constant):
            raise UnsupportedError(
                "the accumulator must start at zero (linalg.fill of 0) or be a tensor argument"
            )
        return False

    def _epilogue_steps(self) -> tuple[tuple[Operand, ...], tuple[EpilogueStep, ...]]:
        extras: list[Operand] = []
        steps: list[EpilogueStep] = []
        previous = self.contraction.op
        for generic in self.epilogue:
            steps += _Elementwise(self, generic, previous, extras).steps()
            previous = generic.op
        return tuple(extras), tuple(steps)

    def extra(self, value: mlir.Value, map_: tuple[int, ...], extras: list[Operand]) -> str:
        """The name of an operand that only the epilogue reads."""
        out = [d for d in self.dims if d != self.dims[-1]]
        dims = tuple(out[d] for d in map_)
        number = mlir.BlockArgument(value).arg_number
        if number in self.names:
            return self.names[number]
        name = self._argument_name(value, f"x{len(extras)}")
        extras.append(Operand(name=name, type=_element(value), dims=dims))
        return name


class _Elementwise:
    """One all-parallel generic as steps on the value that it transforms."""

    def __init__(
        self,
        reader: _Reader,
        generic: _Generic,
        previous: mlir.Operation,
        extras: list[Operand],
    ) -> None:
        self.reader, self.generic, self.extras = reader, generic, extras
        arguments = list(generic.block.arguments)
        sources = [v.owner for v in generic.inputs]
        self.inputs = list(zip(arguments, generic.inputs, generic.maps, strict=False))
        mains = [
            a
            for a, s in zip(arguments, sources, strict=False)
            if isinstance(s, mlir.Operation | mlir.OpView) and s.operation == previous
        ]
        if len(mains) != 1:
            raise UnsupportedError("an elementwise op of the result must read it exactly once")
        self.running: mlir.Value = mains[0]

    def steps(self) -> list[EpilogueStep]:
        result = []
        for item in self.generic.block.operations:
            op = item.operation
            if op.name == "linalg.yield":
                if op.operands[0] != self.running:
                    raise UnsupportedError("an elementwise op must yield what it computed")
                return result
            if op.name in _CASTS and op.operands[0] == self.running:
                result.append(EpilogueStep(op="cast", type=_scalar(op.results[0].type)))
            elif op.name in _CASTS:
                continue  # widening of another operand: read where it is used
            else:
                result.append(self._binary(op))
            self.running = op.results[0]
        raise UnsupportedError("an elementwise op yields nothing")

    def _binary(self, op: mlir.Operation) -> EpilogueStep:
        if op.name not in _STEPS or self.running not in list(op.operands):
            raise UnsupportedError(
                f"epilogue op '{op.name}' is not one of {', '.join([*_STEPS, *_CASTS])} "
                "on the running value"
            )
        other = next((o for o in op.operands if o != self.running), self.running)
        if other == self.running:
            raise UnsupportedError(f"epilogue op '{op.name}' reads the running value twice")
        while isinstance(other.owner, mlir.Operation | mlir.OpView) and (
            other.owner.operation.name in _CASTS
        ):
            other = other.owner.operation.operands[0]
        if isinstance(other.owner, mlir.Operation | mlir.OpView):
            return EpilogueStep(op=_STEPS[op.name], constant=_constant(other.owner.operation))
        return self._with_input(op, other)

    def _with_input(self, op: mlir.Operation, other: mlir.Value) -> EpilogueStep:
        for argument, value, map_ in self.inputs:
            if argument != other:
                continue
            if not _is_argument(value):
                return EpilogueStep(op=_STEPS[op.name], constant=_constant(value.owner.operation))
            name = self.reader.extra(value, map_, self.extras)
            return EpilogueStep(op=_STEPS[op.name], operand=name)
        raise UnsupportedError(f"epilogue op '{op.name}' reads its own output")


def _constant(op: mlir.Operation) -> float:
    if op.name != "arith.constant":
        raise UnsupportedError(f"an epilogue reads arguments and constants, found '{op.name}'")
    return float(attribute_value(op.attributes["value"]))


def _is_zero(op: mlir.Operation | mlir.OpView) -> bool:
    operation = op.operation
    return operation.name == "arith.constant" and not attribute_value(operation.attributes["value"])


def _element(value: mlir.Value) -> str:
    shaped = mlir.RankedTensorType(value.type)
    return _scalar(shaped.element_type)


def _scalar(type_: mlir.Type) -> str:
    name = str(type_)
    if name not in _MLIR_TYPES:
        raise UnsupportedError(
            f"element type {name} is not one of {', '.join(sorted(_MLIR_TYPES))}"
        )
    return _MLIR_TYPES[name]
