"""JSON of our frozen dataclasses: one encoder, one strict decoder that names the offending path.

Field order is the order of declaration, so that equal values give equal bytes.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from functools import lru_cache
from typing import Any, TypeVar

from .errors import FormatError

T = TypeVar("T")


def encode(value: object) -> Any:
    """The JSON value of a dataclass, tuple, mapping or scalar."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if isinstance(value, dict):
        return {str(k): encode(v) for k, v in value.items()}
    return value


def dumps(value: object) -> str:
    """Deterministic, human-readable JSON text with a final newline."""
    return json.dumps(encode(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def loads(text: str | bytes, *, where: str) -> Any:
    """Parse JSON text; anything malformed is a :class:`FormatError` that names ``where``."""
    try:
        value = json.loads(text)
        # Refuses what dumps could not write again: infinities and half surrogate pairs.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not valid JSON: {error}", where=where) from None


def decode(cls: type[T], value: Any, *, where: str, path: str = "") -> T:
    """Build a ``cls`` from a JSON value. A missing key whose value may be null is null.

    Raises:
        FormatError: a missing or unknown key, or a value of another type, with its path.
    """
    if not isinstance(value, dict):
        raise FormatError(_say(path, "an object", value), where=where)
    hints, fields = _hints(cls)
    for key in value:
        if key not in hints:
            raise FormatError(f"unknown key '{_join(path, key)}'", where=where)
    arguments = {}
    for name, field in fields.items():
        if name in value:
            arguments[name] = _decode(hints[name], value[name], where, _join(path, name))
        elif type(None) in typing.get_args(hints[name]):
            arguments[name] = None
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise FormatError(f"key '{_join(path, name)}' is missing", where=where)
    return cls(**arguments)


@lru_cache(maxsize=256)
def _hints(cls: type) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    return typing.get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _say(path: str, wanted: str, value: object) -> str:
    return f"'{path}' must be {wanted}, found {json.dumps(value, default=str)[:60]}"


def _decode(hint: Any, value: Any, where: str, path: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        (inner,) = [a for a in args if a is not type(None)]
        return _decode(inner, value, where, path)
    if origin is typing.Literal:
        if value not in args:
            raise FormatError(_say(path, f"one of {list(args)}", value), where=where)
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise FormatError(_say(path, "a list", value), where=where)
        if args[-1] is not Ellipsis and len(value) != len(args):
            raise FormatError(_say(path, f"a list of {len(args)}", value), where=where)
        return tuple(_decode(args[0], v, where, f"{path}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise FormatError(_say(path, "an object", value), where=where)
        return {k: _decode(args[1], v, where, _join(path, k)) for k, v in value.items()}
    if dataclasses.is_dataclass(hint):
        return decode(typing.cast(type, hint), value, where=where, path=path)
    return _scalar(hint, value, where, path)


def _scalar(hint: Any, value: Any, where: str, path: str) -> Any:
    if hint is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    if type(value) is not hint:
        wanted = {int: "an integer", str: "a string", bool: "true or false", float: "a number"}
        raise FormatError(_say(path, wanted.get(hint, str(hint)), value), where=where)
    return value
