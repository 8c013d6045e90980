"""Turn to measure: lets one driver at a time measure this node's links, and only between jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.node import Condition
from jupyter_mntrain.model.records.probes import MEASURE_LEASE_S, MeasureLease

# Measuring condition: notices what disturbs a measurement on this node.


CONDITIONS: tuple[Condition, ...] = get_args(Condition)

STARVED_SHARE = 0.7
"""A measurement is "short of CPU" if a thread of either end waited for a core longer than this
share of it. Of 200 measurements, this finds 33 of the 51 that read more than 5 % too low, and
blames 18 of the others; 0.1 blamed all (benchmarks/METHODOLOGY.md)."""

SCHEDSTAT = Path("/proc/thread-self/schedstat")
"""Nanoseconds that the calling thread ran, and that it was ready to run but had no core."""


class ConditionWatch:
    """Watches for disturbances of one measurement, from its creation to :meth:`condition`, in one
    thread.

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


class MeasureTurn:
    """The turn to measure. It ends when it is given back, or is not renewed in time.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._holder: MeasureLease | None = None
        self._ends_s = 0.0

    def take(self, asked: MeasureLease, jobs: Mapping[str, JobId], node: str) -> None:
        """Grant, renew or end a turn.

        Args:
            jobs: that train now, by interface.

        Raises:
            RefusedError: another driver measures, or a job trains over one of the interfaces.
        """
        if asked.expires_in_s <= 0:
            if self._holder is not None and self._holder.key == asked.key:
                self._holder = None
            return
        if not asked.is_beside_jobs:
            _refuse_jobs(asked, jobs, node)
        self.refuse_others(asked.key, node)
        self._holder = asked
        self._ends_s = self._clock() + min(asked.expires_in_s, MEASURE_LEASE_S)

    def refuse_others(self, key: str, node: str) -> None:
        """Raise RefusedError while somebody else has the turn."""
        holder = self._holder
        if holder is not None and self._clock() < self._ends_s and holder.key != key:
            raise RefusedError(
                f"{holder.who or 'another driver'} is measuring links",
                kind=Kind.TOO_MANY,
                fix="wait until that is done",
                node=node,
            )


def _refuse_jobs(asked: MeasureLease, jobs: Mapping[str, JobId], node: str) -> None:
    for interface in asked.interfaces:
        if interface in jobs:
            raise RefusedError(
                f"job {jobs[interface]} trains over {interface}: measuring would slow it down, "
                "and read too low",
                kind=Kind.JOBS_RUNNING,
                fix="wait for it, or measure all the same: --beside-jobs",
                node=node,
            )
