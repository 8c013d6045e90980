"""Numbers that may be NaN or infinite, as JSON carries them: JSON itself has neither."""

from __future__ import annotations

from math import isfinite, isnan
from typing import Literal

NonFinite = Literal["NaN", "Infinity", "-Infinity"]
"""Spelled so that Python's ``float`` and JavaScript's ``Number`` both read it."""

Number = float | NonFinite


def carried(value: float) -> Number:
    """``value``, or its name if it is not finite."""
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
