"""Element types by the names the project uses everywhere: manifests, messages, declarations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import UnsupportedError

Kind = Literal["float", "signed", "unsigned"]


@dataclass(frozen=True, kw_only=True)
class ElementType:
    """A scalar type. ``mlir`` is its spelling in IR (MLIR integers here are signless)."""

    name: str
    bits: int
    kind: Kind
    mlir: str

    @property
    def bytes(self) -> int:
        """Storage size in bytes."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


ELEMENT_TYPES = (
    ElementType(name="f64", bits=64, kind="float", mlir="f64"),
    ElementType(name="f32", bits=32, kind="float", mlir="f32"),
    ElementType(name="f16", bits=16, kind="float", mlir="f16"),
    ElementType(name="bf16", bits=16, kind="float", mlir="bf16"),
    ElementType(name="f8e4m3", bits=8, kind="float", mlir="f8E4M3FN"),
    ElementType(name="f8e5m2", bits=8, kind="float", mlir="f8E5M2"),
    ElementType(name="i32", bits=32, kind="signed", mlir="i32"),
    ElementType(name="u32", bits=32, kind="unsigned", mlir="i32"),
    ElementType(name="i16", bits=16, kind="signed", mlir="i16"),
    ElementType(name="i8", bits=8, kind="signed", mlir="i8"),
    ElementType(name="u8", bits=8, kind="unsigned", mlir="i8"),
)
_BY_NAME = {t.name: t for t in ELEMENT_TYPES}


def element_type(name: str, *, where: str | None = None) -> ElementType:
    """The type of that name.

    Raises:
        UnsupportedError: an unknown name, with the names that work.
    """
    if name not in _BY_NAME:
        raise UnsupportedError(
            f"element type '{name}' is not one of {', '.join(_BY_NAME)}", where=where
        )
    return _BY_NAME[name]


def signless(name: str) -> str:
    """A sum's type without its sign: 32-bit integers wrap alike, and drivers name either."""
    return "i32" if name == "u32" else name
