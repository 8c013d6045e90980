"""Column tables: grow row by row, keep a bounded length, and number their rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median
from typing import Any

from jupyter_mntrain.metrics.recent import MOST_RECENT_STEPS, RECENT_S
from jupyter_mntrain.metrics.series import Column
from jupyter_mntrain.metrics.thinned.samples import UNKNOWN
from jupyter_mntrain.model.records.number import carried

CHUNK = 1024
"""The newest rows, one to two of these, stay as they were written."""

MOST_OLDER = 4096
"""Of the rows before: when there are more, neighbors are joined. All of them span the same
number of steps, so the beginning of a long job is drawn as finely as its middle."""

DIGITS = 5
"""Significant ones that go to a page: a picture shows fewer."""

LEAST_CHUNK, LEAST_OLDER = 64, 128
"""A page shows a hundred rows of each of so many ranks."""

KEEP_LAST = frozenset({"time_s", "step", "tokens"})
"""Where rows are joined these take the last value, all others the mean."""


LOW, HIGH = "low_", "high_"
"""Begin the names of a column's extremes, of rows that stand for several."""


class Table:
    """Rows of named numbers, at most ``MOST_OLDER + 2 * CHUNK``.

    Args:
        names: of the columns; ``time_s`` is one of them.
        warm_up: so many of the first rows are never recent.
        extremes: columns whose lowest and highest finite values are kept where rows are joined.
        room: of the usual number of rows; for one of very many tables.
    """

    def __init__(
        self,
        names: Sequence[str],
        warm_up: int = 0,
        *,
        extremes: Sequence[str] = (),
        room: float = 1.0,
    ) -> None:
        self._extremes = tuple(extremes)
        self._names = (*names, *(end + name for end in (LOW, HIGH) for name in extremes))
        self._chunk = max(LEAST_CHUNK, int(CHUNK * room))
        self._most_older = max(LEAST_OLDER, int(MOST_OLDER * room))
        self._older = self._empty()
        self._newest = self._empty()
        self._numbers: array[int] = array("q")
        """Of the newest rows."""
        self._warm_up = warm_up
        """Of the newest rows that are no longer recent whatever their time."""
        self._size = 1
        """Rows that each older one was joined from."""
        self._recent: slice | None = None
        """As long as no row is added: of many ranks, each has several figures."""
        self.joined_up_to = 0
        """Rows up to this number are no longer kept one by one."""

    def __len__(self) -> int:
        return len(self._older["time_s"]) + len(self._numbers)

    def append(self, number: int, row: Mapping[str, float | None]) -> None:
        """Add a row; columns it does not name are not known.

        Args:
            number: greater than that of every row before.
        """
        if len(self._numbers) >= 2 * self._chunk:
            self._retire()
        self._numbers.append(number)
        self._recent = None
        self._add(self._newest, row)

    def begin(self, number: int, rows: Sequence[Mapping[str, float | None]], size: int) -> None:
        """Begin with rows that stand for ``size`` steps each, and tell their extremes.

        Args:
            number: of the last of them.
        """
        if len(self) or not rows:
            raise ValueError("a table begins once")
        for row in rows:
            self._add(self._older, row)
        self._size, self._warm_up, self.joined_up_to = size, 0, number
        self._bound()

    def _add(self, columns: dict[str, array[float]], row: Mapping[str, float | None]) -> None:
        for name, column in columns.items():
            value = row.get(name)
            column.append(UNKNOWN if value is None else float(value))
        for name in self._extremes:
            if LOW + name not in row:
                value = columns[name][-1]
                for end in (LOW, HIGH):
                    columns[end + name][-1] = value if isfinite(value) else UNKNOWN

    def last(self, name: str) -> float | None:
        """The newest value of a column; ``None`` if it is not known."""
        column = self._newest[name] or self._older[name]
        return column[-1] if column and column[-1] != UNKNOWN else None

    def recent_rows(self) -> slice:
        """The recent ones among the newest rows; see :mod:`jupyter_mntrain.metrics.recent`."""
        if self._recent is None:
            self._recent = self._find_recent()
        return self._recent

    def _find_recent(self) -> slice:
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
        return {
            name: [] if name.startswith((LOW, HIGH)) else list(self._newest[name][begin:])
            for name in self._names
        }

    def whole(self, points: int) -> dict[str, list[float]]:
        """All rows, neighbors joined until there are at most ``points``.

        Columns of extremes end with the last row that stands for several steps.
        """
        # Older rows stand for more steps each: joined first, so that all points span the same.
        steps = len(self._older["time_s"]) * self._size + len(self._numbers)
        # Each part may end with a row of fewer steps.
        spare = 1 if len(self._older["time_s"]) and len(self._numbers) else 0
        size = 1 if steps <= points else -(-steps // max(1, points - spare))
        older = max(1, -(-size // self._size))
        told = {}
        for name in self._names:
            before = _joined(name, self._older[name], older)
            after = _joined(name, self._newest[name], size)
            is_extreme = name.startswith((LOW, HIGH))
            is_single = older * self._size == 1
            told[name] = [
                *(before if not (is_extreme and is_single and size == 1) else ()),
                *(after if not (is_extreme and size == 1) else ()),
            ]
        return told

    def _retire(self) -> None:
        """Make the older half of the newest rows older ones."""
        for name in self._names:
            column = self._newest[name]
            self._older[name].extend(_joined(name, column[: self._chunk], self._size))
            self._newest[name] = column[self._chunk :]
        self.joined_up_to = self._numbers[self._chunk - 1]
        self._numbers = self._numbers[self._chunk :]
        self._warm_up = 0
        self._bound()

    def _bound(self) -> None:
        while len(self._older["time_s"]) > self._most_older:
            self._older = {
                name: array("d", _joined(name, column, 2)) for name, column in self._older.items()
            }
            self._size *= 2

    def _empty(self) -> dict[str, array[float]]:
        return {name: array("d") for name in self._names}


def _joined(name: str, column: array[float], size: int) -> list[float]:
    """One value for every ``size`` neighbors; the last of them may be fewer."""
    if size == 1 or not len(column):
        return list(column)
    if name in KEEP_LAST:
        return [*column[size - 1 :: size], *(column[-1:] if len(column) % size else ())]
    if name.startswith((LOW, HIGH)):
        rule = _low if name.startswith(LOW) else max
        return [rule(column[i : i + size]) for i in range(0, len(column), size)]
    import numpy as np  # takes a while: not when the extension is loaded

    values = np.array(column)
    known = values != UNKNOWN
    begins = np.arange(0, len(values), size)
    with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN, and is shown as that
        if known.all():
            counts = np.minimum(size, len(values) - begins)
            sums = np.add.reduceat(values, begins)
        else:
            counts = np.add.reduceat(known, begins, dtype=np.int64)
            sums = np.add.reduceat(np.where(known, values, 0.0), begins)
    means: list[float] = np.where(counts > 0, sums / np.maximum(counts, 1), UNKNOWN).tolist()
    return means


def _low(values: Sequence[float]) -> float:
    low = min(values)
    return low if low != UNKNOWN else min((v for v in values if v != UNKNOWN), default=UNKNOWN)


def page_columns(columns: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """As JSON carries them: rounded, ``None`` for what is not known; empty if nothing is.

    Extremes are under ``low`` and ``high``, by the name of their column.
    """
    told: dict[str, Any] = {}
    for name, values in columns.items():
        column = _page_column(name, values)
        if not name.startswith((LOW, HIGH)):
            told[name] = column
        elif column:
            which, _, of = name.partition("_")
            told.setdefault(which, {})[of] = column
    return told


def _page_column(name: str, values: Sequence[float]) -> Column:
    unknown = values.count(UNKNOWN)
    if unknown == len(values):
        return ()
    if name in KEEP_LAST:
        return tuple(None if value == UNKNOWN else round(value, 3) for value in values)
    # All at once: a page of many ranks has a million of them.
    spelled = " ".join([f"%.{DIGITS}g"] * len(values)) % tuple(values)
    rounded = [float(one) for one in spelled.split()]
    if not unknown and isfinite(sum(rounded)):
        return tuple(rounded)
    return tuple(
        None if value == UNKNOWN else carried(one)
        for value, one in zip(values, rounded, strict=True)
    )
