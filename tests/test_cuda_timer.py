"""The timer on CUDA's events, its calibration and its ceilings, on a made-up machine."""

from __future__ import annotations

import pytest

from dialects.errors import DeviceError
from dialects.facts import DeviceFacts
from fake_cuda import FakeCuda
from runtime.cuda.device import CudaDevice
from runtime.cuda.driver import Driver
from runtime.cuda.timer import CudaTimer, bandwidth_ceiling, scale_of
from runtime.timer import BRACKET_LAUNCHES

FACTS = DeviceFacts(backend="cuda", memory_clock_khz=3201000, memory_bus_bits=6144, l2_bytes=1000)


def timer(cuda: FakeCuda) -> CudaTimer:
    """A timer on the made-up machine."""
    return CudaTimer(CudaDevice("cuda", driver=Driver(cuda)), cuda.clock)


def kernel(cuda: FakeCuda, made: CudaTimer, *, host_s: float = 0.0) -> list[int]:
    """Something to time: which launches were asked for; ``host_s`` is what one costs the host."""
    asked: list[int] = []

    def enqueue(i: int) -> None:
        asked.append(i)
        cuda.host_s += host_s
        cuda._work(cuda.kernel_s)

    made.enqueue = enqueue  # type: ignore[attr-defined]
    return asked


@pytest.mark.parametrize(
    ("rate", "scale"), [(1.0, 1.0), (1.003, 1.0), (0.997, 1.0), (1.25, 0.8), (0.6, 1 / 0.6)]
)
def test_the_event_clock_is_calibrated(rate: float, scale: float) -> None:
    """A clock that runs at another rate gives the same times; within half a per cent it is ours."""
    cuda = FakeCuda()
    cuda.clock_rate = rate
    made = timer(cuda)
    assert made.scale == pytest.approx(scale, rel=2e-3)
    assert (made.scale == 1.0) == (scale == 1.0)
    kernel(cuda, made)
    found = made.bracket(made.enqueue)  # type: ignore[attr-defined]
    assert found.microseconds == pytest.approx(10, rel=5e-3)


@pytest.mark.parametrize("rate", [0.0, 0.4, 2.1, 1000.0])
def test_a_clock_that_cannot_be_reconciled_is_refused(rate: float) -> None:
    cuda = FakeCuda()
    cuda.clock_rate = rate
    with pytest.raises(DeviceError, match=r"clock runs at .* required within 0.5 and 2"):
        _ = timer(cuda).scale


def test_the_slope_leaves_out_what_entering_and_interrupts_cost() -> None:
    few = [(0.001 + 8e-5, 8e-5), (0.05, 8e-5)]
    many = [(0.09, 72e-5), (0.001 + 72e-5, 72e-5)]
    assert scale_of(few, many) == 1.0
    with pytest.raises(DeviceError):
        scale_of(many, few)


@pytest.mark.parametrize(
    ("kernel_s", "launches"), [(1e-6, BRACKET_LAUNCHES), (1e-3, 5), (4e-3, 1), (0.1, 1)]
)
def test_a_bracket_is_twenty_launches_or_what_fits(kernel_s: float, launches: int) -> None:
    cuda = FakeCuda()
    cuda.kernel_s = kernel_s
    made = timer(cuda)
    asked = kernel(cuda, made)
    found = made.bracket(made.enqueue)  # type: ignore[attr-defined]
    assert found.launches in (launches, launches - 1)  # 5 ms over 1 ms is 4.99 in binary
    assert found.microseconds == pytest.approx(kernel_s * 1e6, rel=1e-2)
    assert asked[-found.launches - 1 :] == list(range(found.launches + 1))


@pytest.mark.parametrize("host_s", [1e-6, 30e-6, 200e-6])
def test_a_slow_host_does_not_show_in_a_short_kernel(host_s: float) -> None:
    """The fill that goes first outlasts the enqueueing, whatever that takes."""
    cuda = FakeCuda()
    cuda.kernel_s = 2e-6
    made = timer(cuda)
    kernel(cuda, made, host_s=host_s)
    found = made.bracket(made.enqueue)  # type: ignore[attr-defined]
    assert found.microseconds == pytest.approx(2, rel=1e-2)


def test_a_cold_bracket_has_no_warm_launch_after_the_fill() -> None:
    cuda = FakeCuda()
    made = timer(cuda)
    asked = kernel(cuda, made)
    made.bracket(made.enqueue, cold=True)  # type: ignore[attr-defined]
    assert asked[-BRACKET_LAUNCHES:] == list(range(1, BRACKET_LAUNCHES + 1))
    assert asked.count(0) == 1


def test_the_memory_bounds_a_reading() -> None:
    """4917 GB/s: bus x clock at two transfers a clock."""
    cold = bandwidth_ceiling(FACTS, 4_916_736_000, cold=True)
    assert cold.kind == "bandwidth"
    assert cold.microseconds == pytest.approx(1000)
    hot = bandwidth_ceiling(FACTS, 4_916_736_000 + 1000, cold=False)
    assert hot == cold
    assert bandwidth_ceiling(FACTS, 900, cold=False).microseconds == 0
    unknown = bandwidth_ceiling(DeviceFacts(backend="cuda"), 1 << 30, cold=True)
    assert (unknown.kind, unknown.microseconds) == ("unknown", 0.0)
