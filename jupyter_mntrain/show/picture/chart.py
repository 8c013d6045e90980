"""Chart: curves, bands and scales before anything is drawn. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jupyter_mntrain.show.picture.columns import Floats
from jupyter_mntrain.show.picture.theme import Stroke

MAX_POINTS = 500
"""Per line: about one per pixel column; more would only cost time."""

SKIPPED_STEPS = 2
"""Scales ignore the first steps: allocation and first connections happen in them."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its label at the right: ``name`` and the last value."""

    name: str
    value: str
    x: Floats
    y: Floats
    stroke: Stroke
    fill: bool = False
    """Fill down to zero, faintly."""

    @property
    def end(self) -> float:
        """Height of the last point."""
        known = self.y[np.isfinite(self.y)]
        return float(known[-1]) if known.size else 0.0


@dataclass(frozen=True, slots=True)
class Band:
    """Between the least and the most of many ranks."""

    x: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line with a name."""

    y: float
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A title, lines over a common time axis, and how heights are spelled.

    Args:
        note: said instead of lines, where there can be none, with the reason.
        mirrored: heights below zero are spelled without their sign.
    """

    key: str
    title: str
    subtitle: str
    spell: Callable[[float], str]
    limits: tuple[float, float] = (0.0, 1.0)
    curves: tuple[Curve, ...] = ()
    bands: tuple[Band, ...] = ()
    levels: tuple[Level, ...] = ()
    note: str | None = None
    mirrored: bool = False
    height_px: int = 72


def thin(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """At most :data:`MAX_POINTS` points: medians of equal parts, so that no spike misleads."""
    if len(x) <= 2 * MAX_POINTS:
        return x, y
    size = -(-len(x) // MAX_POINTS)
    whole = len(x) // size * size
    # The rest at the end stays as it is: the newest point is the one that is read.
    heads = np.nanmedian(_quiet(y[:whole].reshape(-1, size)), axis=1)
    ends = x[:whole].reshape(-1, size)[:, -1]
    return np.concatenate([ends, x[whole:]]), np.concatenate([heads, y[whole:]])


def _quiet(rows: Floats) -> Floats:
    """Rows of nothing but NaN would warn."""
    empty = np.all(np.isnan(rows), axis=1)
    rows = rows.copy()
    rows[empty] = 0.0
    return rows


def scale(*lines: Floats, floor: float | None = None, margin: float = 0.12) -> tuple[float, float]:
    """Limits that show all but the outliers, and both ends of nothing when there is nothing."""
    steady = [line[SKIPPED_STEPS:] if len(line) > 2 * SKIPPED_STEPS else line for line in lines]
    known = [line[np.isfinite(line)] for line in steady]
    values = np.concatenate(known) if known else np.array([])
    if not values.size:
        return (0.0, 1.0)
    low, high = np.percentile(values, [1, 99])
    ends = [line[-1] for line in known if line.size]
    low, high = min(low, *ends), max(high, *ends)
    room = max((high - low) * margin, abs(high) * 0.02, 1e-9)
    low, high = float(low - room), float(high + room)
    return (low if floor is None else max(floor, low), high)
