"""Column tables: grow row by row within a bounded length, and number their rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.metrics.downsampled.samples import PAUSES, UNKNOWN
from jupyter_mntrain.metrics.recent import RECENT_S
from jupyter_mntrain.metrics.series import Column
from jupyter_mntrain.model.records.number import carried

if TYPE_CHECKING:  # takes a while: not when the extension is loaded
    import numpy as np
    from numpy.typing import NDArray

CHUNK = 1024
"""The newest rows, one to two of these, stay as they were written."""

MOST_OLDER = 4096
"""Of the rows before: when there are more, neighbors are joined. All of them span the same
number of steps, so the beginning of a long job is drawn as finely as its middle."""

DIGITS = 5
"""Significant digits that are sent to a page: a picture shows fewer."""

LEAST_ROUNDED, MOST_ROUNDED = 1e-17, 1e27
"""Between them, rounding needs no power of ten above 1e22, the last that a float holds exactly."""

LEAST_CHUNK, LEAST_OLDER = 64, 128
"""A page shows a hundred rows of each of so many ranks."""

KEEP_LAST = frozenset({"time_s", "step", "tokens"})
"""Where rows are joined these take the last value, counts the sum, all others the mean."""

COUNTS = (
    "steps", "steps_s", "wall_s", "made", "flops", "busy_s", "compute_s", "coding_s", "send_s",
    "wait_s", "bubble_s", "idle_s", *PAUSES, "long_s", "stall_s", "lost_s", "restart_s",
)  # fmt: skip
"""Of a row's steps together: how many, their seconds (``steps_s``), all seconds since the row
before (``wall_s``), tokens (``made``), FLOPs, and parts of these seconds. Every rate and share is
one of these over another, of whichever rows. A sum is not known where a part of it is not."""

_COUNTS = frozenset(COUNTS)


LOW, HIGH = "low_", "high_"
"""Prefixes of a column's extremes, for rows that stand for several steps."""


class Table:
    """A table of named numbers with at most ``MOST_OLDER + 2 * CHUNK`` rows.

    Args:
        names: of the columns; ``time_s`` is one of them.
        warm_up: so many of the first rows are never recent.
        extremes: figures of a row whose lowest and highest finite values are kept where rows are
            joined; they need not be columns.
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
        self._extremes = tuple((name, LOW + name, HIGH + name) for name in extremes)
        self._names = (*names, *(end + name for end in (LOW, HIGH) for name in extremes))
        self._chunk = max(LEAST_CHUNK, int(CHUNK * room))
        self._most_older = max(LEAST_OLDER, int(MOST_OLDER * room))
        self._older = self._empty()
        self._newest = self._empty()
        self._numbers: array[int] = array("q")
        """Numbers of the newest rows."""
        self._warm_up = warm_up
        """How many of the next rows are not recent; neither are earlier ones."""
        self._steady_after_s = -inf
        """Rows that ended up to then are not recent."""
        self._size = 1
        """Number of steps that each older row stands for."""
        self._begin: int | None = None
        """Index of the first recent row, if known."""
        self._sums: dict[str, float | None] = {}
        """Cached sums over the recent rows, until a row is added."""
        self._counts = tuple(name for name in names if name in _COUNTS)
        self._others = tuple(name for name in names if name not in _COUNTS)
        self._totals = dict.fromkeys(self._counts, 0.0)
        """Sums over all rows."""
        self.rows = 0
        """Number of rows ever added."""
        self.joined_up_to = 0
        """Rows up to this number are no longer kept one by one."""
        self.round = 0
        """Period of steps of which one takes much longer; 0 if all are alike. At least so many
        rows are recent, if there are."""

    def __len__(self) -> int:
        return len(self._older["time_s"]) + len(self._numbers)

    def append(self, number: int, row: Mapping[str, float | None]) -> None:
        """Append a row; columns that are missing from it are unknown.

        Args:
            number: greater than that of every row before.
        """
        if len(self._numbers) >= 2 * self._chunk:
            self._retire()
        self._numbers.append(number)
        self._add(self._newest, row)
        if self._warm_up:
            self._warm_up -= 1
            self._steady_after_s = self._newest["time_s"][-1]

    def begin(self, number: int, rows: Sequence[Mapping[str, float | None]], size: int) -> None:
        """Begin with rows that stand for ``size`` steps each and carry their extremes.

        Args:
            number: of the last of them.
        """
        if len(self) or not rows:
            raise ValueError("a table begins once")
        for row in rows:
            self._add(self._older, row)
        self._size, self.joined_up_to = size, number
        self._warm_up = max(0, self._warm_up - size * len(rows))
        self._bound()

    def warm_up(self, rows: int) -> None:
        """Treat the next ``rows`` rows and all earlier ones as not recent: an attempt begins."""
        self._warm_up = rows
        if len(self):
            self._steady_after_s = (self._newest["time_s"] or self._older["time_s"])[-1]
            self._forget()

    def _add(self, columns: dict[str, array[float]], row: Mapping[str, float | None]) -> None:
        self._forget()
        self.rows += 1
        totals, get = self._totals, row.get
        for name in self._others:
            value = get(name)
            columns[name].append(UNKNOWN if value is None else value)
        for name in self._counts:
            value = get(name)
            if value is None:
                totals[name] = value = UNKNOWN
            elif (total := totals[name]) != UNKNOWN:
                totals[name] = total + value
            columns[name].append(value)
        for name, *ends in self._extremes:
            value = get(name)
            known = value if value is not None and isfinite(value) else UNKNOWN
            for end in ends:
                told = get(end, known)
                columns[end].append(UNKNOWN if told is None else told)

    def _forget(self) -> None:
        self._begin = None
        self._sums.clear()

    def last(self, name: str) -> float | None:
        """Return the newest value of a column; ``None`` if it is not known."""
        column = self._newest[name] or self._older[name]
        return column[-1] if column and column[-1] != UNKNOWN else None

    @property
    def recent_from(self) -> int:
        """Index of the first recent row, see :mod:`jupyter_mntrain.metrics.recent`."""
        if self._begin is None:
            self._begin = self._find_recent()
        return self._begin

    def _find_recent(self) -> int:
        newest, older = self._newest["time_s"], self._older["time_s"]
        if not len(self):
            return 0
        since_s = max((newest or older)[-1] - RECENT_S, self._steady_after_s)
        begin = len(older) + bisect_right(newest, since_s)
        if begin == len(older):
            begin = bisect_right(older, since_s)
        steady = bisect_right(older, self._steady_after_s)
        if steady == len(older):
            steady += bisect_right(newest, self._steady_after_s)
        return max(steady, min(begin, len(self) - max(1, self.round)))

    def recent(self, name: str) -> float | None:
        """Return the sum of a count over recent rows; ``None`` if unknown, or without rows."""
        if name not in self._sums:
            begin, older = self.recent_from, self._older[name]
            values = self._newest[name][max(0, begin - len(older)) :]
            if begin < len(older):
                values = older[begin:] + values
            total = sum(values)
            # What is not known is less than all sums of what is: looked for only where it is NaN.
            lacks = total < UNKNOWN / 2 or (total != total and UNKNOWN in values)
            self._sums[name] = None if lacks or not values else total
        return self._sums[name]

    def total(self, name: str) -> float | None:
        """Return the sum of a count over all rows; ``None`` if unknown, or without rows."""
        value = self._totals[name]
        return None if value == UNKNOWN or not len(self) else value

    def single(self, name: str, *, is_whole: bool = False) -> list[float]:
        """Return the values of rows of a single step: recent ones, or all that are kept."""
        begin = 0 if is_whole else max(0, self.recent_from - len(self._older["time_s"]))
        return [one for one in self._newest[name][begin:] if one != UNKNOWN]

    def recent_span(self) -> tuple[float, float] | None:
        """Return the Unix times between which the recent steps ran."""
        wall_s = self.recent("wall_s")
        if not wall_s:
            return None
        end_s = (self._newest["time_s"] or self._older["time_s"])[-1]
        return end_s - wall_s, end_s

    def since(self, number: int) -> dict[str, list[float]]:
        """Return the rows numbered above ``number``.

        Args:
            number: not below :attr:`joined_up_to`.
        """
        begin = bisect_right(self._numbers, number)
        return {
            name: [] if name.startswith((LOW, HIGH)) else list(self._newest[name][begin:])
            for name in self._names
        }

    def whole(self, points: int) -> dict[str, list[float]]:
        """Return all rows, with neighbors joined until there are at most ``points``.

        Columns of extremes end with the last row that stands for several steps.
        """
        # Older rows stand for more steps each: joined first, so that all points span the same.
        steps = len(self._older["time_s"]) * self._size + len(self._numbers)
        # Each part may end with a row of fewer steps.
        spare = 1 if len(self._older["time_s"]) and len(self._numbers) else 0
        size = 1 if steps <= points else -(-steps // max(1, points - spare))
        older = max(1, -(-size // self._size))
        before = _joined(self._older, older)
        after = _joined(self._newest, size)
        is_single = older * self._size == 1
        told = {}
        for name in self._names:
            is_extreme = name.startswith((LOW, HIGH))
            told[name] = [
                *(before[name] if not (is_extreme and is_single and size == 1) else ()),
                *(after[name] if not (is_extreme and size == 1) else ()),
            ]
        return told

    def _retire(self) -> None:
        """Move the older half of the newest rows to the older ones."""
        old = {name: column[: self._chunk] for name, column in self._newest.items()}
        for name, column in _joined(old, self._size).items():
            self._older[name].extend(column)
            self._newest[name] = self._newest[name][self._chunk :]
        self.joined_up_to = self._numbers[self._chunk - 1]
        self._numbers = self._numbers[self._chunk :]
        self._bound()

    def _bound(self) -> None:
        self._forget()
        while len(self._older["time_s"]) > self._most_older:
            joined = _joined(self._older, 2)
            self._older = {name: array("d", column) for name, column in joined.items()}
            self._size *= 2

    def _empty(self) -> dict[str, array[float]]:
        return {name: array("d") for name in self._names}


def _joined(columns: Mapping[str, array[float]], size: int) -> dict[str, Sequence[float]]:
    """Join every ``size`` neighboring rows into one; the last may stand for fewer."""
    if size == 1 or not len(columns["time_s"]):
        return dict(columns)
    import numpy as np

    # All columns at once: of very many tables, a call per column costs more than what it does.
    begins = np.arange(0, len(columns["time_s"]), size)
    joined: dict[str, Sequence[float]] = {}
    for rule in (_lasts, _lows, _highs, _sums, _means):
        names = [name for name in columns if _rule(name) is rule]
        if names:
            values = np.array([columns[name] for name in names])
            joined |= zip(names, rule(values, begins).tolist(), strict=True)
    return joined


@cache
def _rule(name: str) -> Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]:
    if name in KEEP_LAST:
        return _lasts
    if name in _COUNTS:
        return _sums
    return _lows if name.startswith(LOW) else _highs if name.startswith(HIGH) else _means


def _lasts(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    return values[:, [*(begins[1:] - 1), -1]]


def _highs(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    return np.maximum.reduceat(values, begins, axis=1)  # what is not known is less than all


def _lows(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    known = np.where(values == UNKNOWN, np.inf, values)
    lows = np.minimum.reduceat(known, begins, axis=1)
    return np.where(lows == np.inf, UNKNOWN, lows)


def _sums(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    lacks = np.logical_or.reduceat(values == UNKNOWN, begins, axis=1)
    sums = np.add.reduceat(np.where(values == UNKNOWN, 0.0, values), begins, axis=1)
    return np.where(lacks, UNKNOWN, sums)


def divided(columns: Mapping[str, Sequence[float]], name: str, by: str) -> list[float]:
    """Divide one count by another, row by row."""
    return [
        UNKNOWN if UNKNOWN in (one, other) or other <= 0 else one / other
        for one, other in zip(columns[name], columns[by], strict=True)
    ]


def _means(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    known = values != UNKNOWN
    with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN, and is shown as that
        counts = np.add.reduceat(known, begins, axis=1, dtype=np.int64)
        sums = np.add.reduceat(np.where(known, values, 0.0), begins, axis=1)
        return np.where(counts > 0, sums / np.maximum(counts, 1), UNKNOWN)


def page_columns(columns: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return columns for JSON: rounded, ``None`` for unknown values; empty if all are unknown.

    Extremes are under ``low`` and ``high``, by the name of their column.
    """
    known = {name: of for name, of in columns.items() if of.count(UNKNOWN) < len(of)}
    # All at once: a page of many ranks has a million of them.
    figures = [one for name, of in known.items() if name not in KEEP_LAST for one in of]
    rounded = iter(_rounded(figures))
    told: dict[str, Any] = {}
    for name, values in columns.items():
        column: Column = ()
        if name in known and name in KEEP_LAST:
            column = _carried(tuple(_to_thousandths(values)))
        elif name in known:
            column = _carried(tuple(islice(rounded, len(values))))
        if not name.startswith((LOW, HIGH)):
            told[name] = column
        elif column:
            which, _, what = name.partition("_")
            told.setdefault(which, {})[what] = column
    return told


def _carried(values: tuple[float, ...]) -> Column:
    if UNKNOWN not in values and isfinite(sum(values)):
        return values
    return tuple(None if one == UNKNOWN else carried(one) for one in values)


def _to_thousandths(values: Sequence[float]) -> list[float]:
    import numpy as np

    told = np.array(values, dtype=np.float64)
    is_known = told != UNKNOWN
    rounded = np.round(np.where(is_known, told, 0.0), 3)
    result: list[float] = np.where(is_known, rounded, told).tolist()
    return result


def _rounded(values: Sequence[float]) -> list[float]:
    """Round to :data:`DIGITS` significant digits; values that are unknown or not finite stay."""
    if not values:
        return []
    import numpy as np

    told = np.array(values, dtype=np.float64)
    sizes = np.abs(told)
    is_plain = (sizes > LEAST_ROUNDED) & (sizes < MOST_ROUNDED)
    exponents = DIGITS - 1 - np.floor(np.log10(sizes, where=is_plain, out=np.zeros_like(told)))
    # Either of them is 1, and the other exact: the results are the floats nearest to the decimals.
    up, down = 10.0 ** np.maximum(exponents, 0), 10.0 ** np.maximum(-exponents, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        rounded = np.rint(told * up / down) * down / up
    result: list[float] = np.where(is_plain, rounded, told).tolist()
    return result
