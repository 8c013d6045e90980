"""JSON numbers: carry NaN and infinity by name, since JSON has neither."""

from __future__ import annotations

from math import isfinite, isnan
from typing import Literal

NonFinite = Literal["NaN", "Infinity", "-Infinity"]
"""Names that both Python's ``float`` and JavaScript's ``Number`` parse."""

Number = float | NonFinite


def carried(value: float) -> Number:
    """Return ``value``, or its name if it is not finite."""
    if isfinite(value):
        return value
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
