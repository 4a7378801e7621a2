"""Asks NVIDIA's assembler what a PTX module takes: registers, stack, spills, and its machine code.

The assembler is optional: it comes with the CUDA toolkit or with the package ``nvidia-cuda-nvcc``.
Nothing is invented in its absence.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dialects.errors import CompileError

from ..children import run_child

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# What an assembler says of a module that is only newer than itself.
_TOO_OLD = re.compile(r"Unsupported \.version|not defined for option 'gpu-name'|is not supported")


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """What the assembler said of one kernel, in bytes and registers a thread.

    What is spilled is the most that any kernel of the module spills.
    """

    registers: int
    frame_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    cubin: bytes

    @property
    def spill_bytes(self) -> int:
        """The stack frame when registers were spilled into it.

        A frame without spills belongs to an array that is indexed at run time.
        """
        return self.frame_bytes if self.spill_store_bytes or self.spill_load_bytes else 0


def assemble(
    ptx: bytes,
    isa: str,
    assembler: Path,
    deadline_s: float,
    *,
    where: str,
    entry: str | None = None,
) -> Assembled | None:
    """Assemble one module; None where the assembler is too old to know its ISA or version.

    Raises:
        CompileError: the module is wrong, or the assembler cannot be run.
        DeadlineError: it ran past the deadline.
    """
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        source, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_bytes(ptx)
        command = [str(assembler), "-v", f"-arch={isa}", "-o", str(cubin), str(source)]
        result = run_child(command, Path(folder), deadline_s, "the assembler", where=where)
        if result.code:
            if _TOO_OLD.search(result.text):
                return None
            lines = [line for line in result.text.splitlines() if "error" in line.lower()]
            reason = lines[0].strip() if lines else f"code {result.code}"
            raise CompileError(f"the assembler refused the module: {reason[:400]}", where=where)
        return _assembled(result.text, cubin.read_bytes(), entry, where)


def _assembled(text: str, cubin: bytes, entry: str | None, where: str) -> Assembled:
    _, *rest = _ENTRY.split(text)
    said = dict(zip(rest[::2], rest[1::2], strict=True)) or {"": text}
    mine = said.get(entry or "", next(iter(said.values())))
    used, frames = _USED.search(mine), [f for part in said.values() if (f := _STACK.search(part))]
    if used is None or not frames:
        raise CompileError("the assembler did not say what the kernel takes", where=where)
    frame = max(frames, key=lambda f: int(f[2]) + int(f[3]))
    return Assembled(
        registers=int(used[1]),
        static_shared_bytes=int(used[2] or 0),
        frame_bytes=int(frame[1]),
        spill_store_bytes=int(frame[2]),
        spill_load_bytes=int(frame[3]),
        cubin=cubin,
    )
