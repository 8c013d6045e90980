"""Attempt end: waits until an attempt has no process left, then records how it ended."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.agent.attempt.directory import (
    AttemptDirectory,
    SupervisorStatus,
    oom_kills_since,
)
from jupyter_mntrain.agent.attempt.processes import KILL_PATIENCE_S, Alive, describe
from jupyter_mntrain.agent.failure.cause import explain
from jupyter_mntrain.agent.failure.foreign_messages import recognize
from jupyter_mntrain.agent.failure.stacks import last_line
from jupyter_mntrain.agent.jobs.rank_processes import rank_downs
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.lifecycle.events import EndAwaited, Exited, PartEvent, RankDown
from jupyter_mntrain.model.records.job import Leftover, PartStatus
from jupyter_mntrain.telemetry.gpus import GpuReader

RELEASE_PATIENCE_S = 3.0
"""Timeout for freeing GPU memory after a process ends: it takes milliseconds unless it hangs."""


class AttemptEnd:
    """Records the end of an attempt whose supervisor has finished or was killed.

    Args:
        gpus: tells whether the memory of its ranks is free again.
    """

    def __init__(self, attempt: AttemptDirectory, gpus: GpuReader) -> None:
        self._attempt = attempt
        self._gpus = gpus
        self._sweep_until_s: float | None = None
        self._release_until_s: float | None = None
        self.is_forced = False
        self._killed: tuple[Rank, ...] = ()
        """Ranks that were still there when it was forced."""

    @property
    def has_begun(self) -> bool:
        if self.is_forced:
            return True
        return self._attempt.status() is not None or not self._attempt.supervisor_is_alive()

    def force(self) -> None:
        """End the attempt without its supervisor, which has failed to do so."""
        self.is_forced = True
        self._killed = self._killed or tuple(rank for rank, _ in self._attempt.living_ranks())
        self._attempt.kill()

    def look(self, part: PartStatus, now_s: float) -> tuple[PartEvent, ...]:
        """Return the events that end the part; none while processes remain or GPU memory is still
        held.

        Args:
            now_s: monotonic seconds.
        """
        status = None if self.is_forced else self._attempt.status()
        if status is None and not self._sweep(now_s):
            return ()
        held = self._gpus.held_by([rank.pid for rank in part.ranks if rank.pid])
        self._release_until_s = self._release_until_s or now_s + RELEASE_PATIENCE_S
        if held and now_s < self._release_until_s:
            return ()
        ended_s = status.ended_s if status else self._attempt.clock()
        killed = [
            RankDown(
                rank=rank,
                exit_code=-signal.SIGKILL,
                killed_in=last_line(self._attempt.path, rank),
            )
            for rank in (status.killed if status else self._killed)
            if part.state == "stopping"
        ]
        downs = rank_downs(
            self._attempt,
            [rank.rank for rank in part.ranks],
            ended_s,
            gone={rank.rank: (rank.ended_s, rank.exit_code) for rank in part.ranks if rank.ended_s},
            has_run_out=self._has_run_out(),
        )
        exited = Exited(
            time_s=ended_s,
            exit_code=status.exit_code if status else None,
            problem=self._problem(part, status, downs, ended_s),
            leftovers=(*(status.leftovers if status else self._leftovers()), *held),
        )
        return *killed, *downs, exited

    def _sweep(self, now_s: float) -> bool:
        """Kill what a killed supervisor left. Returns whether all is gone or cannot be killed."""
        alive = self._attempt.kill()
        self._sweep_until_s = self._sweep_until_s or now_s + KILL_PATIENCE_S
        return not alive or now_s >= self._sweep_until_s

    def _leftovers(self) -> tuple[Leftover, ...]:
        alive = [describe(pid) for pid in sorted(self._attempt.alive())]
        return msgspec.convert(alive, tuple[Leftover, ...])

    def _problem(
        self,
        part: PartStatus,
        status: SupervisorStatus | None,
        downs: Sequence[RankDown],
        ended_s: float,
    ) -> Problem | None:
        if part.state == "stopping" or (status and not status.error and status.exit_code == 0):
            return None
        if status is None:
            return self._without_supervisor(part, ended_s)
        if status.error is not None:
            known = recognize(status.error)
            # A file that is missing here is the interpreter: nothing that could be sent.
            is_of_job = known is not None and known.kind is not Kind.NO_FILE
            fix = known.fix if known and is_of_job else fix_of(Kind.NOT_STARTED)
            cause = f"torchrun did not start: {status.error}"
            return Problem(kind=Kind.NOT_STARTED, cause=cause, fix=fix, time_s=ended_s)
        problem = explain(
            self._attempt.path,
            downs,
            status.exit_code,
            ended_s,
            has_run_out=self._has_run_out(),
        )
        if status.disk_was_full and problem.kind is not Kind.DISK_FULL:
            # The disk was full: the supervisor could not write how the attempt ended.
            cause = f"the disk of {self._attempt.path} is full"
            return msgspec.structs.replace(
                problem, kind=Kind.DISK_FULL, cause=cause, fix=fix_of(Kind.DISK_FULL)
            )
        return problem

    def _has_run_out(self) -> bool | None:
        count = oom_kills_since(self._attempt.identity)
        return None if count is None else count > 0

    def _without_supervisor(self, part: PartStatus, time_s: float) -> Problem:
        if part.state_problem is not None:
            cause = f"how its part ended is not known: {part.state_problem.cause}"
            return msgspec.structs.replace(part.state_problem, cause=cause, time_s=time_s)
        kind = Kind.SUPERVISOR_LOST
        cause = "the attempt's supervisor was killed, so the agent ended the attempt's processes"
        if self._attempt.identity is None:
            cause = "the agent was killed before it could start torchrun"
        elif self._attempt.is_of_another_boot():
            kind = Kind.MACHINE_RESTARTED
            cause = "the machine was restarted while the job was running"
        return Problem(kind=kind, cause=cause, fix=fix_of(kind), time_s=time_s)


# Stopping: ends an attempt through its supervisor, or directly if the supervisor is frozen.


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
