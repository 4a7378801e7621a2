"""Names that authors choose, and what they may be: they end up in IR, paths, and Python calls."""

from __future__ import annotations

import keyword
import re
from typing import Any

from dialects.errors import DeclarationError

from .ir import attribute_value, mlir, symbol

RESERVED_ARGUMENTS = ("workspace", "packed")  # buffers that the host functions add
LONGEST_NAME = 100


def shown(value: object) -> str:
    """A value in a message: quoted, on one line, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_identifier(name: object) -> bool:
    """A name that MLIR, our expressions and Python's keyword arguments all take."""
    return (
        isinstance(name, str)
        and name.isascii()
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and len(name) <= LONGEST_NAME
    )


def kernel_name(function: mlir.Operation, *, instance: bool = False) -> str:
    """The function's name, which becomes a folder of the pack and a name of host functions.

    An ``instance`` that a pass has made of a kernel may be longer.

    Raises:
        DeclarationError: it is no plain identifier, or too long.
    """
    name = symbol(function)
    plain = re.fullmatch(r"(?!__)[A-Za-z_]\w*", name, re.ASCII)
    if not plain or (len(name) > LONGEST_NAME and not instance):
        raise DeclarationError(
            f"a kernel's name must be a plain identifier of at most {LONGEST_NAME} characters that "
            "does not start with '__', "
            f"found {shown(name)}"
        )
    return name


def argument_names(function: mlir.Operation) -> dict[int, str]:
    """Names that ``xpu.name`` gives to arguments, by their number.

    Raises:
        DeclarationError: another ``xpu.*`` on an argument or result, or a name that cannot be used.
    """
    names: dict[int, str] = {}
    for number, given in _dictionaries(function, "arg_attrs"):
        for key, attribute in given.items():
            if key != "xpu.name":
                raise DeclarationError(f"unknown declaration '{key}' on an argument")
            name = attribute_value(attribute)
            if not is_identifier(name) or name in RESERVED_ARGUMENTS:
                raise DeclarationError(
                    f"xpu.name must be an identifier other than {', '.join(RESERVED_ARGUMENTS)}, "
                    f"found {shown(name)}"
                )
            if name in names.values():
                raise DeclarationError(f"xpu.name '{name}' is given to two arguments")
            names[number] = name
    for _, given in _dictionaries(function, "res_attrs"):
        for key in given:
            raise DeclarationError(f"unknown declaration '{key}' on a result")
    return names


def _dictionaries(function: mlir.Operation, name: str) -> list[tuple[int, dict[str, Any]]]:
    """The ``xpu.*`` attributes of each argument or result; those of others are not looked into."""
    if name not in function.attributes:
        return []
    result = []
    for number, attribute in enumerate(mlir.ArrayAttr(function.attributes[name])):
        named = mlir.DictAttr(attribute)
        try:
            keys = [named[i].name for i in range(len(named))]
        except (UnicodeDecodeError, RuntimeError):
            raise DeclarationError("the name of an attribute is no UTF-8 text") from None
        result.append((number, {k: named[k] for k in keys if k.startswith("xpu.")}))
    return result
