"""History: values of one quantity over time, and what is normal for it. Pure."""

from __future__ import annotations

from collections import deque
from statistics import fmean, median

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.pressure import Measure

RECENT_S = tunables.seconds("slowness.recent_s")
HELD_S = tunables.seconds("slowness.held_s")
MOST_VALUES = tunables.count("slowness.values")
HIGH = 0.98
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class History:
    """Values that become the normal ones when they are old enough and nothing was slow.

    Args:
        fewest: so many newest values count as recent, however old they are.
    """

    def __init__(self, fewest: int = 1) -> None:
        self._fewest = fewest
        self._normal: deque[float] = deque(maxlen=MOST_VALUES)
        self._new: deque[tuple[float, float]] = deque(maxlen=MOST_VALUES)
        self._cache: tuple[int, float, float, float, float] | None = None
        self._changes = 0
        self.normal_s = 0.0
        """Time that the normal values span."""

    def add(self, time_s: float, value: float) -> None:
        self._new.append((time_s, value))

    def age(self, now_s: float, *, is_slow: bool) -> None:
        """Take old values for normal, or drop them if they may be of a slow time."""
        while len(self._new) > self._fewest and self._new[0][0] < now_s - HELD_S:
            begin_s, value = self._new.popleft()
            if not is_slow:
                self._normal.append(value)
                self._changes += 1
                self.normal_s += min(HELD_S, self._new[0][0] - begin_s)

    @property
    def normal_count(self) -> int:
        return len(self._normal)

    @property
    def before(self) -> float:
        """Median of the normal values."""
        return self._statistics()[0]

    @property
    def mean_before(self) -> float:
        return self._statistics()[1]

    @property
    def high(self) -> float:
        """What few of the normal values exceed."""
        return self._statistics()[3]

    @property
    def spread(self) -> float:
        """Robust standard deviation of the normal values."""
        return self._statistics()[2]

    def timed(self, now_s: float, span_s: float = RECENT_S) -> list[tuple[float, float]]:
        """The recent values with their times."""
        new = list(self._new)
        values = [one for one in new if one[0] > now_s - span_s]
        few = new[-self._fewest :]
        return values if len(values) >= len(few) else few

    def recent(self, now_s: float, span_s: float = RECENT_S) -> list[float]:
        return [value for _, value in self.timed(now_s, span_s)]

    def measure(self, now_s: float, span_s: float = RECENT_S) -> Measure:
        """The mean of the recent values, and the median of the normal ones."""
        recent = self.recent(now_s, span_s)
        before = self.before
        return Measure(now=fmean(recent) if recent else before, before=before)

    def _statistics(self) -> tuple[float, float, float, float]:
        if self._cache is None or self._cache[0] != self._changes:
            values = self._normal
            middle = median(values) if values else 0.0
            spread = NORMAL * median(abs(one - middle) for one in values) if values else 0.0
            high = sorted(values)[int(HIGH * len(values))] if values else 0.0
            mean = fmean(values) if values else 0.0
            self._cache = (self._changes, middle, mean, spread, high)
        return self._cache[1:]
