"""A module whose device code comes from a file instead of from IR.

Device code that had to be amended after the back end wrote it goes back into a loadable module: the
same host functions and grid, with the amended object in place of the kernel's body.
"""

from __future__ import annotations

import re

from dialects.errors import CompileError

OBJECT_NAME = "kernel.spv"
_TARGET = re.compile(r"#hal\.executable\.target<")
_SOURCE = re.compile(r"^(\s*hal\.executable\.source private @\w+) \{$")


def with_object(text: str, *, where: str) -> str:
    """The module with every executable's body replaced by :data:`OBJECT_NAME`.

    Raises:
        CompileError: the module does not have exactly one executable and one target.
    """
    target = _target(text, where)
    attribute = (
        f"#hal.executable.objects<{{{target} = "
        f'[#hal.executable.object<{{path = "{OBJECT_NAME}"}}>]}}>'
    )
    lines, skipping, executables = [], "", 0
    for line in text.splitlines():
        if skipping:
            skipping = "" if line == skipping else skipping
            continue
        if line.strip() == "builtin.module {" and executables:
            skipping = line[: len(line) - len(line.lstrip())] + "}"
            continue
        found = _SOURCE.match(line)
        executables += bool(found)
        lines.append(f"{found[1]} <{{objects = {attribute}}}> {{" if found else line)
    if executables != 1 or skipping:
        raise CompileError(f"cannot relink a module of {executables} executables", where=where)
    return "\n".join(lines) + "\n"


def _target(text: str, where: str) -> str:
    """The text of the one ``#hal.executable.target`` attribute, brackets balanced."""
    found = _TARGET.search(text)
    if found is None:
        raise CompileError("cannot relink a module without a target", where=where)
    depth = 0
    for position in range(found.end() - 1, len(text)):
        depth += {"<": 1, ">": -1}.get(text[position], 0)
        if depth == 0:
            return text[found.start() : position + 1]
    raise CompileError("the target attribute does not end", where=where)
