"""What only CUDA has, on a real card: two executors, events, peers; the rest is test_packs.py.

python3 -m pytest tests --device cuda --packs DIR [--full]
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from device_packs import Candidate, problems, sized
from dialects.facts import DeviceFacts
from runtime import Session, cli
from runtime.ceilings import bytes_a_second
from runtime.dtypes import dtype_of
from runtime.executors import EXECUTORS, Launchable, Memory, load, open_device
from runtime.facts import read_facts
from runtime.pack import Pack
from runtime.proof import make_case, run_case
from runtime.timer import KernelTimer

pytestmark = pytest.mark.device("cuda")
SOAK = 2000


@pytest.fixture(scope="module")
def facts() -> DeviceFacts:
    """Facts of the card."""
    return read_facts("cuda")


class Devices(dict[str, Memory]):
    """The card by executor, each opened when it is first asked for."""

    def __missing__(self, executor: Any) -> Memory:
        self[executor] = open_device("cuda", executor)
        return self[executor]


@pytest.fixture(scope="module")
def devices() -> Devices:
    """The card, once for each executor."""
    return Devices()


def loaded(device: Memory, candidate: Candidate) -> Launchable:
    """The candidate on a device."""
    return load(device, candidate.pack, candidate.kernel.kernel, candidate.record)


def test_both_executors_give_the_same_bits(
    given_candidate: Candidate, devices: Devices, facts: DeviceFacts
) -> None:
    """On normal floats, whose rounding would show another order of additions."""
    kernel = given_candidate.kernel
    codes = {e: loaded(devices[e], given_candidate) for e in EXECUTORS}
    for at in problems(given_candidate, facts):
        results = [
            run_case(devices[e], codes[e], make_case(devices[e], kernel, at, integers=False))
            for e in EXECUTORS
        ]
        assert results[0].tobytes() == results[1].tobytes(), at.text


@pytest.mark.full
def test_thousands_of_launches_give_the_same_bits(
    given_candidate: Candidate, devices: Devices
) -> None:
    device = devices["direct"]
    code = loaded(device, given_candidate)
    case = make_case(
        device, given_candidate.kernel, sized(given_candidate.kernel.dims), integers=False
    )
    first = run_case(device, code, case).tobytes()
    for turn in range(SOAK):
        assert run_case(device, code, case).tobytes() == first, turn


def test_a_choice_is_timed_by_the_device(given_pack: Pack, executor: Any) -> None:
    with Session(
        given_pack.path, device="cuda", executor=executor, tuning="first_use", budget_ms=60000
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
    from runtime.cuda.events import CudaEvents

    device = CudaDevice("cuda")
    events = CudaEvents(device)
    timer = KernelTimer(events.calibration)
    assert timer.scale == pytest.approx(1, abs=0.02)
    nbytes = 1 << 30
    space = device.allocate(nbytes)

    def fill(i: int) -> None:
        device.driver.call("cuMemsetD32Async", space.pointer, i, nbytes // 4, events.stream)

    found = timer.bracket(events.seconds(fill)).microseconds
    with device.current():
        samples = []
        for _ in range(5):
            device.synchronize(events.stream)
            begin = time.perf_counter()
            for i in range(20):
                fill(i)
            device.synchronize(events.stream)
            samples.append((time.perf_counter() - begin) / 20 * 1e6)
    assert found == pytest.approx(median(samples), rel=0.05)


def test_the_memory_has_no_rate_above_its_ceiling(facts: DeviceFacts) -> None:
    rate = bytes_a_second(facts)
    assert rate is not None
    assert 1e10 < rate < 2e13


def test_bench_compares_with_peers(
    given_pack: Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    for kernel in given_pack.manifest.kernels:
        shape = "x".join(map(str, sized(kernel.dims, (512, 512, 512)).sizes))
        data = tmp_path / f"{kernel.kernel}.json"
        code = cli.main(
            [
                "bench", str(given_pack.path), "--device", "cuda", "--all",
                "--kernel", kernel.kernel, "--shape", shape,
                "--against", "cublas", "--out", str(data), "--json",
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
