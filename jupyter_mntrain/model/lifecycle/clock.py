"""Attempt clock: one time line for all parts, independent of the machines' own clocks.

Diagnosis depends on what happened first. So all parts of an attempt take their times from the clock
of the machine that started it, continued by each machine's monotonic clock: clocks that are wrong,
or corrected while a job runs, do not matter. The remaining error is the delay of the start request:
milliseconds. Imports only the standard library, for the keeper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from jupyter_mntrain.model.environment import CLOCK_VARIABLE

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
