"""Words of verdicts: numbers as a report says them."""

from __future__ import annotations

UNKNOWN = "n/a"


def seconds(value: float | None) -> str:
    """A duration. Below a second the heartbeat, of one second, hides it."""
    if value is None:
        return UNKNOWN
    return "less than 1 s" if value < 1 else f"{value:.1f} s"


def share(value: float | None) -> str:
    """A share, as a percentage."""
    return UNKNOWN if value is None else f"{value:.0%}"
