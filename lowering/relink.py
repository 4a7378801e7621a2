"""A module whose device code comes from files instead of from IR.

Device code that had to be amended after the back end wrote it goes back into a loadable module: the
same host functions and grids, with the amended objects in place of the kernels' bodies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dialects.errors import CompileError

_TARGET = re.compile(r"#hal\.executable\.target<")
_SOURCE = re.compile(r"^(\s*hal\.executable\.source private @(\w+)) \{$")


def with_objects(text: str, objects: Mapping[str, str], *, where: str) -> str:
    """The module with every executable's body replaced by the file that ``objects`` names for it.

    Raises:
        CompileError: no target, or other executables than those that have an object.
    """
    target = _target(text, where)
    lines, skipping, executables = [], "", set()
    for line in text.splitlines():
        if skipping:
            skipping = "" if line == skipping else skipping
            continue
        if line.strip() == "builtin.module {" and executables:
            skipping = line[: len(line) - len(line.lstrip())] + "}"
            continue
        found = _SOURCE.match(line)
        if found:
            executables.add(found[2])
            path = objects.get(found[2], "")
            attribute = (
                f"#hal.executable.objects<{{{target} = "
                f'[#hal.executable.object<{{path = "{path}"}}>]}}>'
            )
            line = f"{found[1]} <{{objects = {attribute}}}> {{"
        lines.append(line)
    if executables != set(objects) or skipping:
        raise CompileError(
            f"cannot relink executables {sorted(executables)} with objects of {sorted(objects)}",
            where=where,
        )
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
