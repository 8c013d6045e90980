"""Measuring condition: notices what disturbs a measurement on this node."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from jupyter_mntrain.model.records.node import Condition

CONDITIONS: tuple[Condition, ...] = get_args(Condition)

STARVED_SHARE = 0.7
"""A measurement is "short of CPU" if a thread of either end waited for a core longer than this
share of it. Of 200 measurements, this finds 33 of the 51 that read more than 5 % too low, and
blames 18 of the others; 0.1 blamed all (benchmarks/METHODOLOGY.md)."""

SCHEDSTAT = Path("/proc/thread-self/schedstat")
"""Nanoseconds that the calling thread ran, and that it was ready to run but had no core."""


class ConditionWatch:
    """Watches one measurement, from where it is made to :meth:`condition`, in one thread.

    Args:
        has_job: whether a job holds a lease on this node now.
    """

    def __init__(self, has_job: Callable[[], bool]) -> None:
        self._has_job = has_job
        self._had_job = has_job()
        self._begin_s = time.monotonic()
        self._waited_s = _waited_s()

    def condition(self) -> Condition:
        if self._had_job or self._has_job():
            return "beside a job"
        return "short of CPU" if self.waited_share() > STARVED_SHARE else "alone"

    def waited_share(self) -> float:
        """Share of the time in which the thread was ready to run but had no core."""
        return (_waited_s() - self._waited_s) / (time.monotonic() - self._begin_s)


def _waited_s() -> float:
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except OSError:  # a kernel without scheduler statistics
        return 0.0
