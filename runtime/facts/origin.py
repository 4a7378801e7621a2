"""Who reported what: the source that stands beside each known field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dialects.facts import DeviceFacts, clamped


def sourced(facts: DeviceFacts, sources: Mapping[str, str]) -> DeviceFacts:
    """The facts within their believable ranges, with the source of every field still known."""
    kept = clamped(facts)
    return replace(
        kept,
        sources={name: text for name, text in sources.items() if getattr(kept, name) is not None},
    )
