"""Attempt clock: one time line for all parts, independent of the machines' own clocks.

What happened first tells who is to blame, so the parts of an attempt tell their times by the clock
of whoever started it, carried on by each machine's monotonic clock. A machine that is an hour off,
or is set right while a job runs, changes nothing about them. What stays is how long the start took
to arrive: milliseconds. Only the standard library: the keeper imports it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from jupyter_mntrain.model.environment import CLOCK_VARIABLE

Clock = Callable[[], float]
"""Unix time in seconds."""


def epoch_s(sent_s: float | None) -> float:
    """The Unix time at which this machine's monotonic clock was at zero.

    Args:
        sent_s: what the clock to go by says now; ``None`` = this machine's.
    """
    return (time.time() if sent_s is None else sent_s) - time.monotonic()


def clock_of(environment: Mapping[str, str]) -> Clock:
    """The clock of the attempt that a process belongs to; outside of one, the machine's own."""
    try:
        begun_s = float(environment[CLOCK_VARIABLE])
    except (KeyError, ValueError):
        return time.time
    return lambda: begun_s + time.monotonic()
