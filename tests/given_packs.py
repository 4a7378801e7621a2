"""The packs of ``--packs`` as parameters of tests, by the devices of ``--device``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from device_packs import find_candidates, find_packs
from runtime.device import BACKENDS
from runtime.executors import EXECUTORS, ExecutorName
from runtime.pack import Pack

_NAMES = ("given_candidate", "given_pack", "given_device", "executor")


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Give a test every candidate or pack, on ``given_device`` by each ``executor`` that it has.

    A test that names neither gets each once a device; one that is for some device that device's.
    """
    names = [n for n in _NAMES if n in metafunc.fixturenames]
    folder = metafunc.config.getoption("--packs")
    packs = find_packs(Path(folder)) if folder else []
    mine = {m.args[0] for m in metafunc.definition.iter_markers("device")}
    kinds = [k for k in (metafunc.config.getoption("--device") or []) if not mine or k in mine]
    rows = [
        pytest.param(*(row[n] for n in names), id="-".join(label), marks=pytest.mark.device(kind))
        for kind in kinds
        for label, row in _rows(packs, kind, names)
    ]
    metafunc.parametrize(names, rows)


def _rows(
    packs: list[Pack], kind: str, names: list[str]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The values by name, with what tells them apart."""
    backend = BACKENDS[kind]
    executors: tuple[ExecutorName, ...] = EXECUTORS if kind == "cuda" else ("iree",)
    by_executor = executors if "executor" in names else executors[:1]
    if "given_candidate" in names:
        what = [(c.id, "given_candidate", c) for c in find_candidates(packs, backend)]
    else:
        what = [(p.path.name, "given_pack", p) for p in packs if find_candidates([p], backend)]
    for executor in by_executor:
        for label, name, value in what:
            row = {name: value, "given_device": kind, "executor": executor}
            yield [kind, *([executor] if "executor" in names else []), label], row
