"""Column tables: grow row by row, keep a bounded length, and number their rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import isnan, nan

from jupyter_mntrain.metrics.series import Column

CHUNK = 1024
"""The newest rows, one to two of these, stay as they were written."""

MOST_OLDER = 2048
"""Of the rows before: when there are more, neighbors are joined. All of them span the same
number of steps, so the beginning of a long job is drawn as finely as its middle."""

DIGITS = 5
"""Significant ones that go to a page: a picture shows fewer."""

KEEP_LAST = frozenset({"time_s", "step"})
"""Where rows are joined these take the last value, all others the mean."""


class Table:
    """Rows of named numbers, at most ``MOST_OLDER + 2 * CHUNK``; NaN = not known.

    Args:
        names: of the columns; ``time_s`` is one of them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._older = self._empty()
        self._newest = self._empty()
        self._numbers: array[int] = array("q")
        """Of the newest rows."""
        self._size = 1
        """Rows that each older one was joined from."""
        self.joined_up_to = 0
        """Rows up to this number are no longer kept one by one."""

    def __len__(self) -> int:
        return len(self._older["time_s"]) + len(self._numbers)

    def append(self, number: int, row: Mapping[str, float | None]) -> None:
        """Add a row; columns it does not name get NaN.

        Args:
            number: greater than that of every row before.
        """
        if len(self._numbers) >= 2 * CHUNK:
            self._retire()
        self._numbers.append(number)
        for name, column in self._newest.items():
            value = row.get(name)
            column.append(nan if value is None else float(value))

    def last(self, name: str, count: int) -> list[float]:
        """The known ones among the last ``count`` values."""
        return [value for value in self._newest[name][-count:] if not isnan(value)]

    def since(self, number: int) -> dict[str, Column]:
        """Rows numbered above ``number``; a column without any value is left out.

        Args:
            number: not below :attr:`joined_up_to`.
        """
        begin = bisect_right(self._numbers, number)
        return {name: _page_column(name, self._newest[name][begin:]) for name in self._names}

    def whole(self, points: int) -> dict[str, Column]:
        """All rows, neighbors joined until there are at most ``points``."""
        # Older rows stand for more steps each: joined first, so that all points span the same.
        steps = len(self._older["time_s"]) * self._size + len(self._numbers)
        size = max(1, -(-steps // points))
        older = max(1, size // self._size)
        return {
            name: _page_column(
                name,
                [
                    *_joined(name, self._older[name], older),
                    *_joined(name, self._newest[name], size),
                ],
            )
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

    padded = np.full(-(-len(column) // size) * size, nan)
    padded[: len(column)] = column
    rows = padded.reshape(-1, size)
    known = ~np.isnan(rows)
    counts = known.sum(axis=1)
    sums = np.where(known, rows, 0.0).sum(axis=1)
    means: list[float] = np.where(counts > 0, sums / np.maximum(counts, 1), nan).tolist()
    return means


def _page_column(name: str, values: Sequence[float]) -> Column:
    if all(isnan(value) for value in values):
        return ()
    if name in KEEP_LAST:
        return tuple(None if isnan(value) else round(value, 3) for value in values)
    return tuple(None if isnan(value) else float(f"{value:.{DIGITS}g}") for value in values)
