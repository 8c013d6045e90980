"""Column tables: grow row by row, keep a bounded length, and number their rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import islice, repeat
from math import fsum, isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.metrics.recent import MOST_RECENT_STEPS, RECENT_S
from jupyter_mntrain.metrics.series import Column
from jupyter_mntrain.metrics.thinned.samples import UNKNOWN
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
"""Significant ones that go to a page: a picture shows fewer."""

LEAST_ROUNDED, MOST_ROUNDED = 1e-17, 1e27
"""Between them, rounding needs no power of ten above 1e22, the last that a float holds exactly."""

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
        self._averages: dict[str, float | None] = {}
        """As long as no row is added: of many ranks, each has several figures."""
        self.joined_up_to = 0
        """Rows up to this number are no longer kept one by one."""
        self.round = 0
        """Steps of which one takes much longer than the others; 0 if all are alike. Once there are
        so many, they are the recent ones."""

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
        self._averages.clear()
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
            column.append(UNKNOWN if value is None else value)
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
        if self._has_round:
            return slice(len(times) - self.round, len(times))
        begin = bisect_right(times, times[-1] - RECENT_S)
        return slice(max(begin, len(times) - MOST_RECENT_STEPS, self._warm_up), len(times))

    @property
    def _has_round(self) -> bool:
        return 0 < self.round <= min(self._chunk, len(self._numbers) - self._warm_up)

    def recent(self, name: str) -> float | None:
        """Median of the known values of the recent rows; ``None`` if there are none.

        Of a round, whose median would leave out its longest step, the mean over its time.
        """
        if name not in self._averages:
            rows = self.recent_rows()
            values: Sequence[float] = self._newest[name][rows]
            if self._has_round:
                seconds = self._newest["step_s"][rows]
                found = _over_time(values, repeat(1.0) if name == "step_s" else seconds)
            else:
                if UNKNOWN in values:
                    values = [value for value in values if value != UNKNOWN]
                found = median(values) if values else None
            self._averages[name] = found
        return self._averages[name]

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
        """Make the older half of the newest rows older ones."""
        old = {name: column[: self._chunk] for name, column in self._newest.items()}
        for name, column in _joined(old, self._size).items():
            self._older[name].extend(column)
            self._newest[name] = self._newest[name][self._chunk :]
        self.joined_up_to = self._numbers[self._chunk - 1]
        self._numbers = self._numbers[self._chunk :]
        self._warm_up = 0
        self._bound()

    def _bound(self) -> None:
        while len(self._older["time_s"]) > self._most_older:
            joined = _joined(self._older, 2)
            self._older = {name: array("d", column) for name, column in joined.items()}
            self._size *= 2

    def _empty(self) -> dict[str, array[float]]:
        return {name: array("d") for name in self._names}


def _over_time(values: Iterable[float], seconds: Iterable[float]) -> float | None:
    known = [pair for pair in zip(values, seconds, strict=False) if pair[0] != UNKNOWN]
    total = fsum(one for _, one in known)
    return fsum(value * one for value, one in known) / total if total > 0 else None


def _joined(columns: Mapping[str, array[float]], size: int) -> dict[str, Sequence[float]]:
    """One value for every ``size`` neighbors; the last of them may be fewer."""
    if size == 1 or not len(columns["time_s"]):
        return dict(columns)
    import numpy as np

    # All columns at once: of very many tables, a call per column costs more than what it does.
    begins = np.arange(0, len(columns["time_s"]), size)
    joined: dict[str, Sequence[float]] = {}
    for rule in (_lasts, _lows, _highs, _means):
        names = [name for name in columns if _rule(name) is rule]
        if names:
            values = np.array([columns[name] for name in names])
            joined |= zip(names, rule(values, begins).tolist(), strict=True)
    return joined


@cache
def _rule(name: str) -> Callable[[NDArray[np.float64], NDArray[np.int64]], NDArray[np.float64]]:
    if name in KEEP_LAST:
        return _lasts
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


def _means(values: NDArray[np.float64], begins: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    known = values != UNKNOWN
    with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN, and is shown as that
        counts = np.add.reduceat(known, begins, axis=1, dtype=np.int64)
        sums = np.add.reduceat(np.where(known, values, 0.0), begins, axis=1)
        return np.where(counts > 0, sums / np.maximum(counts, 1), UNKNOWN)


def page_columns(columns: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """As JSON carries them: rounded, ``None`` for what is not known; empty if nothing is.

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
    """To :data:`DIGITS` significant ones; what is not known or not finite stays."""
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
