"""Time left: estimates how long the remaining steps take, with pauses, and how sure that is.

Evaluations, samples, saves and long steps recur after so many steps: how many of them are still to
come is counted from where the last ones were, and not taken as a share of the time so far, which
early in a job is off by one of them more or less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean, pvariance, stdev

from jupyter_mntrain.metrics.recent import WARM_UP_STEPS
from jupyter_mntrain.model._record import Record

LEAST_STEPS = 3
"""After those that never count; of fewer nothing can be said of the others."""

KEPT_STEPS = 512
KEPT_PAUSES = 64

LEAST_CERTAINTY = 0.25
"""A time left that may be off by more than this share of itself is not shown."""

SIGMAS = 2.0
"""Standard deviations that cover 19 of 20 cases."""

LEAST_MARGIN = 0.01
"""Smallest margin, as a share of the time left."""

ONCE = 0.24
"""How far off an interval may be that was seen once, as a share."""

ROUNDING = 1e-6

MOST_LEAP = 2.0
"""Times the mean by which the number of a step is above that of the one before, at most."""

KINDS = ("evaluation_s", "sampling_s", "saving_s", "long_s")


class TimeLeft(Record, frozen=True):
    """Seconds left, and the range that contains them in 19 of 20 cases."""

    seconds: float
    low_s: float
    high_s: float


class Recurring:
    """How long a job's steps and pauses took, as needed to estimate its time left."""

    def __init__(self) -> None:
        self._steps: deque[float] = deque(maxlen=KEPT_STEPS)
        """Seconds of the newest single steps that are not long ones, without warm-up."""
        self._sums: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        self._usual = [0.0, 0]
        """Seconds of all steps, and how many, where they were downsampled."""
        self._found: dict[str, deque[tuple[int, float]]] = {
            kind: deque(maxlen=KEPT_PAUSES) for kind in KINDS
        }
        """After which steps the newest pauses of each kind were, and how long."""
        self._numbers: deque[int] = deque(maxlen=KEPT_STEPS)
        """Numbers of the newest single steps, as the script counts them."""
        self._single = 0
        self._first: int | None = None
        self._last = 0

    def take(self, row: Mapping[str, float | None], count: int) -> None:
        """Take a row of one step, or of several."""
        step, steps_s = int(row["step"] or 0), row["steps_s"] or 0.0
        if self._first is None:
            self._first = step - count
        self._last = step
        if count > 1:
            self._usual[0] += steps_s
            self._usual[1] += count
            for kind in KINDS:
                self._sums[kind] += _seconds(row, kind)
            return
        self._single += 1
        self._numbers.append(step)
        for kind in KINDS:
            if took_s := _seconds(row, kind):
                # What stands before a step was after the one before.
                self._found[kind].append((step if kind == "long_s" else step - 1, took_s))
        if not _seconds(row, "long_s") and (self._usual[1] or self._single > WARM_UP_STEPS):
            self._steps.append(steps_s)

    def time_left(self, step: int, total: int, *, age_s: float = 0.0) -> TimeLeft | None:
        """Estimate the seconds until the last step and what follows it; ``None`` if unknown yet.

        Args:
            age_s: since the last step ended, by clocks that may differ: it counts for the next one.
        """
        left, pace = total - step, self._pace()
        known = len(self._steps) + int(self._usual[1])
        if left <= 0 or known < LEAST_STEPS or not self._steps or pace is None:
            return None
        seconds, variance, to_come = 0.0, 0.0, 0.0
        for kind in KINDS:
            number, mean_s, spread = self._to_come(kind, step, total)
            seconds += number * mean_s
            variance += spread
            if kind == "long_s":
                to_come = number
        usual = max(0.0, left / pace - to_come)
        seconds += usual * self._usual_s()
        variance += self._drift(usual) ** 2
        seconds -= min(max(0.0, age_s), self._usual_s() if usual else 0.0)
        margin = max(SIGMAS * sqrt(variance), LEAST_MARGIN * seconds)
        if margin > LEAST_CERTAINTY * seconds:
            return None
        return TimeLeft(seconds, seconds - margin, seconds + margin)

    def _pace(self) -> float | None:
        """Return the mean increment of step numbers, which is 1 unless a script counts otherwise.

        ``None`` if step numbers go back, stand still or leap.
        """
        leaps = [after - before for before, after in pairwise(self._numbers)]
        if not leaps or all(one == 1 for one in leaps):
            return 1.0
        mean = fmean(leaps)
        is_even = min(leaps) >= 0 and 0 < max(leaps) <= max(1.0, MOST_LEAP * mean)
        return mean if is_even else None

    def _usual_s(self) -> float:
        return fmean(self._newest())

    def _newest(self) -> Sequence[float]:
        """Return the newer half of the steps that are kept, as a job may have become slower."""
        kept = list(self._steps)
        return kept[len(kept) // 2 :] if len(kept) >= 2 * LEAST_STEPS else kept

    def _drift(self, number: float) -> float:
        """Return the standard deviation of the sum of ``number`` usual steps.

        The future may differ from the past as parts of the past differ from each other; of few
        steps, the mean itself is uncertain.
        """
        kept = list(self._steps)
        if len(kept) < 2:
            return number * 0.5 * kept[0]
        # By Student's t, whose 19 of 20 are farther out for few.
        unknown = number * stdev(kept) / sqrt(len(kept)) * (1 + 2 / len(kept))
        parts = min(8, len(kept) // 2)
        if parts < 2:
            return unknown
        size = len(kept) // parts
        means = [fmean(kept[-size * (one + 1) : len(kept) - size * one]) for one in range(parts)]
        drifts = number * sqrt(pvariance(means)) * sqrt(1 / parts + size / max(size, number))
        return float(max(unknown, drifts))

    def _to_come(self, kind: str, step: int, total: int) -> tuple[float, float, float]:
        """Return how many pauses are to come, their mean seconds, and the variance of their sum."""
        found = self._found[kind]
        since = self._first or 0
        if not found:
            made = max(1, self._last - since)
            if not self._sums[kind]:
                return 0.0, 0.0, 0.0
            mean_s = self._sums[kind] / made
            return float(total - step), mean_s, (0.1 * mean_s * (total - step)) ** 2
        steps, lengths = [one for one, _ in found], [one for _, one in found]
        mean_s, wait = fmean(lengths), step - steps[-1]
        gaps = [after - before for before, after in pairwise(steps)]
        gaps = [one for one in gaps if one > 0]
        if gaps:
            interval, doubt = fmean(gaps), sqrt(pvariance(gaps)) / fmean(gaps)
        else:
            # Once only: as far apart as it was from the begin, or farther.
            interval, doubt = float(max(steps[-1] - since, wait, 1)), ONCE
        interval = max(interval, 0.5 * wait) if wait > 2 * interval else interval
        # A pause due after this very step has not been reported yet; a long step has.
        missed = int(wait / interval) if kind == "long_s" else int((wait - ROUNDING) / interval)
        number = float(int((total - steps[-1]) / interval + ROUNDING) - missed)
        number = max(0.0, number)
        varies = pvariance(lengths) if len(lengths) > 1 else (0.1 * mean_s) ** 2
        seen = len(lengths)
        spread = varies * number * (1 + number / seen)
        spread += (doubt * mean_s * number) ** 2 / max(1, len(gaps))
        return number, mean_s, spread


def _seconds(row: Mapping[str, float | None], kind: str) -> float:
    """Return a row's seconds of a kind; a stall counts as a long step, which may recur."""
    stalled_s = row.get("stall_s") if kind == "long_s" else 0.0
    return (row[kind] or 0.0) + (stalled_s or 0.0)
