"""Which of several devices the path of a URI names."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.errors import DeviceError


def select(scheme: str, selector: str, uuids: Sequence[str]) -> str:
    """The UUID, in hex, that a URI's path names: empty, a place in the list, or ``GPU-<uuid>``.

    Raises:
        DeviceError: nothing in the list, or nothing that fits, with what there is.
    """
    if not uuids:
        raise DeviceError(f"{scheme}: there is no device")
    if not selector:
        return uuids[0]
    wanted = selector.removeprefix("GPU-").replace("-", "").lower()
    if wanted in uuids:
        return wanted
    if selector in map(str, range(len(uuids))):
        return uuids[int(selector)]
    there = ", ".join(f"{place}: GPU-{uuid}" for place, uuid in enumerate(uuids))
    raise DeviceError(f"{scheme}: no device '{selector}', there are {there}")
