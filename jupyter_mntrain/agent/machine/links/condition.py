"""Measuring condition: notices what disturbs a measurement on this node."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.node import Condition

CONDITIONS: tuple[Condition, ...] = get_args(Condition)

STARVED_SHARE = tunables.ratio("links.starved_share")

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
        return "starved of CPU" if self.waited_share() > STARVED_SHARE else "alone"

    def waited_share(self) -> float:
        """Share of the time in which the thread was ready to run but had no core."""
        return (_waited_s() - self._waited_s) / (time.monotonic() - self._begin_s)


def _waited_s() -> float:
    try:
        return int(SCHEDSTAT.read_text().split()[1]) / 1e9
    except OSError:  # a kernel without scheduler statistics
        return 0.0
