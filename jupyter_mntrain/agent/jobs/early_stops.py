"""Early stops: stop requests that arrived before the start they refer to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jupyter_mntrain.model.ids import JobId

REMEMBERED_S = 60.0
"""How long a stop that arrives before its start is remembered: longer than any request takes to
arrive, as drivers give up after seconds."""


@dataclass
class EarlyStops:
    """Remembers the last attempt of each job that must no longer start.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float]
    _stops: dict[JobId, tuple[float, float]] = field(default_factory=dict)
    """Job → (last attempt that must not start, until when)."""

    def remember(self, job_id: JobId, attempt: int | None) -> None:
        """Refuse later starts of an attempt and those before it; ``None`` = of any attempt."""
        now = self.clock()
        self._stops = {job: stop for job, stop in self._stops.items() if stop[1] > now}
        last = float("inf") if attempt is None else float(attempt)
        before = self._stops.get(job_id, (0.0, 0.0))[0]
        self._stops[job_id] = (max(last, before), now + REMEMBERED_S)

    def includes(self, job_id: JobId, attempt: int) -> bool:
        last, until = self._stops.get(job_id, (0.0, 0.0))
        return attempt <= last and self.clock() < until
