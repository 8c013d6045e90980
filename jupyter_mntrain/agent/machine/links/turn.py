"""Turn to measure: one driver at a time may measure this node's links, and not beside a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.probes import MEASURE_LEASE_S, MeasureLease


class MeasureTurn:
    """Whose turn it is. It ends when it is given back, or was not renewed in time.

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
        """Raise RefusedError if somebody else's turn has not ended."""
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
