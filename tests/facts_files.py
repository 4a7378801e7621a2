"""The facts files that tests read: real readings of devices that are not here."""

from __future__ import annotations

from pathlib import Path

from dialects.facts import DeviceFacts, facts_from_json

FOLDER = Path(__file__).parent / "fixtures" / "facts"
PATHS = sorted(FOLDER.glob("*.json"))


def fixture_facts(name: str) -> DeviceFacts:
    """The facts in ``fixtures/facts/<name>.json``."""
    return facts_from_json((FOLDER / f"{name}.json").read_bytes(), where=name)
