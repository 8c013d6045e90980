"""Words of verdicts: numbers as the report prints them."""

from __future__ import annotations

UNKNOWN = "n/a"


def seconds(value: float | None) -> str:
    """Format a duration. Times below a second are not resolved: heartbeats are a second apart."""
    if value is None:
        return UNKNOWN
    return "less than 1 s" if value < 1 else f"{value:.1f} s"


def share(value: float | None) -> str:
    """Format a share as a percentage."""
    return UNKNOWN if value is None else f"{value:.0%}"
