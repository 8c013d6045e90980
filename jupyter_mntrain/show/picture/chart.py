"""Chart records: what a chart shows, before it is drawn. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from jupyter_mntrain.metrics.series import Column
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.show.picture.theme import Stroke

Floats = NDArray[np.float64]


class Curve(Record, frozen=True):
    """A line and the label at its right end: ``name`` and ``value``, the recent figure.

    Args:
        fill: whether the area down to zero is filled.
        is_bad: whether the value is written in red.
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
        """The value of the last known point."""
        known = self.y[np.isfinite(self.y)]
        return float(known[-1]) if known.size else 0.0


class Band(Record, frozen=True):
    """The area between the lowest and the highest value of many ranks."""

    x: Floats
    low: Floats
    high: Floats


class Level(Record, frozen=True):
    """A horizontal line with a name and, optionally, a value."""

    y: float
    name: str
    value: str = ""
    is_dashed: bool = False


class Chart(Record, frozen=True):
    """A title and lines over a common time axis.

    Args:
        spell: formats the labels of the vertical axis.
        alarm: red text next to the title.
        limits: of the vertical axis.
        note: text in place of the lines, with the reason why there are none.
        mirrored: whether values below zero are labeled without their sign.
        bad_s: Unix times of values that are NaN or infinite, marked in red.
        height_px: least height.
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
    """Convert a column to numbers; NaN where the value is unknown or NaN."""
    return np.array([np.nan if value is None else float(value) for value in column])


def scale(lines: Sequence[Floats], *, floor: float | None = None) -> tuple[float, float]:
    """Return axis limits that show every point; 0 and 1 if there are no points.

    Args:
        floor: the lower limit is never below this.
    """
    values = np.concatenate([line[np.isfinite(line)] for line in lines]) if lines else np.array([])
    if not values.size:
        return (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    room = max((high - low) * 0.12, abs(high) * 0.02, 1e-9)
    return (low - room if floor is None else max(floor, low - room), high + room)
