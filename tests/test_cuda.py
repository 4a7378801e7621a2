"""Every candidate of the packs given with ``--packs``, on a real card, by both executors.

python3 -m pytest tests --device cuda --packs DIR [--full]
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from device_packs import (
    Candidate,
    expected_of,
    find_candidates,
    find_packs,
    host_operands,
    padded_layouts,
    problems,
    runs,
    strides_by_name,
    wrong,
    wrong_when_strided,
)
from dialects.facts import DeviceFacts
from dialects.member import Problem
from runtime import Session, cli
from runtime.dtypes import dtype_of
from runtime.executors import EXECUTORS, Launchable, Memory, load, open_device
from runtime.facts import read_facts
from runtime.pack import Pack
from runtime.proof import make_case, run_case

pytestmark = pytest.mark.device("cuda")
SOAK = 2000
OVERHEAD_S = 20e-6
_SHAPE = (136, 264, 72)  # one that every body takes: all multiples of 8


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a candidate, or a pack."""
    folder = metafunc.config.getoption("--packs")
    packs = find_packs(Path(folder)) if folder else []
    if "candidate" in metafunc.fixturenames:
        found = find_candidates(packs, "cuda")
        metafunc.parametrize("candidate", found, ids=[c.id for c in found])
    if "pack" in metafunc.fixturenames:
        metafunc.parametrize("pack", packs, ids=[p.path.name for p in packs])


@pytest.fixture(scope="module")
def facts() -> DeviceFacts:
    """Facts of the card."""
    return read_facts("cuda")


@pytest.fixture(scope="module")
def devices() -> dict[str, Memory]:
    """The card, once for each executor."""
    return {executor: open_device("cuda", executor) for executor in EXECUTORS}


@pytest.fixture(scope="module")
def torch() -> Any:
    """Torch, where it is installed."""
    return pytest.importorskip("torch")


@pytest.fixture
def session(pack: Pack) -> Iterator[Session]:
    """A direct session on the default stream, as torch's."""
    with Session(pack.path, device="cuda", executor="direct", tuning="off") as opened:
        yield opened


def loaded(devices: dict[str, Memory], candidate: Candidate) -> dict[str, Launchable]:
    """The candidate, once for each executor."""
    name = candidate.kernel.kernel
    return {e: load(d, candidate.pack, name, candidate.record) for e, d in devices.items()}


def sized(dims: tuple[str, ...], mnk: tuple[int, int, int] = _SHAPE) -> Problem:
    """The problem of these sizes, three of them where the kernel has a batch."""
    return Problem(dims=dims, sizes=(*((3,) if len(dims) == 4 else ()), *mnk))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_candidate_is_exact_at_awkward_sizes(
    candidate: Candidate, executor: str, devices: dict[str, Memory], facts: DeviceFacts
) -> None:
    """Small integers on a poisoned output: tiles cut on every side, no K, all elements compared."""
    at = problems(candidate, facts)
    assert at
    code = loaded(devices, candidate)[executor]
    assert wrong(devices[executor], code, candidate.kernel, at) == []


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_candidate_leaves_gaps_between_rows_alone(
    candidate: Candidate, executor: str, devices: dict[str, Memory], facts: DeviceFacts
) -> None:
    code = loaded(devices, candidate)[executor]
    found, tried = [], 0
    for at in problems(candidate, facts):
        strides = strides_by_name(candidate.kernel, padded_layouts(candidate.kernel, at))
        if 0 in at.sizes or not runs(candidate, facts, at, strides):
            continue
        tried += 1
        found.append(wrong_when_strided(devices[executor], code, candidate.kernel, at))
    assert tried
    assert [text for text in found if text] == []


def test_both_executors_give_the_same_bits(
    candidate: Candidate, devices: dict[str, Memory], facts: DeviceFacts
) -> None:
    """On normal floats, whose rounding would show another order of additions."""
    codes = loaded(devices, candidate)
    for at in problems(candidate, facts):
        results = [
            run_case(device, codes[e], make_case(device, candidate.kernel, at, integers=False))
            for e, device in devices.items()
        ]
        assert results[0].tobytes() == results[1].tobytes(), at.text


@pytest.mark.full
def test_thousands_of_launches_give_the_same_bits(
    candidate: Candidate, devices: dict[str, Memory]
) -> None:
    device = devices["direct"]
    code = loaded(devices, candidate)["direct"]
    case = make_case(device, candidate.kernel, sized(candidate.kernel.dims), integers=False)
    first = run_case(device, code, case).tobytes()
    for turn in range(SOAK):
        assert run_case(device, code, case).tobytes() == first, turn


@pytest.mark.parametrize("executor", EXECUTORS)
def test_host_arrays_and_zero_sizes(pack: Pack, executor: Any) -> None:
    """Through the session: no row, no column, or no K."""
    with Session(pack.path, device="cuda", executor=executor, tuning="off") as session:
        for name in session.kernels:
            kernel = session.reference(name).entry
            for mnk in (_SHAPE, (37, 130, 15), (0, 8, 8), (8, 0, 8), (8, 8, 0)):
                operands = host_operands(kernel, sized(kernel.dims, mnk))
                expected = expected_of(kernel, operands)
                assert np.array_equal(session[name](*[o.copy() for o in operands]), expected), mnk


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
    at = sized(kernel.dims, (8, 8, 8))
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


def test_a_stream_of_the_callers_orders_the_call(pack: Pack, torch: Any) -> None:
    stream = torch.cuda.Stream()
    with Session(
        pack.path, device="cuda", executor="direct", stream=stream, tuning="off"
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


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_choice_is_timed_by_the_device(pack: Pack, executor: Any) -> None:
    with Session(
        pack.path, device="cuda", executor=executor, tuning="first_use", budget_ms=60000
    ) as session:
        for name in session.kernels:
            kernel = session.reference(name).entry
            choice = session.choose(name, *sized(kernel.dims, (512, 512, 512)).sizes)
            assert choice.failures == {}
            if choice.source == "timed":
                assert choice.timer == "device"
                assert all(0 < us < 1e6 for us in choice.medians.values())


def test_the_event_clock_agrees_with_the_hosts() -> None:
    """Calibrated to 1, and fills of a known length take as long by both."""
    from runtime.cuda.device import CudaDevice
    from runtime.cuda.timer import CudaTimer

    device = CudaDevice("cuda")
    timer = CudaTimer(device)
    assert timer.scale == pytest.approx(1, abs=0.02)
    nbytes = 1 << 30
    space = device.allocate(nbytes)

    def fill(i: int) -> None:
        device.driver.call("cuMemsetD32Async", space.pointer, i, nbytes // 4, timer.stream)

    found = timer.bracket(fill).microseconds
    with device.current():
        samples = []
        for _ in range(5):
            device.synchronize(timer.stream)
            begin = time.perf_counter()
            for i in range(20):
                fill(i)
            device.synchronize(timer.stream)
            samples.append((time.perf_counter() - begin) / 20 * 1e6)
    assert found == pytest.approx(median(samples), rel=0.05)


def test_the_memory_has_no_rate_above_its_ceiling(facts: DeviceFacts) -> None:
    from runtime.cuda.timer import bandwidth_ceiling

    ceiling = bandwidth_ceiling(facts, 1 << 30, cold=True)
    assert ceiling.kind == "bandwidth"
    assert 50 < ceiling.microseconds < 100_000


def test_bench_compares_with_peers(
    pack: Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str], torch: Any
) -> None:
    for kernel in pack.manifest.kernels:
        shape = "x".join(map(str, sized(kernel.dims, (512, 512, 512)).sizes))
        data = tmp_path / f"{kernel.kernel}.json"
        code = cli.main(
            [
                "bench", str(pack.path), "--device", "cuda", "--kernel", kernel.kernel, "--all",
                "--shape", shape, "--against", "cublas", "--out", str(data), "--json",
            ]
        )  # fmt: skip
        assert code == 0, capsys.readouterr().err
        assert data.is_file()
        text = capsys.readouterr().out
        assert '"timer": "device"' in text


def test_element_types_have_names_in_torch() -> None:
    """What a session exchanges with torch is what numpy calls by the same types."""
    exchange = importlib.import_module("runtime.cuda.exchange")
    assert all(dtype_of(name).itemsize for name in exchange.TORCH_NAMES)
