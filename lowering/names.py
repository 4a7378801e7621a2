"""Names that authors choose, and what they may be: they end up in IR, paths, and Python calls."""

from __future__ import annotations

import keyword
import re

from dialects.errors import DeclarationError

from .ir import mlir, symbol, value_at

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

    An ``instance`` that a pass has made of a kernel is longer, and a kernel may be called ``_``.

    Raises:
        DeclarationError: it is no plain identifier, or too long.
    """
    name = symbol(function)
    plain = re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII)
    ours = name.startswith("__") or len(name) > LONGEST_NAME
    if not plain or (ours and not instance):
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
    for number, dictionary in enumerate(_dictionaries(function, "arg_attrs")):
        given = _declared(dictionary)
        for key in given:
            if key != "xpu.name":
                raise DeclarationError(f"unknown declaration '{key}' on an argument")
            name = value_at(dictionary, key)
            if not is_identifier(name) or name in RESERVED_ARGUMENTS:
                raise DeclarationError(
                    f"xpu.name must be an identifier other than {', '.join(RESERVED_ARGUMENTS)}, "
                    f"found {shown(name)}"
                )
            if name in names.values():
                raise DeclarationError(f"xpu.name '{name}' is given to two arguments")
            names[number] = name
    for dictionary in _dictionaries(function, "res_attrs"):
        for key in _declared(dictionary):
            raise DeclarationError(f"unknown declaration '{key}' on a result")
    return names


def _dictionaries(function: mlir.Operation, name: str) -> list[mlir.DictAttr]:
    """The attributes of each argument or result."""
    if name not in function.attributes:
        return []
    return [mlir.DictAttr(a) for a in mlir.ArrayAttr(function.attributes[name])]


def _declared(dictionary: mlir.DictAttr) -> list[str]:
    """The names that are ours; values of others are not looked into."""
    names = [dictionary[i].name for i in range(len(dictionary))]
    return [n for n in names if n.startswith("xpu.")]
