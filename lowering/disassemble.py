"""The text of a record's device code, as far down as the tools at hand reach."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dialects.errors import CompileError
from dialects.manifest import Record

from .artifacts.assembler import assemble
from .children import run_child
from .compile import DEADLINE_S

FindTool = Callable[[str], Path | None]
_DISASSEMBLERS = {  # by the name's ending: what the text is, and the tools that write it
    ".spv": ("spirv", (("spirv-dis", ("--no-color",)),)),
    ".hsaco": ("isa", (("llvm-objdump", ("-d",)),)),
    ".so": ("isa", (("llvm-objdump", ("-d",)), ("objdump", ("-d",)))),
}
_CUBIN = ("sass", (("nvdisasm", ("-c",)), ("cuobjdump", ("-sass",))))


@dataclass(frozen=True, kw_only=True)
class Listing:
    """One level of a code object, ``ptx``, ``sass``, ``isa`` or ``spirv``.

    ``text`` is None where it cannot be had, and ``absent`` says why.
    """

    level: str
    text: str | None = None
    absent: str | None = None


def listings(record: Record, read: Callable[[str], bytes], find_tool: FindTool) -> list[Listing]:
    """Every level of a record's code; ``read`` gives the content of a file of its pack."""
    files = record.files
    if files is None or files.code_object is None:
        why = record.refused.message if record.refused else "the record has no code"
        return [Listing(level="code", absent=why)]
    code, suffix = read(files.code_object), Path(files.code_object).suffix
    if suffix == ".ptx":
        ptx = Listing(level="ptx", text=code.decode(errors="replace"))
        return [ptx, _sass(code, record, find_tool)]
    if files.assembly is not None:
        return [Listing(level="isa", text=read(files.assembly).decode(errors="replace"))]
    level, tools = _DISASSEMBLERS[suffix]
    return [_disassembled(code, level, tools, find_tool)]


def _sass(ptx: bytes, record: Record, find_tool: FindTool) -> Listing:
    level, tools = _CUBIN
    assembler = find_tool("ptxas")
    if assembler is None:
        return Listing(level=level, absent="no assembler (ptxas) is at hand")
    isa = record.identity.isa or record.identity.target.partition(":")[2]
    try:
        made = assemble(ptx, isa, assembler, DEADLINE_S, where=record.full_name)
    except CompileError as error:
        return Listing(level=level, absent=error.message)
    if made is None:
        return Listing(level=level, absent=f"the assembler is too old for {isa}")
    return _disassembled(made.cubin, level, tools, find_tool)


def _disassembled(
    code: bytes, level: str, tools: tuple[tuple[str, tuple[str, ...]], ...], find_tool: FindTool
) -> Listing:
    for name, options in tools:
        tool = find_tool(name)
        if tool is None:
            continue
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            file = Path(folder) / "code"
            file.write_bytes(code)
            command = [str(tool), *options, str(file)]
            try:
                ended = run_child(command, Path(folder), DEADLINE_S, name, where="")
            except CompileError as error:
                return Listing(level=level, absent=error.message)
        if ended.code == 0:
            return Listing(level=level, text=ended.output.decode(errors="replace"))
        said = ended.text.strip().splitlines() or [f"code {ended.code}"]
        return Listing(level=level, absent=f"{name} failed: {said[0][:200]}")
    names = " or ".join(name for name, _ in tools)
    return Listing(level=level, absent=f"no disassembler ({names}) is at hand")
