"""IREE's wheel has no types for its binary MLIR bindings: every name in them is Any."""

from typing import Any

def __getattr__(name: str) -> Any: ...
