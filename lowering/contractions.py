"""Reads a contraction and its elementwise epilogue out of a function of ``linalg`` ops."""

from __future__ import annotations

from dialects.errors import UnsupportedError
from dialects.grouping import MultiplyAdd, TileGroup
from dialects.operands import Contraction, EpilogueStep, Operand, Product, check_contraction

from .decoders import decoded_argument
from .elementwise import read_elementwise
from .generics import Generic, defining_op, read_generic, tensor_element
from .ir import mlir
from .names import argument_names

_WIDENING = ("arith.extf", "arith.extsi", "arith.extui")
_ACCUMULATE = ("arith.addf", "arith.addi")
_MULTIPLY = ("arith.mulf", "arith.muli")
_CONVERTING = (*_WIDENING, "arith.sitofp", "arith.truncf")  # of a further product's sum


def read_contraction(function: mlir.Operation, dims: tuple[str, ...]) -> Contraction:
    """The contraction that a kernel function returns, its sizes named by ``dims``.

    Named ``linalg`` ops must have been generalized. Sizes are named in the order batch, m, n, k.

    Raises:
        UnsupportedError: the function is not init -> contraction -> elementwise chain, with what
            was found instead.
    """
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        raise UnsupportedError(f"a kernel is one block of ops, found {len(blocks)}")
    returned = list(blocks[0].operations)[-1].operation
    if returned.name != "func.return" or len(returned.operands) != 1:
        raise UnsupportedError("a kernel must return exactly one tensor")
    value, chain, further = returned.operands[0], [], []
    while True:
        generic = read_generic(value)
        if generic.reductions:
            break
        if len(_computed_inputs(generic)) == 2:
            value, product = _joined(generic)
            further.append(product)
            continue
        if further:
            raise UnsupportedError("further products are added before the epilogue")
        chain.append(generic)
        value = _main_input(generic)
    return _Reader(function, dims, generic, further[::-1], chain[::-1]).read()


def _computed_inputs(generic: Generic) -> list[int]:
    """Numbers of the inputs of an elementwise op that are computed and of the full shape."""
    pairs = enumerate(zip(generic.inputs, generic.maps, strict=False))
    return [i for i, (v, map_) in pairs if map_ == generic.identity and defining_op(v) is not None]


def _joined(generic: Generic) -> tuple[mlir.Value, Generic]:
    """The sum that an op adds a further product to, and that product."""
    *ops, last = generic.body
    arguments = list(generic.block.arguments)
    sum_ = defining_op(last.operands[0])
    main: list[int] = []
    other: list[int] = []
    for operand in sum_.operands if sum_ is not None and sum_.name in _ACCUMULATE else ():
        cast = defining_op(operand)
        if cast is not None and cast.name in _CONVERTING:
            other.append(arguments.index(cast.operands[0]))
        elif operand in arguments:
            (other if main else main).append(arguments.index(operand))
    converts = len(ops) - 1
    if not (len(main) == len(other) == 1 and converts < 2 and len(generic.inputs) == 2):
        names = ", ".join(o.name for o in generic.body)
        raise UnsupportedError(
            f"an op on two computed values adds the second, converted, to the first, found {names}"
        )
    product = read_generic(generic.inputs[other[0]])
    if not product.reductions:
        raise UnsupportedError("what is added to a product must be an argument or a product")
    return generic.inputs[main[0]], product


def _main_input(generic: Generic) -> mlir.Value:
    """The input of an elementwise op that is itself computed, of the full shape."""
    for value, map_ in zip(generic.inputs, generic.maps, strict=False):
        if map_ == generic.identity and defining_op(value) is not None:
            return value
    raise UnsupportedError("an elementwise op of the result reads no contraction")


def linalg_groups(contraction: Contraction) -> tuple[TileGroup, ...]:
    """One group a product, of no shape yet: a body that emits the kernel chooses it."""
    multiplies = (
        MultiplyAdd(a=p.a.type, b=p.b.type, acc=p.accumulator) for p in contraction.products
    )
    return tuple(TileGroup(multiplies=(m,)) for m in multiplies)


class _Arguments:
    """The function's arguments by number: each gets one role, and with it one name."""

    def __init__(self, function: mlir.Operation) -> None:
        self.count = len(list(function.regions[0].blocks[0].arguments))
        self.given = argument_names(function)
        self.operands: dict[int, Operand] = {}

    def claim(
        self,
        value: mlir.Value,
        default: str,
        type_: str,
        dims: tuple[str, ...],
        source: str | None = None,
    ) -> Operand:
        """The operand that an argument is. ``default`` is its name unless the author gave one."""
        number = mlir.BlockArgument(value).arg_number
        name = self.given.get(number, default)
        operand = Operand(name=name, type=type_, dims=dims, source=source)
        known = self.operands.get(number)
        if known is not None:
            raise UnsupportedError(f"argument '{known.name}' has two roles, '{default}' too")
        if any(o.name == operand.name for o in self.operands.values()):
            raise UnsupportedError(f"two arguments are called '{operand.name}'")
        _check_tensor(value, operand)
        self.operands[number] = operand
        return operand

    def again(self, value: mlir.Value, dims: tuple[str, ...]) -> Operand | None:
        """The operand that an argument already is, when it is read in the same way once more."""
        known = self.operands.get(mlir.BlockArgument(value).arg_number)
        return known if known is not None and known.dims == dims else None

    def check_order(self, operands: tuple[Operand, ...]) -> None:
        """A call passes operands by position: the function must list them as the kernel does."""
        unused = [n for n in range(self.count) if n not in self.operands]
        if unused:
            raise UnsupportedError(f"argument {unused[0]} is not read, leave it out")
        found = [self.operands[n].name for n in range(self.count)]
        expected = [o.name for o in operands if o.name in found]
        if found != expected:
            raise UnsupportedError(
                f"arguments must be in the order {', '.join(expected)}, found {', '.join(found)}"
            )


def _check_tensor(value: mlir.Value, operand: Operand) -> None:
    shaped = mlir.RankedTensorType(value.type)
    if shaped.encoding is not None:
        raise UnsupportedError(f"'{operand.name}' has the encoding {shaped.encoding}")
    if not operand.dims:
        raise UnsupportedError(f"'{operand.name}' has rank 0: use a constant or a vector")
    for axis, name in enumerate(operand.dims):
        if not shaped.is_dynamic_dim(axis):
            size = shaped.get_dim_size(axis)
            raise UnsupportedError(
                f"size {name} of '{operand.name}' is fixed at {size}: sizes are dynamic, write '?'"
            )


class _Reader:
    """Names everything by role: dims by position, operands by argument."""

    def __init__(
        self,
        function: mlir.Operation,
        dims: tuple[str, ...],
        contraction: Generic,
        further: list[Generic],
        epilogue: list[Generic],
    ) -> None:
        self.dims = dims
        self.contraction, self.further, self.epilogue = contraction, further, epilogue
        self.arguments = _Arguments(function)
        self.module = function.parent
        self.extras: list[Operand] = []

    def read(self) -> Contraction:
        self._axes(self.contraction)  # refuses dims that do not fit before they are taken apart
        batch, m, n, k = self.dims if len(self.dims) == 4 else (None, *self.dims)
        stored = tuple(d for d in (batch, m, n) if d)
        a, b = self._factors(self.contraction, stored, "")
        start = self._accumulated(stored)
        more = [self._product(g, stored, i) for i, g in enumerate(self.further, 1)]
        steps = self._epilogue_steps()
        c = start or Operand(name=self._result_name(), type=self._result_type(), dims=stored)
        contraction = Contraction(
            batch=batch,
            m=m,
            n=n,
            k=k,
            a=a,
            b=b,
            c=c,
            accumulator=tensor_element(self.contraction.output),
            accumulate=start is not None,
            more=tuple(more),
            extras=tuple(self.extras),
            epilogue=tuple(steps),
        )
        self.arguments.check_order(contraction.operands)
        check_contraction(contraction)
        return contraction

    def _factors(
        self, generic: Generic, stored: tuple[str, ...], suffix: str
    ) -> tuple[Operand, Operand]:
        """A and B of one product, whose sum must be ``stored`` in that order."""
        axes = self._axes(generic)
        unsigned = self._unsigned(generic)
        found = tuple(axes[d] for d in generic.maps[-1])
        if found != stored:
            raise UnsupportedError(f"the result must be stored as {stored}, found {found}")
        a = self._operand(generic, 0, f"a{suffix}", axes, unsigned)
        return a, self._operand(generic, 1, f"b{suffix}", axes, unsigned)

    def _product(self, generic: Generic, stored: tuple[str, ...], number: int) -> Product:
        a, b = self._factors(generic, stored, str(number))
        if defining_op(generic.output) is None or not _starts_at_zero(generic.output):
            raise UnsupportedError("a further product must start at zero (linalg.fill of 0)")
        return Product(a=a, b=b, accumulator=tensor_element(generic.output))

    def _axes(self, generic: Generic) -> dict[int, str]:
        """Name of each loop: batch is in all maps, m in A and C, n in B and C, k in A and B."""
        if len(generic.inputs) != 2 or generic.reductions != 1:
            raise UnsupportedError(
                f"a contraction has 2 inputs and 1 reduction, found {len(generic.inputs)} and "
                f"{generic.reductions}"
            )
        a, b, c = (set(m) for m in generic.maps)
        roles = {"batch": a & b & c, "m": (a & c) - b, "n": (b & c) - a, "k": (a & b) - c}
        wanted = ["batch", "m", "n", "k"] if len(self.dims) == 4 else ["m", "n", "k"]
        fits = [r for r in roles if roles[r]] == wanted and all(len(v) < 2 for v in roles.values())
        if not fits or len(self.dims) != len(wanted):
            found = ", ".join(f"{len(v)} {r}" for r, v in roles.items())
            raise UnsupportedError(
                f"xpu.dims {list(self.dims)} must name {wanted}, the contraction has {found}"
            )
        return {next(iter(roles[r])): d for d, r in zip(self.dims, wanted, strict=True)}

    def _unsigned(self, generic: Generic) -> set[int]:
        """Check that the body is c + a * b with widening only; the inputs that widen unsigned."""
        ops = generic.body
        sum_ = defining_op(ops[-1].operands[0])
        arguments = list(generic.block.arguments)
        product = None
        if sum_ is not None and sum_.name in _ACCUMULATE and arguments[2] in list(sum_.operands):
            others = [o for o in sum_.operands if o != arguments[2]]
            product = defining_op(others[0]) if len(others) == 1 else None
        factors: dict[int, str | None] = {}
        if product is not None and product.name in _MULTIPLY:
            for operand in product.operands:
                cast = defining_op(operand)
                if cast is not None and cast.name in _WIDENING:
                    operand = cast.operands[0]
                if operand in arguments[:2]:
                    factors[arguments.index(operand)] = cast.name if cast is not None else None
        if sorted(factors) != [0, 1]:
            names = ", ".join(o.name for o in ops)
            raise UnsupportedError(f"a contraction computes c + a * b, found {names}")
        return {i for i, cast in factors.items() if cast == "arith.extui"}

    def _operand(
        self, generic: Generic, index: int, name: str, axes: dict[int, str], unsigned: set[int]
    ) -> Operand:
        value, source = generic.inputs[index], None
        type_ = tensor_element(value)
        computed = defining_op(value)
        if computed is not None:
            value, source = decoded_argument(computed, self.module, name)
        dims = tuple(axes[d] for d in generic.maps[index])
        if len(dims) == 3 and dims[0] != self.dims[0]:
            raise UnsupportedError(f"operand '{name}' must be stored batch first, found {dims}")
        if index in unsigned:
            if type_ != "i8":
                raise UnsupportedError(f"operand '{name}' is unsigned {type_}, only i8 may be")
            type_ = "u8"
        return self.arguments.claim(value, name, type_, dims, source)

    def _result_name(self) -> str:
        taken = {o.name for o in self.arguments.operands.values()}
        names = ("c", "out", *(f"c{i}" for i in range(len(taken))))
        return next(n for n in names if n not in taken)

    def _result_type(self) -> str:
        last = self.epilogue[-1] if self.epilogue else self.contraction
        return tensor_element(last.output)

    def _accumulated(self, dims: tuple[str, ...]) -> Operand | None:
        """The tensor argument that the sum starts from; None where it starts at zero."""
        start = self.contraction.output
        made_by = defining_op(start)
        if made_by is None:
            if self._result_type() != tensor_element(start):
                raise UnsupportedError("an accumulated result cannot change its type")
            return self.arguments.claim(start, "c", tensor_element(start), dims)
        if not _starts_at_zero(start):
            raise UnsupportedError(
                "the accumulator must start at zero (linalg.fill of 0) or be a tensor argument"
            )
        return None

    def _epilogue_steps(self) -> list[EpilogueStep]:
        steps: list[EpilogueStep] = []
        previous = self._sum()
        for generic in self.epilogue:
            steps += read_elementwise(generic, previous, self._extra)
            previous = generic.op
        return steps

    def _sum(self) -> mlir.Operation:
        """The op that computes all products' sum: what the first elementwise op reads."""
        if not self.epilogue or not self.further:
            return self.contraction.op
        made_by = defining_op(_main_input(self.epilogue[0]))
        assert made_by is not None
        return made_by

    def _extra(self, value: mlir.Value, map_: tuple[int, ...]) -> str:
        """The name of an operand that only the epilogue reads."""
        dims = tuple(self.dims[d] for d in map_)
        known = self.arguments.again(value, dims)
        if known is not None and known in self.extras:
            return known.name
        operand = self.arguments.claim(value, f"x{len(self.extras)}", tensor_element(value), dims)
        self.extras.append(operand)
        return operand.name


def _starts_at_zero(value: mlir.Value) -> bool:
    made_by = defining_op(value)
    if made_by is None or made_by.name != "linalg.generic":
        return False
    return _fills_with_zero(read_generic(value))


def _fills_with_zero(fill: Generic) -> bool:
    """Whether it is ``linalg.fill`` of a constant zero, in the general form."""
    if len(fill.inputs) != 1:
        return False
    constant = defining_op(fill.inputs[0])
    if constant is None or constant.name != "arith.constant" or fill.maps[0]:
        return False
    value = constant.attributes["value"]
    number = isinstance(value, mlir.FloatAttr | mlir.IntegerAttr)
    filled = fill.body[-1].operands[0]
    cast = defining_op(filled)
    if cast is not None and cast.name in (*_WIDENING, "arith.truncf", "arith.trunci"):
        filled = cast.operands[0]
    return number and not value.value and filled == fill.block.arguments[0]
