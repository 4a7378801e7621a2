"""Peers on a CUDA device through torch: the vendor's library, and our Triton kernel.

A peer computes exactly what the kernel does, with the same operand and result types; where torch
has no such product the peer is absent.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dialects.operands import Contraction
from dialects.types import element_type

from ..dtypes import dtype_of
from .exchange import TORCH_NAMES

Product = Callable[[], Any]
"""Enqueues one product on torch's current stream and gives the result's tensor."""


def torch_module() -> Any | None:
    """Torch, where it is there and sees a CUDA device."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def tensors(torch: Any, host: Mapping[str, np.ndarray], place: int) -> dict[str, Any]:
    """Host arrays on a device; types that numpy does not know travel as bytes."""
    result = {}
    for name, array in host.items():
        raw = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy())
        dtype = getattr(torch, TORCH_NAMES[_name(array.dtype)])
        result[name] = raw.to(f"cuda:{place}").view(dtype).reshape(array.shape)
    return result


def _name(dtype: np.dtype) -> str:
    return next(n for n in TORCH_NAMES if dtype_of(n) == dtype)


def as_array(tensor: Any, type_: str) -> np.ndarray:
    """A host copy of a tensor."""
    flat = tensor.contiguous().cpu().reshape(-1)
    raw = flat.view(importlib.import_module("torch").uint8).numpy()
    return raw.view(dtype_of(type_)).reshape(tuple(tensor.shape))


def cublas_products(
    torch: Any, contraction: Contraction, held: Mapping[str, Any]
) -> Sequence[Product]:
    """The vendor library's product, in the ways that releases of torch have had, best first."""
    c = contraction
    if c.a.type != c.b.type:
        return ()
    a, b, out = _operands(torch, c, held)
    same, single = c.a.type == c.c.type, c.batch is None
    if any(s.op != "cast" for s in c.epilogue):
        return _with_epilogue(torch, c, held, a, b, out) if same and single else ()
    if c.accumulate:
        return (lambda: out.addmm_(a, b),) if same and single else ()
    if c.a.type.startswith("f8"):
        return _scaled(torch, a, b, out) if single else ()
    if element_type(c.a.type).kind != "float":
        listed = c.a.type == "i8" and c.c.type == "i32" and single
        return (lambda: torch._int_mm(a, b, out=out), lambda: torch._int_mm(a, b)) if listed else ()
    product = torch.mm if single else torch.bmm
    if same:
        return (lambda: product(a, b, out=out),)
    if c.c.type != "f32":
        return ()
    wide = torch.float32
    return (
        lambda: product(a, b, out_dtype=wide, out=out),
        lambda: product(a, b, out_dtype=wide),
    )


def _operands(torch: Any, c: Contraction, held: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """A as [..., M, K], B as [..., K, N], and an empty result."""
    a, b = held[c.a.name], held[c.b.name]
    a = a.transpose(-1, -2) if c.transposed_a else a
    b = b.transpose(-1, -2) if c.transposed_b else b
    dtype = getattr(torch, TORCH_NAMES[c.c.type])
    return a, b, torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=dtype, device=a.device)


def _with_epilogue(
    torch: Any, c: Contraction, held: Mapping[str, Any], a: Any, b: Any, out: Any
) -> Sequence[Product]:
    """A row added, then perhaps the positive part: what the library does within its kernel."""
    first, *rest = (s for s in c.epilogue if s.op != "cast")
    extra = next((o for o in c.extras if o.name == first.operand), None)
    if first.op != "add" or extra is None or extra.dims != (c.n,) or extra.type != c.c.type:
        return ()
    bias = held[extra.name]
    if not rest:
        return (lambda: torch.addmm(bias, a, b, out=out),)
    if [(s.op, s.operand, s.constant) for s in rest] != [("max", None, 0.0)]:
        return ()
    return (
        lambda: torch._addmm_activation(bias, a, b, out=out),
        lambda: torch.relu_(torch.addmm(bias, a, b, out=out)),
    )


def _scaled(torch: Any, a: Any, b: Any, out: Any) -> Sequence[Product]:
    """The product of 8-bit floats, which torch has with scales only: they are 1."""
    one = torch.ones((), dtype=torch.float32, device=a.device)
    columns = b.t().contiguous().t()  # the library takes B by columns only
    options = {"scale_a": one, "scale_b": one, "out_dtype": out.dtype}
    return (
        lambda: torch._scaled_mm(a, columns, **options, out=out),
        lambda: torch._scaled_mm(a, columns, **options),
    )


def triton_products(
    torch: Any, contraction: Contraction, held: Mapping[str, Any]
) -> Sequence[Product]:
    """Our Triton kernel, tuned by its first call; nothing where Triton is not or cannot do it."""
    steps = [s.op for s in contraction.epilogue]
    if contraction.extras or steps not in ([], ["cast"]) or contraction.accumulate:
        return ()  # it rounds its sums to the type of C, and does no more
    try:
        importlib.import_module("triton")
    except ImportError:
        return ()
    from .triton_matmul import matmul, takes  # the module is written in Triton's language

    if not takes(contraction):
        return ()
    a, b, out = _operands(torch, contraction, held)
    integers = element_type(contraction.accumulator).kind != "float"
    return (lambda: matmul(a, b, out, integers=integers),)


def working_product(torch: Any, ways: Sequence[Product]) -> tuple[Product | None, str]:
    """The first way that this torch runs, or None with what each of them said."""
    reasons = []
    for way in ways:
        try:
            way()
            torch.cuda.synchronize()
        except Exception as error:  # torch's and Triton's own kinds, of any release
            reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        else:
            return way, ""
    return None, "; ".join(reasons) or "has no such product"


PRODUCTS: dict[str, Callable[[Any, Contraction, Mapping[str, Any]], Sequence[Product]]] = {
    "cublas": cublas_products,
    "triton": triton_products,
}
"""Peers that this module makes, by name."""
