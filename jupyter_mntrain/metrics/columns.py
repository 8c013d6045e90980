"""Column tables: grow row by row, keep a bounded length, and number their rows."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import median

from jupyter_mntrain.metrics.recent import MOST_RECENT_STEPS, RECENT_S
from jupyter_mntrain.metrics.series import Column
from jupyter_mntrain.model.records.number import Number, carried

CHUNK = 1024
"""The newest rows, one to two of these, stay as they were written."""

MOST_OLDER = 2048
"""Of the rows before: when there are more, neighbors are joined. All of them span the same
number of steps, so the beginning of a long job is drawn as finely as its middle."""

DIGITS = 5
"""Significant ones that go to a page: a picture shows fewer."""

KEEP_LAST = frozenset({"time_s", "step", "tokens"})
"""Where rows are joined these take the last value, all others the mean."""

UNKNOWN = -sys.float_info.max
"""Not known. NaN is a value: a loss can be it."""


class Table:
    """Rows of named numbers, at most ``MOST_OLDER + 2 * CHUNK``.

    Args:
        names: of the columns; ``time_s`` is one of them.
        warm_up: so many of the first rows are never recent.
    """

    def __init__(self, names: Sequence[str], warm_up: int = 0) -> None:
        self._names = tuple(names)
        self._older = self._empty()
        self._newest = self._empty()
        self._numbers: array[int] = array("q")
        """Of the newest rows."""
        self._warm_up = warm_up
        """Of the newest rows that are no longer recent whatever their time."""
        self._size = 1
        """Rows that each older one was joined from."""
        self.joined_up_to = 0
        """Rows up to this number are no longer kept one by one."""

    def __len__(self) -> int:
        return len(self._older["time_s"]) + len(self._numbers)

    def append(self, number: int, row: Mapping[str, float | None]) -> None:
        """Add a row; columns it does not name are not known.

        Args:
            number: greater than that of every row before.
        """
        if len(self._numbers) >= 2 * CHUNK:
            self._retire()
        self._numbers.append(number)
        for name, column in self._newest.items():
            value = row.get(name)
            column.append(UNKNOWN if value is None else float(value))

    def last(self, name: str) -> float | None:
        """The newest value of a column; ``None`` if it is not known."""
        column = self._newest[name]
        return column[-1] if column and column[-1] != UNKNOWN else None

    def recent_rows(self) -> slice:
        """The recent ones among the newest rows; see :mod:`jupyter_mntrain.metrics.recent`."""
        times = self._newest["time_s"]
        if not times:
            return slice(0, 0)
        begin = bisect_right(times, times[-1] - RECENT_S)
        return slice(max(begin, len(times) - MOST_RECENT_STEPS, self._warm_up), len(times))

    def recent(self, name: str) -> float | None:
        """Median of the known values of the recent rows; ``None`` if there are none."""
        values = [value for value in self._newest[name][self.recent_rows()] if value != UNKNOWN]
        return median(values) if values else None

    def recent_span(self) -> tuple[float, float] | None:
        """Unix times at which the first of the recent steps began and the last one ended."""
        rows = self.recent_rows()
        if rows.start >= rows.stop:
            return None
        times, first = self._newest["time_s"], rows.start
        return times[first] - self._newest["step_s"][first], times[-1]

    def since(self, number: int) -> dict[str, list[float]]:
        """Rows numbered above ``number``.

        Args:
            number: not below :attr:`joined_up_to`.
        """
        begin = bisect_right(self._numbers, number)
        return {name: list(self._newest[name][begin:]) for name in self._names}

    def whole(self, points: int) -> dict[str, list[float]]:
        """All rows, neighbors joined until there are at most ``points``."""
        # Older rows stand for more steps each: joined first, so that all points span the same.
        steps = len(self._older["time_s"]) * self._size + len(self._numbers)
        size = max(1, -(-steps // points))
        older = max(1, size // self._size)
        return {
            name: [
                *_joined(name, self._older[name], older),
                *_joined(name, self._newest[name], size),
            ]
            for name in self._names
        }

    def _retire(self) -> None:
        """Make the older half of the newest rows older ones."""
        for name in self._names:
            column = self._newest[name]
            self._older[name].extend(_joined(name, column[:CHUNK], self._size))
            self._newest[name] = column[CHUNK:]
        self.joined_up_to = self._numbers[CHUNK - 1]
        self._numbers = self._numbers[CHUNK:]
        self._warm_up = 0
        if len(self._older["time_s"]) > MOST_OLDER:
            self._older = {
                name: array("d", _joined(name, column, 2)) for name, column in self._older.items()
            }
            self._size *= 2

    def _empty(self) -> dict[str, array[float]]:
        return {name: array("d") for name in self._names}


def _joined(name: str, column: Sequence[float], size: int) -> list[float]:
    """One value for every ``size`` neighbors; the last of them may be fewer."""
    if size == 1 or not len(column):
        return list(column)
    if name in KEEP_LAST:
        return [column[min(i + size, len(column)) - 1] for i in range(0, len(column), size)]
    import numpy as np  # takes a while: not when the extension is loaded

    padded = np.full(-(-len(column) // size) * size, UNKNOWN)
    padded[: len(column)] = column
    rows = padded.reshape(-1, size)
    known = rows != UNKNOWN
    counts = known.sum(axis=1)
    with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN, and is shown as that
        sums = np.where(known, rows, 0.0).sum(axis=1)
    means: list[float] = np.where(counts > 0, sums / np.maximum(counts, 1), UNKNOWN).tolist()
    return means


def page_columns(columns: Mapping[str, Sequence[float]]) -> dict[str, Column]:
    """As JSON carries them: rounded, ``None`` for what is not known; empty if nothing is."""
    return {name: _page_column(name, values) for name, values in columns.items()}


def _page_column(name: str, values: Sequence[float]) -> Column:
    if all(value == UNKNOWN for value in values):
        return ()
    if name in KEEP_LAST:
        return tuple(None if value == UNKNOWN else round(value, 3) for value in values)
    return tuple(None if value == UNKNOWN else _rounded(value) for value in values)


def _rounded(value: float) -> Number:
    return carried(float(f"{value:.{DIGITS}g}"))
