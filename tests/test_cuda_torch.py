"""Direct sessions beside torch on a real card: tensors in place, streams, graphs, the call's cost.

python3 -m pytest tests --device cuda --packs DIR
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pytest

from device_packs import expected_of, host_operands, sized
from runtime import Session
from runtime.pack import Pack

pytestmark = pytest.mark.device("cuda")
OVERHEAD_S = 20e-6


@pytest.fixture(scope="module")
def torch() -> Any:
    """Torch, where it is installed."""
    return pytest.importorskip("torch")


@pytest.fixture
def session(given_pack: Pack) -> Iterator[Session]:
    """A direct session on the default stream, as torch's."""
    with Session(given_pack.path, device="cuda", executor="direct", tuning="off") as opened:
        yield opened


class ByDlpack:
    """A tensor that can only be taken over through DLPack."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


class ByInterface:
    """A tensor that can only be taken over through the CUDA array interface."""

    def __init__(self, tensor: Any) -> None:
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        self._tensor = tensor


# How an array is handed over, and the types that torch cannot hand over so.
WAYS: dict[str, tuple[Any, set[str]]] = {
    "torch": (lambda tensor: tensor, set()),
    "dlpack": (ByDlpack, {"f8e4m3", "f8e5m2"}),
    "interface": (ByInterface, {"bf16", "f8e4m3", "f8e5m2"}),
}


def on_card(torch: Any, array: np.ndarray) -> Any:
    """A tensor on the card with the array's content, of types that numpy does not know too."""
    peers = importlib.import_module("runtime.cuda.peers")
    return peers.tensors(torch, {"x": array}, 0)["x"]


def on_host(tensor: Any, dtype: np.dtype) -> np.ndarray:
    """The content of a tensor."""
    torch = importlib.import_module("torch")
    raw = tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return raw.view(dtype).reshape(tuple(tensor.shape))


@pytest.mark.parametrize("way", WAYS)
def test_arrays_of_torch_are_used_in_place(session: Session, torch: Any, way: str) -> None:
    wrap, lacking = WAYS[way]
    for name in session.kernels:
        kernel = session.reference(name).entry
        if lacking & {a.type for a in kernel.args}:
            continue
        operands = host_operands(kernel, sized(kernel.dims))
        expected = expected_of(kernel, operands)
        held = [on_card(torch, o) for o in operands]
        adds = kernel.result.mode == "readwrite"
        if not adds:
            held.append(on_card(torch, np.full_like(expected, 111)))
        given = [wrap(tensor) for tensor in held]
        for _ in range(1 if adds else 2):  # the long way, then the short one
            assert session[name](*given[:-1], out=given[-1]) is given[-1]
        torch.cuda.synchronize()
        assert np.array_equal(on_host(held[-1], expected.dtype), expected)
        if way == "torch" and not adds:
            made = session[name](*held[:-1])
            assert np.array_equal(on_host(made, expected.dtype), expected)


def test_a_misaligned_window_is_right(session: Session, torch: Any) -> None:
    """One that starts an element late: what copies in whole units is not taken for it."""
    for name in session.kernels:
        kernel = session.reference(name).entry
        if kernel.result.mode == "readwrite" or len(kernel.dims) != 3:
            continue
        operands = host_operands(kernel, sized(kernel.dims))
        held = [on_card(torch, o) for o in operands]
        wide = torch.zeros((held[0].shape[0], held[0].shape[1] + 9), device="cuda").to(
            held[0].dtype
        )
        late = wide[:, 1 : held[0].shape[1] + 1]
        late.copy_(held[0])
        result = session[name](late, *held[1:])
        expected = expected_of(kernel, operands)
        assert np.array_equal(on_host(result, expected.dtype), expected)


def test_a_call_is_captured_and_replayed(session: Session, torch: Any) -> None:
    for name in session.kernels:
        kernel = session.reference(name).entry
        if kernel.result.mode == "readwrite":
            continue
        first, second = (host_operands(kernel, sized(kernel.dims), seed) for seed in (1, 2))
        held = [on_card(torch, o) for o in first]
        out = session[name](*held)
        stream = torch.cuda.Stream()
        # A first call on a stream makes its workspace, which a capture cannot.
        session[name](*held, out=out, stream=stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            session[name](*held, out=out, stream=torch.cuda.current_stream())
        for operands in (second, first):
            for tensor, array in zip(held, operands, strict=True):
                tensor.copy_(on_card(torch, array))
            out.zero_()
            graph.replay()
            torch.cuda.synchronize()
            expected = expected_of(kernel, operands)
            assert np.array_equal(on_host(out, expected.dtype), expected)


def test_a_warm_call_costs_little_more_than_its_launch(
    session: Session, torch: Any, record_property: Any
) -> None:
    """At most 20 us over the driver's own call, from torch tensors to the launch."""
    name = session.kernels[0]
    kernel = session.reference(name).entry
    at = sized(kernel.dims, (8, 8, 32))
    held = [on_card(torch, o) for o in host_operands(kernel, at)]
    out = session[name](*held[: len(kernel.inputs)], *held[len(kernel.inputs) :])
    call: Any = session[name]
    inputs = held[: len(kernel.inputs)]
    call(*inputs, out=out)
    (warm,) = [w for w in call._warm.values() if len(w.spans) == len(kernel.args)][-1:]
    (bound,) = warm.bound._stages[:1]

    def seconds(function: Any) -> float:
        samples = []
        for _ in range(30):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(50):
                function()
            samples.append((time.perf_counter() - begin) / 50)
        return median(samples)

    whole = seconds(lambda: call(*inputs, out=out))
    bare = seconds(lambda: bound.start(0, bound.parameters, 0))
    record_property("whole_us", round(whole * 1e6, 2))
    record_property("bare_us", round(bare * 1e6, 2))
    assert whole - bare <= OVERHEAD_S


def test_a_stream_of_the_callers_orders_the_call(given_pack: Pack, torch: Any) -> None:
    stream = torch.cuda.Stream()
    with Session(
        given_pack.path, device="cuda", executor="direct", stream=stream, tuning="off"
    ) as session:
        for name in session.kernels:
            kernel = session.reference(name).entry
            if kernel.result.mode == "readwrite":
                continue
            operands = host_operands(kernel, sized(kernel.dims))
            with torch.cuda.stream(stream):
                held = [on_card(torch, o) for o in operands]
                result = session[name](*held)
                result = result.clone()  # behind the kernel, on its stream
            stream.synchronize()
            expected = expected_of(kernel, operands)
            assert np.array_equal(on_host(result, expected.dtype), expected)
