"""Direct labels at the right end of lines, spread so that none covers another. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near ``wanted``, in the same order, at least ``gap`` apart, within [low, high].

    If they do not fit, the gap shrinks until they do.
    """
    count = len(wanted)
    if count == 0:
        return []
    if count > 1:
        gap = min(gap, (high - low) / (count - 1))
    order = sorted(range(count), key=lambda i: wanted[i])
    placed = [min(max(wanted[i], low), high) for i in order]
    for i in range(1, count):
        placed[i] = max(placed[i], placed[i - 1] + gap)
    placed[-1] = min(placed[-1], high)
    for i in range(count - 2, -1, -1):
        placed[i] = min(placed[i], placed[i + 1] - gap)
    result = [0.0] * count
    for position, i in zip(placed, order, strict=True):
        result[i] = position
    return result
