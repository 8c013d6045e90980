"""Attempt end: waits until an attempt has no process left, then records how it ended."""

from __future__ import annotations

import time

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory, KeeperStatus, has_oom_since
from jupyter_mntrain.agent.attempt.processes import KILL_PATIENCE_S, describe
from jupyter_mntrain.agent.failure.cause import explain
from jupyter_mntrain.agent.failure.fixes import FIXES
from jupyter_mntrain.agent.failure.foreign_messages import kind_of
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.state import Exited, RankDown
from jupyter_mntrain.model.records.job import Leftover, PartStatus
from jupyter_mntrain.telemetry.gpus import GpuReader

RELEASE_PATIENCE_S = tunables.seconds("agent.release_patience_s")


class AttemptEnd:
    """Concludes an attempt whose keeper has finished or was killed.

    Args:
        gpus: tells whether the memory of its ranks is free again.
    """

    def __init__(self, attempt: AttemptDirectory, gpus: GpuReader) -> None:
        self._attempt = attempt
        self._gpus = gpus
        self._sweep_until_s: float | None = None
        self._release_until_s: float | None = None
        self.is_forced = False

    @property
    def has_begun(self) -> bool:
        if self.is_forced:
            return True
        return self._attempt.status() is not None or not self._attempt.keeper_is_alive()

    def force(self) -> None:
        """End the attempt without its keeper, which does not end it."""
        self.is_forced = True
        self._attempt.kill()

    def look(self, part: PartStatus, now_s: float) -> tuple[RankDown | Exited, ...]:
        """The events that end the part; empty while processes remain or GPU memory is still held.

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
        downs, problem = self._explain(part, status, ended_s)
        exited = Exited(
            time_s=ended_s,
            exit_code=status.exit_code if status else None,
            problem=problem,
            leftovers=(*(status.leftovers if status else self._leftovers()), *held),
        )
        return *downs, exited

    def _sweep(self, now_s: float) -> bool:
        """Kill what a killed keeper left behind. True once all is gone, or cannot be killed."""
        alive = self._attempt.kill()
        self._sweep_until_s = self._sweep_until_s or now_s + KILL_PATIENCE_S
        return not alive or now_s >= self._sweep_until_s

    def _leftovers(self) -> tuple[Leftover, ...]:
        alive = [describe(pid) for pid in sorted(self._attempt.alive())]
        return msgspec.convert(alive, tuple[Leftover, ...])

    def _explain(
        self, part: PartStatus, status: KeeperStatus | None, ended_s: float
    ) -> tuple[list[RankDown], Problem | None]:
        if part.state == "stopping" or (status and not status.error and status.exit_code == 0):
            return [], None
        if status is None:
            return [], self._without_keeper(part, ended_s)
        if status.error is not None:
            fix = (kind_of(status.error) or ("", ""))[1]
            cause = f"torchrun did not start: {status.error}"
            return [], Problem(kind=Kind.NOT_STARTED, cause=cause, fix=fix, time_s=ended_s)
        # torch's times are by this machine's own clock.
        ahead_s = self._attempt.clock() - time.time()
        downs, problem = explain(
            self._attempt.path,
            [rank.rank for rank in part.ranks],
            status.exit_code,
            ended_s - ahead_s,
            has_run_out=has_oom_since(self._attempt.identity),
        )
        time_s = (problem.time_s or ended_s) + ahead_s
        if status.disk_was_full and problem.kind is not Kind.DISK_FULL:
            # The disk was full: the keeper could not write how the attempt ended.
            cause = f"the disk of {self._attempt.path} is full"
            problem = msgspec.structs.replace(
                problem, kind=Kind.DISK_FULL, cause=cause, fix=FIXES[Kind.DISK_FULL]
            )
        return downs, msgspec.structs.replace(problem, time_s=time_s)

    def _without_keeper(self, part: PartStatus, time_s: float) -> Problem:
        if part.state_problem is not None:
            cause = f"how its part ended is not known: {part.state_problem.cause}"
            return msgspec.structs.replace(part.state_problem, cause=cause, time_s=time_s)
        kind = Kind.KEEPER_LOST
        cause = "the attempt's keeper was killed, so the agent ended the attempt's processes"
        if self._attempt.identity is None:
            cause = "the agent was killed before it could start torchrun"
        elif self._attempt.is_of_another_boot():
            kind = Kind.MACHINE_RESTARTED
            cause = "the machine was restarted while the job was running"
        return Problem(kind=kind, cause=cause, fix=FIXES[kind], time_s=time_s)
