"""Label spreading: moves labels apart so that none covers another. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def spread(wanted: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Return positions near ``wanted``, in order, at least ``gap`` apart, within [low, high].

    If they do not all fit, the gap is made smaller.
    """
    if not wanted:
        return []
    if len(wanted) > 1:
        gap = min(gap, (high - low) / (len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = [min(max(wanted[index], low), high) for index in order]
    for upper in range(1, len(placed)):
        placed[upper] = max(placed[upper], placed[upper - 1] + gap)
    placed[-1] = min(placed[-1], high)
    for lower in range(len(placed) - 2, -1, -1):
        placed[lower] = min(placed[lower], placed[lower + 1] - gap)
    return [position for _, position in sorted(zip(order, placed, strict=True))]
