"""Stopping: ends an attempt through its supervisor, or directly if the supervisor is frozen."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory
from jupyter_mntrain.agent.attempt.processes import Alive, describe
from jupyter_mntrain.agent.jobs.attempt_end import AttemptEnd
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.events import EndAwaited
from jupyter_mntrain.model.records.leftover import Leftover

log = logging.getLogger("mntrain.agent")


# Early stops: stop requests that arrived before the start they refer to.


REMEMBERED_S = 60.0
"""How long a stop that arrives before its start is remembered: longer than any request takes to
arrive, as drivers give up after seconds."""


@dataclass
class EarlyStops:
    """Remembers, for each job, the last attempt that must no longer start.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float]
    _stops: dict[JobId, tuple[float, float]] = field(default_factory=dict)
    """Job → (last attempt that must not start, until when)."""

    def remember(self, job_id: JobId, attempt: int | None) -> None:
        """Refuse later starts of an attempt and of earlier ones; ``None`` means all attempts."""
        now = self.clock()
        self._stops = {job: stop for job, stop in self._stops.items() if stop[1] > now}
        last = float("inf") if attempt is None else float(attempt)
        before = self._stops.get(job_id, (0.0, 0.0))[0]
        self._stops[job_id] = (max(last, before), now + REMEMBERED_S)

    def includes(self, job_id: JobId, attempt: int) -> bool:
        last, until = self._stops.get(job_id, (0.0, 0.0))
        return attempt <= last and self.clock() < until


PATIENCE_S = 6.0
"""After a stop's grace, the supervisor gets this long to end the attempt; then the agent kills the
supervisor and every process. Longer than the time after SIGKILL in which a healthy supervisor has
ended."""

LOOK_INTERVAL_S = 1.0
"""Interval of saying which processes a stop waits for. The first look comes after one, so that
what ends at once is not named."""

RUNNING = "running"


class Stopping:
    """The stop of one attempt.

    Args:
        end: concludes the attempt.
    """

    def __init__(self, attempt: AttemptDirectory, end: AttemptEnd) -> None:
        self._attempt = attempt
        self._end = end
        self._force_at_s: float | None = None
        self._look_at_s: float | None = None

    def ask(self, grace_s: float) -> None:
        """End every process. The supervisor, if there is one, gets the grace period and more."""
        if not grace_s:
            self._end.force()
            return
        force_at_s = time.monotonic() + grace_s + PATIENCE_S
        self._force_at_s = min(force_at_s, self._force_at_s or force_at_s)
        self._attempt.stop(grace_s)

    def look(self, now_s: float) -> EndAwaited | None:
        """Bypass a late supervisor, and report at intervals which processes remain. Call often.

        Args:
            now_s: monotonic seconds.
        """
        if self._force_at_s is None:  # asked of an earlier agent
            self._force_at_s = now_s + self._attempt.grace_s + PATIENCE_S
        if now_s >= self._force_at_s and not self._end.is_forced:
            log.warning("job %s: its supervisor does not end it", self._attempt.job_id)
            self._end.force()
        # The first look is late enough not to name what ends at once.
        self._look_at_s = self._look_at_s or now_s + LOOK_INTERVAL_S
        if now_s < self._look_at_s:
            return None
        self._look_at_s = now_s + LOOK_INTERVAL_S
        return EndAwaited(processes=awaited(self._attempt.alive()))


def awaited(alive: Alive) -> tuple[Leftover, ...]:
    """Describe the processes that a stop waits for. Running and sleeping count as one state, as
    they alternate.
    """
    found = [msgspec.convert(describe(pid), Leftover) for pid in sorted(alive)]
    return tuple(
        msgspec.structs.replace(one, status=RUNNING) if one.status[:1] in "RSI" else one
        for one in found
    )
