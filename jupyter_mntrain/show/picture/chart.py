"""Charts, before anything is drawn: lines over a common time axis. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jupyter_mntrain.metrics.series import Column
from jupyter_mntrain.show.picture.theme import Stroke

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curve:
    """A line with its label at the right: ``name`` and ``value``, the recent figure.

    Args:
        fill: down to zero, faintly.
        is_bad: the value is written in red.
    """

    name: str
    value: str
    x: Floats
    y: Floats
    stroke: Stroke
    fill: bool = False
    is_bad: bool = False

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
        alarm: beside the title, in red.
        note: said instead of lines, where there can be none, with the reason.
        mirrored: heights below zero are spelled without their sign.
        bad_s: Unix times of values that are NaN or infinite, marked in red.
    """

    key: str
    title: str
    spell: Callable[[float], str]
    subtitle: str = ""
    alarm: str = ""
    limits: tuple[float, float] = (0.0, 1.0)
    curves: tuple[Curve, ...] = ()
    bands: tuple[Band, ...] = ()
    levels: tuple[Level, ...] = ()
    note: str | None = None
    mirrored: bool = False
    bad_s: tuple[float, ...] = ()
    height_px: int = 72


def floats(column: Column) -> Floats:
    """NaN where the value is not known, and where it is NaN."""
    return np.array([np.nan if value is None else float(value) for value in column])


def scale(lines: Sequence[Floats], *, floor: float | None = None) -> tuple[float, float]:
    """Limits that show every point, and both ends of nothing when there is nothing."""
    values = np.concatenate([line[np.isfinite(line)] for line in lines]) if lines else np.array([])
    if not values.size:
        return (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    room = max((high - low) * 0.12, abs(high) * 0.02, 1e-9)
    return (low - room if floor is None else max(floor, low - room), high + room)
