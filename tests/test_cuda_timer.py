"""The timer on CUDA's events and its calibration, on a made-up machine."""

from __future__ import annotations

import pytest

from dialects.errors import DeviceError
from fake_cuda import FakeCuda
from runtime.cuda.device import CudaDevice
from runtime.cuda.driver import Driver
from runtime.cuda.events import CudaEvents
from runtime.timer import BRACKET_LAUNCHES, Bracket, KernelTimer


class Timed:
    """A timer on the made-up machine, and something to time: which launches were asked for."""

    def __init__(self, cuda: FakeCuda, *, host_s: float = 0.0, cold: bool = False) -> None:
        """``host_s`` is what a launch costs the host."""
        events = CudaEvents(CudaDevice("cuda", driver=Driver(cuda)), cuda.clock)
        self.timer = KernelTimer(events.calibration)
        self.asked: list[int] = []

        def enqueue(i: int) -> None:
            self.asked.append(i)
            cuda.host_s += host_s
            cuda._work(cuda.kernel_s)

        self._seconds = events.seconds(enqueue, cold=cold)

    def bracket(self) -> Bracket:
        """One bracket of it."""
        return self.timer.bracket(self._seconds)


@pytest.mark.parametrize(
    ("rate", "scale"), [(1.0, 1.0), (1.003, 1.0), (0.997, 1.0), (1.25, 1.25), (0.6, 0.6)]
)
def test_the_event_clock_is_calibrated(rate: float, scale: float) -> None:
    """A clock that runs at another rate gives the same times; within half a per cent it is ours."""
    cuda = FakeCuda()
    cuda.clock_rate = rate
    made = Timed(cuda)
    assert made.timer.scale == pytest.approx(scale, rel=2e-3)
    assert (made.timer.scale == 1.0) == (scale == 1.0)
    assert made.timer.tier == "device"
    found = made.bracket()
    assert found.microseconds == pytest.approx(10, rel=5e-3)


@pytest.mark.parametrize("rate", [0.0, 0.4, 2.1, 1000.0])
def test_a_clock_that_cannot_be_reconciled_is_refused(rate: float) -> None:
    cuda = FakeCuda()
    cuda.clock_rate = rate
    made = Timed(cuda)
    assert made.timer.tier == "unavailable"
    with pytest.raises(DeviceError, match=r"does not agree with the host's: .* \[0.5, 2.0\]"):
        made.bracket()


def test_an_interrupt_of_the_host_does_not_move_the_scale() -> None:
    """It lengthens most of the readings; the quickest of each length is what counts."""
    cuda = FakeCuda()
    events = CudaEvents(CudaDevice("cuda", driver=Driver(cuda)), cuda.clock)
    synchronize, waits = cuda.cuEventSynchronize, [0]

    def interrupted(event: object) -> object:
        waits[0] += 1
        cuda.host_s += 0.004 if waits[0] % 3 else 0.0
        return synchronize(event)

    cuda.cuEventSynchronize = interrupted  # type: ignore[method-assign]
    assert KernelTimer(events.calibration).scale == 1.0


@pytest.mark.parametrize(
    ("kernel_s", "launches"), [(1e-6, BRACKET_LAUNCHES), (1e-3, 5), (4e-3, 1), (0.1, 1)]
)
def test_a_bracket_is_twenty_launches_or_what_fits(kernel_s: float, launches: int) -> None:
    cuda = FakeCuda()
    cuda.kernel_s = kernel_s
    made = Timed(cuda)
    found = made.bracket()
    assert found.launches in (launches, launches - 1)  # 5 ms over 1 ms is 4.99 in binary
    assert found.microseconds == pytest.approx(kernel_s * 1e6, rel=1e-2)
    assert made.asked[-found.launches - 1 :] == list(range(found.launches + 1))


@pytest.mark.parametrize("host_s", [1e-6, 30e-6, 200e-6])
def test_a_slow_host_does_not_show_in_a_short_kernel(host_s: float) -> None:
    """The fill that goes first outlasts the enqueueing, whatever that takes."""
    cuda = FakeCuda()
    cuda.kernel_s = 2e-6
    found = Timed(cuda, host_s=host_s).bracket()
    assert found.microseconds == pytest.approx(2, rel=1e-2)


def test_a_cold_bracket_has_no_warm_launch_after_the_fill() -> None:
    cuda = FakeCuda()
    made = Timed(cuda, cold=True)
    made.bracket()
    assert made.asked[-BRACKET_LAUNCHES:] == list(range(1, BRACKET_LAUNCHES + 1))
    assert made.asked.count(0) == 1
