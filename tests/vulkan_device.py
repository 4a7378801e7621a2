"""The Vulkan device that tests run on, asked of the same driver layer that the runtime uses.

Run as a script, it prints the device's name and fails when there is none.
"""

from __future__ import annotations

import functools
import sys

from iree.runtime import get_driver


@functools.cache
def vulkan_device() -> str | None:
    """The name of the first Vulkan device, or None."""
    try:
        devices = get_driver("vulkan").query_available_devices()
    except (RuntimeError, ValueError):
        return None  # no loader, or a loader without a driver
    return devices[0]["name"] if devices else None


if __name__ == "__main__":
    name = vulkan_device()
    if name is None:
        sys.exit("no Vulkan device")
    print(name)
