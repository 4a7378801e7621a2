"""Which configuration the back end really applied: what it was asked is only a wish.

It drops a lowering config without a word in several cases, such as an operation that was reshaped
on the way.
"""

from __future__ import annotations

from dialects.errors import CompileError

from ..ir import context, operations, parse_module

Applied = tuple[str, str]  # translation info, lowering config


def applied_configs(text: str, *, where: str) -> list[Applied]:
    """The configurations in a module that was dumped once they are final."""
    with context() as ctx:
        module = parse_module(text, where, ctx)
        found, translation = [], ""
        for op in operations(module.operation):
            if op.name == "func.func" and "translation_info" in op.attributes:
                translation = str(op.attributes["translation_info"])
            if "lowering_config" in op.attributes:
                found.append((translation, str(op.attributes["lowering_config"])))
        return found


def requested_config(compilation_info: str, *, where: str) -> Applied:
    """The same of a ``#iree_codegen.compilation_info``, as the compiler prints it."""
    with context() as ctx:
        # Put into a module of its own, so that the compiler's own spelling comes back.
        head, _, translation = compilation_info.partition(", translation_info = ")
        config = head.partition("lowering_config = ")[2]
        module = parse_module(
            f"module attributes {{x.t = {translation.removesuffix('>')}, x.c = {config}}} {{}}",
            where,
            ctx,
        )
        return str(module.operation.attributes["x.t"]), str(module.operation.attributes["x.c"])


def check_applied(compilation_info: str, dumps: list[str], *, where: str) -> None:
    """Refuse an artifact whose kernel was not made as it was asked for.

    Raises:
        CompileError: no kernel has the configuration, with what was applied instead.
    """
    wanted = requested_config(compilation_info, where=where)
    found = [pair for text in dumps for pair in applied_configs(text, where=where)]
    if not found or any(pair != wanted for pair in found):
        applied = found[0] if found else "none"
        raise CompileError(
            f"the compiler dropped the configuration: applied {applied}, required {wanted}",
            where=where,
        )
