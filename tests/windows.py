"""Buffers that are parts of larger ones, so that what lies around an operand is known.

IREE's bindings cannot make one, a module of its virtual machine can. It is compiled where there is
a compiler and travels with the packs of ``--packs``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from runtime.executors import Memory

FILE = "windows.vmfb"
_SOURCE = """
vm.module @windows {
  vm.import private @hal.buffer.subspan(%buffer : !vm.ref<!hal.buffer>, %start : i64,
                                        %length : i64) -> !vm.ref<!hal.buffer>
  vm.func private @window(%buffer: !vm.ref<!hal.buffer>, %start: i64,
                          %length: i64) -> !vm.ref<!hal.buffer> {
    %part = vm.call @hal.buffer.subspan(%buffer, %start, %length)
        : (!vm.ref<!hal.buffer>, i64, i64) -> !vm.ref<!hal.buffer>
    vm.return %part : !vm.ref<!hal.buffer>
  }
  vm.export @window
}
"""


def windows_module(packs: Path | None = None) -> bytes:
    """The module beside the packs, or compiled here."""
    if packs is not None:
        return (packs / FILE).read_bytes()
    tools: Any = importlib.import_module("iree.compiler.tools")
    return tools.compile_str(_SOURCE, extra_args=["--compile-mode=vm"])


class Windows:
    """Parts of the buffers of one device."""

    def __init__(self, device: Memory, module: bytes) -> None:
        from runtime.device import Device

        self.device = device
        if isinstance(device, Device):
            import iree.runtime as rt

            loaded = rt.VmModule.copy_buffer(device.instance, module)
            self._context = rt.VmContext(device.instance, [device.hal_module, loaded])
            self._function: Any = loaded.lookup_function("window")

    def part(self, buffer: Any, start: int, nbytes: int) -> Any:
        """The bytes of a buffer from ``start`` on; the whole is kept alive."""
        from runtime.cuda.device import CudaBuffer

        if isinstance(buffer, CudaBuffer):
            return CudaBuffer(buffer.pointer + start, nbytes, buffer)
        import iree.runtime as rt

        arguments, results = rt.VmVariantList(3), rt.VmVariantList(1)
        arguments.push_ref(buffer)
        arguments.push_int(start)
        arguments.push_int(nbytes)
        self._context.invoke(self._function, arguments, results)
        return results.get_as_object(0, rt.HalBuffer)
