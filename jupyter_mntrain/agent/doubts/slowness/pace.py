"""Step pace: notices that the steps of a rank take longer than before. Pure.

Two measures, because a job can be slow in two ways. Either the typical step takes longer: the
median of the recent steps is compared with that of all normal ones. Or a few steps take so long, as
when a disk hangs at every save, that the median does not show it: then the means are compared.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean, median

from jupyter_mntrain.agent.doubts.slowness.history import MOST_VALUES, History
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.pressure import Measure

TIMES = tunables.ratio("slowness.times")
OVER_TIMES = tunables.ratio("slowness.over_times")
NOISE = tunables.ratio("slowness.noise")
SUSTAINED_S = tunables.seconds("slowness.sustained_s")
WARM_UP_STEPS = tunables.count("slowness.warm_up_steps")
LEAST_STEPS = tunables.count("slowness.least_steps")
LEAST_S = tunables.seconds("slowness.least_s")
RECENT_STEPS = 3
LONG_TIMES = tunables.ratio("slowness.long_times")
LONG_TIMES_HIGH = tunables.ratio("slowness.long_times_high")
LONG_STEP_S = tunables.seconds("slowness.long_step_s")
LONG_STEPS_SPAN_S = tunables.seconds("slowness.long_steps_span_s")
LONG_STEPS_APART = tunables.count("slowness.long_steps_apart")
LONG_STEPS_LOST_S = tunables.seconds("slowness.long_steps_lost_s")
LONG_STEPS_NORMAL = tunables.count("slowness.long_steps_normal")


class StepPace:
    """Watches the durations of one rank's steps, or of what is counted instead.

    Args:
        least_s: normal time that must be known.
        sustained_s: how long it must be slow.
    """

    def __init__(self, least_s: float = LEAST_S, sustained_s: float = SUSTAINED_S) -> None:
        self._least_s = least_s
        self._sustained_s = sustained_s
        self._skip = WARM_UP_STEPS
        self.history = History(RECENT_STEPS)
        self._steps: deque[tuple[float, float]] = deque(maxlen=MOST_VALUES)
        self._long: list[tuple[float, float]] = []
        self._suspect_s: float | None = None
        self._is_slow = False
        self._is_by_mean = False

    @property
    def is_suspect(self) -> bool:
        """Whether it may be slow: its values are not taken for normal."""
        return self._suspect_s is not None

    @property
    def is_odd(self) -> bool:
        """Whether it may be slow, or had a long step just now: worth looking closer."""
        return self.is_suspect or bool(self._long)

    def suspect_for(self, now_s: float) -> float:
        """For how long it may have been slow; until it may be, as long as any long step counts."""
        return LONG_STEPS_SPAN_S if self._suspect_s is None else now_s - self._suspect_s

    @property
    def since_s(self) -> float | None:
        """When it became slower; ``None`` if it is not, or not for long enough."""
        return self._suspect_s if self._is_slow else None

    @property
    def is_by_mean(self) -> bool:
        """Whether only a few steps are long."""
        return self._is_by_mean

    def add(self, time_s: float, duration_s: float) -> bool:
        """Take a step that ended at ``time_s``; false if it is of the warm-up."""
        if self._skip > 0:
            self._skip -= 1
            return False
        self.history.add(time_s, duration_s)
        self._steps.append((time_s, duration_s))
        usual_s = max(LONG_TIMES * self.history.before, LONG_TIMES_HIGH * self.history.high)
        if usual_s and duration_s > max(usual_s, LONG_STEP_S):
            self._long.append((time_s, duration_s))
        return True

    def look(self, now_s: float) -> None:
        """Judge; call about once a second."""
        history = self.history
        history.age(now_s, is_slow=self.is_suspect)
        self._long = [one for one in self._long if one[0] > now_s - LONG_STEPS_SPAN_S]
        if history.normal_count < LEAST_STEPS or history.normal_s < self._least_s:
            return
        times = OVER_TIMES if self._is_slow else TIMES
        recent = history.recent(now_s)
        limit = max(times * history.before, history.before + NOISE * history.spread)
        is_by_median = len(recent) >= RECENT_STEPS and median(recent) > limit
        is_by_mean = not is_by_median and self._has_long_steps(times)
        if not (is_by_median or is_by_mean):
            self._suspect_s, self._is_slow, self._is_by_mean = None, False, False
            return
        self._is_by_mean = is_by_mean
        if self._suspect_s is None:
            self._suspect_s = self._begin(now_s, limit)
        if now_s - self._suspect_s >= self._sustained_s:
            self._is_slow = True

    def measure(self, now_s: float) -> Measure:
        """Seconds per step."""
        history = self.history
        if self._is_by_mean:
            return Measure(now=fmean(self._since_long()), before=history.mean_before)
        recent = history.recent(now_s)
        return Measure(now=median(recent) if recent else history.before, before=history.before)

    def _has_long_steps(self, times: float) -> bool:
        """Whether steps are long again and again, and more time is lost by it than before."""
        if len(self._long) < 2 or self.history.normal_count < LONG_STEPS_NORMAL:
            return False
        steps, before = self._since_long(), self.history.mean_before
        lost_s = sum(steps) - before * len(steps)
        is_often = len(steps) >= LONG_STEPS_APART and lost_s > LONG_STEPS_LOST_S
        return is_often and fmean(steps) > times * before

    def _since_long(self) -> list[float]:
        """The steps since the end of the first long one: whole rounds of short and long ones."""
        if not self._long:
            return [self.history.mean_before]
        first_s = self._long[0][0]
        return [duration for time_s, duration in self._steps if time_s > first_s]

    def _begin(self, now_s: float, limit_s: float) -> float:
        """When the first of the slow steps began."""
        if self._is_by_mean:
            time_s, duration_s = self._long[0]
            return time_s - duration_s
        slow = [one for one in self.history.timed(now_s) if one[1] > limit_s]
        return slow[0][0] - slow[0][1] if slow else now_s
