"""The textual form of declarations: discardable ``xpu.*`` attributes on a function."""

from __future__ import annotations

from typing import Any, TypeVar

from dialects.codec import decode, encode
from dialects.declarations import (
    BACKENDS,
    DEFAULT_INSTANTIATE_MAX,
    HOLD_CAUSES,
    Declarations,
    Hold,
    Occupancy,
)
from dialects.errors import DeclarationError, Error
from dialects.expressions import Expression
from dialects.grouping import TileGroup
from dialects.launches import LaunchPin
from dialects.manifest import SPLITS
from dialects.member import TILE_PARAMETERS, Member, Tile, check_tile
from dialects.operands import Contraction, OperandGroup, check_contraction

from .ir import attribute_names, mlir, to_attribute, value_at
from .names import argument_names, is_identifier, kernel_name, shown

T = TypeVar("T")

AUTHOR_NAMES = (
    "kernel",
    "dims",
    "occupancy",
    "wave",
    "fast_math",
    "instantiate",
    "instantiate_max",
    "requires",
    "reference",
    *HOLD_CAUSES,
)
# written by our own passes
PIPELINE_NAMES = ("contraction", "tile_groups", "groups", "launch", "family", "tile", "body")
EXPRESSION_NAMES = (*TILE_PARAMETERS, "wave")
BACKEND_ALIASES = {
    "nvidia": "cuda",
    "nvptx": "cuda",
    "amd": "rocm",
    "hip": "rocm",
    "amdgpu": "rocm",
    "spirv": "vulkan",
    "spir-v": "vulkan",
}


def is_kernel(function: mlir.Operation) -> bool:
    """Whether the function carries ``xpu.kernel``."""
    return "xpu.kernel" in function.attributes


def put(function: mlir.Operation, name: str, value: object) -> None:
    """Write ``xpu.<name>`` from a dataclass or JSON-like value."""
    function.attributes[f"xpu.{name}"] = to_attribute(encode(value))


def text_of(function: mlir.Operation, name: str, *, where: str) -> str:
    """Read ``xpu.<name>``, which a pass has written, as a string."""
    value = _written(function, name, where)
    if not isinstance(value, str):
        raise DeclarationError(f"xpu.{name} must be a string, found {shown(value)}", where=where)
    return value


def contraction_of(function: mlir.Operation, *, where: str) -> Contraction:
    """Read and check ``xpu.contraction``."""
    value = _written(function, "contraction", where)
    found = decode(Contraction, value, where=where, path="xpu.contraction")
    try:
        check_contraction(found)
    except Error as error:
        raise DeclarationError(f"xpu.contraction: {error.message}", where=where) from None
    return found


def tile_of(function: mlir.Operation, *, where: str) -> Tile:
    """Read and check ``xpu.tile``."""
    tile = decode(Tile, _written(function, "tile", where), where=where, path="xpu.tile")
    check_tile(tile, where=where)
    return tile


def launch_of(function: mlir.Operation, *, where: str) -> LaunchPin:
    """Read ``xpu.launch``; a kernel that nobody has scanned has no launch sites."""
    if "xpu.launch" not in function.attributes:
        return LaunchPin()
    value = _written(function, "launch", where)
    return decode(LaunchPin, value, where=where, path="xpu.launch")


def tile_groups_of(function: mlir.Operation, *, where: str) -> tuple[TileGroup, ...]:
    """Read ``xpu.tile_groups``."""
    return _list_of(TileGroup, function, "tile_groups", where)


def groups_of(function: mlir.Operation, *, where: str) -> tuple[OperandGroup, ...]:
    """Read ``xpu.groups``."""
    return _list_of(OperandGroup, function, "groups", where)


def _list_of(cls: type[T], function: mlir.Operation, name: str, where: str) -> tuple[T, ...]:
    values = _need(_written(function, name, where), list, name, "a list of dictionaries")
    return tuple(
        decode(cls, value, where=where, path=f"xpu.{name}[{i}]") for i, value in enumerate(values)
    )


def _written(function: mlir.Operation, name: str, where: str) -> Any:
    if f"xpu.{name}" not in function.attributes:
        raise DeclarationError(f"xpu.{name} is missing, an earlier pass writes it", where=where)
    try:
        return value_at(function, f"xpu.{name}")
    except DeclarationError as error:
        raise DeclarationError(error.message, where=where) from None


def declarations(function: mlir.Operation, *, where: str) -> Declarations:
    """Everything an author declared on a function.

    Raises:
        DeclarationError: an unknown or malformed attribute, with its MLIR location.
    """
    try:
        values = _xpu_values(function)
        name = kernel_name(function, instance="family" in values)
        argument_names(function)
        if values.get("kernel", True) is not True:
            raise DeclarationError("xpu.kernel must be a unit attribute")
        members = _members(values, name)
        holds = tuple(_hold(cause, values[cause]) for cause in HOLD_CAUSES if cause in values)
        if "family" not in values:  # a pass has taken the list of members off an instance
            _check_held_members(holds, members)
        return Declarations(
            dims=_dims(values.get("dims"), name),
            occupancy=_occupancy(values.get("occupancy", {})),
            wave_width=_wave(values.get("wave")),
            fast_math=_flag(values.get("fast_math", False), "fast_math"),
            members=members,
            requires=_expression(values.get("requires"), "requires"),
            reference=_reference(values.get("reference")),
            holds=holds,
        )
    except Error as error:
        raise DeclarationError(error.message, where=where) from None


def _xpu_values(function: mlir.Operation) -> dict[str, Any]:
    known = {*AUTHOR_NAMES, *PIPELINE_NAMES}
    values: dict[str, Any] = {}
    for key in attribute_names(function):
        if not key.startswith("xpu."):
            continue
        if key[4:] not in known:
            raise DeclarationError(
                f"unknown declaration '{key}', known are {', '.join(AUTHOR_NAMES)}"
            )
        values[key[4:]] = value_at(function, key)
    return values


def _need(value: object, kind: type | tuple[type, ...], name: str, wanted: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise DeclarationError(f"xpu.{name} must be {wanted}, found {shown(value)}")
    return value


def _flag(value: object, name: str) -> bool:
    return _need(value, bool, name, "a unit attribute")


def _strings(value: object, name: str) -> tuple[str, ...]:
    items = _need(value, list, name, "a list of strings")
    return tuple(_need(i, str, name, "a list of strings") for i in items)


def _known_keys(value: dict[str, Any], name: str, known: tuple[str, ...]) -> None:
    for key in value:
        if key not in known:
            raise DeclarationError(f"xpu.{name} has no {shown(key)}, known are {', '.join(known)}")


def _dims(value: object, kernel: str) -> tuple[str, ...]:
    if value is None:
        raise DeclarationError(f"kernel '{kernel}' lacks xpu.dims, the names of its sizes")
    names = _strings(value, "dims")
    if len(set(names)) != len(names) or not all(is_identifier(n) for n in names):
        raise DeclarationError(f"xpu.dims must be distinct identifiers, found {shown([*names])}")
    if SPLITS in names:
        raise DeclarationError(f"xpu.dims: '{SPLITS}' is what split-K calls its slices")
    return names


def _expression(value: object, name: str) -> Expression | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return Expression(str(value))
    result = Expression(_need(value, str, name, "an expression in a string"))
    unknown = sorted(result.names.difference(EXPRESSION_NAMES))
    if unknown:
        raise DeclarationError(
            f"xpu.{name}: expression '{result}' names '{unknown[0]}', "
            f"which is not one of: {', '.join(EXPRESSION_NAMES)}"
        )
    return result


def _occupancy(value: object) -> Occupancy:
    entries = _need(value, dict, "occupancy", "a dictionary")
    names = ("max_threads", "max_waves", "min_resident", "max_registers")
    _known_keys(entries, "occupancy", names)
    if "max_threads" in entries and "max_waves" in entries:
        raise DeclarationError("xpu.occupancy takes max_threads or max_waves, not both")
    return Occupancy(**{k: _expression(v, f"occupancy.{k}") for k, v in entries.items()})


def _wave(value: object) -> int | None:
    if value is None:
        return None
    entries = _need(value, dict, "wave", "a dictionary")
    _known_keys(entries, "wave", ("width",))
    width = _need(entries.get("width"), int, "wave", "{width = N}")
    if not 1 <= width <= 1024 or width & (width - 1):
        raise DeclarationError(f"xpu.wave width must be a power of two up to 1024, found {width}")
    return width


def _reference(value: object) -> str | None:
    return None if value is None else _need(value, str, "reference", "@name, of a function")


def _backends(value: object, name: str) -> tuple[str, ...]:
    result = []
    for text in _strings(value, name):
        backend = BACKEND_ALIASES.get(text.lower(), text.lower())
        if backend not in BACKENDS:
            raise DeclarationError(
                f"xpu.{name}: backend '{text}' is not one of {', '.join(BACKENDS)}"
            )
        result.append(backend)
    return tuple(result)


def _members(values: dict[str, Any], kernel: str) -> tuple[Member, ...]:
    entries = _need(values.get("instantiate", []), list, "instantiate", "a list of dictionaries")
    cap = _need(
        values.get("instantiate_max", DEFAULT_INSTANTIATE_MAX), int, "instantiate_max", "an integer"
    )
    unique = list(dict.fromkeys(_member(entry) for entry in entries))
    if len(unique) > cap:
        raise DeclarationError(
            f"kernel '{kernel}' instantiates {len(unique)} members > {cap} (xpu.instantiate_max)"
        )
    return tuple(unique)


def _member(value: object) -> Member:
    entry = dict(_need(value, dict, "instantiate", "a list of dictionaries"))
    _known_keys(entry, "instantiate", (*TILE_PARAMETERS, "body", "backends"))
    body = entry.pop("body", None)
    backends = _backends(entry.pop("backends", []), "instantiate.backends")
    for key in ("m", "n", "k"):
        if key not in entry:
            raise DeclarationError(f"a member of xpu.instantiate lacks '{key}'")
    sizes = {k: _need(v, int, f"instantiate.{k}", "an integer") for k, v in entry.items()}
    tile = Tile(**sizes)
    check_tile(tile)
    if body is not None:
        _need(body, str, "instantiate.body", "the name of a body")
    return Member(tile=tile, body=body, backends=backends)


def _hold(cause: Any, value: object) -> Hold:
    entries = _need(value, dict, cause, "a dictionary")
    _known_keys(entries, cause, ("tracked", "backends", "members"))
    return Hold(
        cause=cause,
        tracked=_need(entries.get("tracked", ""), str, f"{cause}.tracked", "a string"),
        backends=_backends(entries.get("backends", []), f"{cause}.backends"),
        members=_strings(entries.get("members", []), f"{cause}.members"),
    )


def _check_held_members(holds: tuple[Hold, ...], members: tuple[Member, ...]) -> None:
    """A hold of a member that does not exist would never be noticed as stale."""
    known = [m.name for m in members]
    for hold in holds:
        for name in hold.members:
            if name.partition("/")[0] not in known:
                raise DeclarationError(
                    f"xpu.{hold.cause}.members: '{name}' is not one of {', '.join(known) or 'none'}"
                )
