"""Fresh device memory of ours holds poison in the test suites, and in the measuring process."""

from __future__ import annotations

import numpy as np
import pytest

from packs import Packs
from runtime import Session
from runtime.device import Device
from runtime.worker import Worker


@pytest.mark.parametrize(
    "uri",
    [
        "local-sync",
        "local-task",
        pytest.param("vulkan", marks=pytest.mark.device("vulkan")),
    ],
)
@pytest.mark.parametrize("nbytes", [1, 4, 4096, 12345])
def test_a_fresh_allocation_is_poisoned(uri: str, nbytes: int) -> None:
    device = Device(uri)
    found = device.download(device.allocate(nbytes), (nbytes,), np.dtype(np.uint8))
    assert set(found.tolist()) == {0xFF}
    padded = device.upload(np.zeros(3, np.uint8), 64)
    found = device.download(padded, (64,), np.dtype(np.uint8))
    assert found.tolist() == [0] * 3 + [0xFF] * 61


def test_a_sessions_memory_and_workspace_are_poisoned(packs: Packs) -> None:
    with Session(packs.path("matmul_f32"), tuning="off") as session:
        assert np.isnan(session.empty((7, 5), "f32").numpy()).all()
        space = session.device.download(session._workspace(64), (64,), np.dtype(np.uint8))
        assert set(space.tolist()) == {0xFF}


def test_an_application_asks_for_it(packs: Packs) -> None:
    device = Device("local-sync", poison=False)
    device.upload(np.zeros(3, np.uint8), 64)
    assert not device.poisons
    with Session(packs.path("matmul_f32"), tuning="off", poison=False) as session:
        assert isinstance(session.device, Device)
        assert not session.device.poisons


def test_the_measuring_process_always_poisons() -> None:
    device = Worker("local-sync", lambda event: None)._timed.device
    assert isinstance(device, Device)
    assert device.poisons
