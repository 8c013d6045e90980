"""Attempt clock: one time line for all parts, independent of the machines' own clocks.

Diagnosis depends on what happened first. So all parts of an attempt take their times from the clock
of the machine that started it, continued by each machine's monotonic clock: clocks that are wrong,
or corrected while a job runs, do not matter. The remaining error is the delay of the start request:
milliseconds. Imports as little as the supervisor does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import inf

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.environment import CLOCK_VARIABLE

MOST_DIFFERENCE_S = tunables.seconds("doctor.most_clock_difference_s")
"""A clock that is off by less is not mentioned."""

Clock = Callable[[], float]
"""Unix time in seconds."""


def epoch_s(sent_s: float | None) -> float:
    """Return the Unix time at which this machine's monotonic clock was zero.

    Args:
        sent_s: current time of the reference clock; ``None`` = this machine's.
    """
    return (time.time() if sent_s is None else sent_s) - time.monotonic()


def clock_of(environment: Mapping[str, str]) -> Clock:
    """Return the clock of this process's attempt; outside of an attempt, the machine's own."""
    try:
        begun_s = float(environment[CLOCK_VARIABLE])
    except (KeyError, ValueError):
        return time.time
    return lambda: begun_s + time.monotonic()


class HeardClock:
    """Another machine's clock, estimated from lines that it sends as soon as they are written.

    What arrives at the pace at which it was written was not waiting anywhere: its time is that
    clock's, less the way here, and the latest of these is the nearest.
    """

    PACE = 0.25
    """Share by which the time between two arrivals may differ from that between the lines."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        self._epoch_s = -inf
        """Its Unix time when this process's monotonic clock was zero."""

    def hear(self, time_s: float, arrived_s: float) -> None:
        """Record the time of a line.

        Args:
            time_s: by that clock, when it was written.
            arrived_s: monotonic seconds here.
        """
        before, self._before = self._before, (time_s, arrived_s)
        if before is None:
            return
        wrote_s, took_s = time_s - before[0], arrived_s - before[1]
        if wrote_s > 0 and abs(took_s - wrote_s) <= self.PACE * wrote_s:
            self._epoch_s = max(self._epoch_s, time_s - arrived_s)

    def begin(self) -> None:
        """Start over, as the next line may have waited."""
        self._before = None

    def ahead_s(self, time_s: float, monotonic_s: float) -> float:
        """Return how far it is ahead of this machine's clock; 0 while unknown.

        Args:
            time_s, monotonic_s: now, by this machine's clocks.
        """
        return 0.0 if self._epoch_s == -inf else self._epoch_s + monotonic_s - time_s
