"""Watch tasks: run one gang watch per attempt of this agent, then its restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from jupyter_mntrain.agent.gang.notices import Notices, channels_of
from jupyter_mntrain.agent.gang.peer_client import Peers
from jupyter_mntrain.agent.gang.restarter import Restarter
from jupyter_mntrain.agent.gang.watch import GIVE_UP_AFTER_S, GangWatch
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.restarts import is_in_next_grant, may_succeed
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord, Placement

log = logging.getLogger("mntrain.agent")


class WatchTasks:
    """Runs one task per attempt, even if asked twice."""

    def __init__(
        self,
        node: LocalNode,
        peers: Peers,
        why_taken: Callable[[str], Problem | None] = lambda _: None,
        renewed: Callable[[Placement], Placement] = lambda place: place,
    ) -> None:
        self._node = node
        self._why_taken = why_taken
        """Why a node, by name, was taken back by a scheduler."""
        self.peers = peers
        """Makes the client of another node."""
        self._restarter = Restarter(node, peers, renewed)
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def watch(self, job: LocalJob) -> None:
        """Watch an attempt, unless it ended so long ago that all nodes know."""
        record = job.record
        ended_s = record.part.ended_s
        is_old = ended_s is not None and job.now_s() - ended_s > GIVE_UP_AFTER_S
        if is_old and not (_is_to_restart(record) or _may_have_to_succeed(record)):
            return
        key = (record.job_id, record.attempt.number)
        if key in self._tasks:
            return
        task = asyncio.ensure_future(self._follow(job))
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _follow(self, job: LocalJob) -> None:
        try:
            is_begun = not job.record.is_queued
            state = self._node.jobs.directory.parent
            notices = Notices(job, channels_of(job, state))
            watch = GangWatch(job, self.peers, notices, self._why_taken)
            parts = await watch.run() if is_begun else ()
            restarted = None
            if _is_to_restart(job.record):
                restarted = await self._restarter.run(job, parts)
            elif _may_have_to_succeed(job.record):
                restarted = await self._restarter.succeed(job)
            if restarted is not None:
                self.watch(restarted)
            elif not job.record.is_live and parts and all(p.state in TERMINAL for p in parts):
                notices.tell_end(parts)
        except Exception as error:  # noqa: BLE001 - ends the part; logged with an id
            job.give_up()
            self._node.jobs.fail(job, error, "cannot watch the job")

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()


def _is_to_restart(record: JobRecord) -> bool:
    """Whether this node, as the head, still has to decide what comes next."""
    is_head = record.attempt.head.node_id == record.part.node_id
    if is_head and record.restart is not None:
        return not is_in_next_grant(record.restart)
    is_to_come = record.spec.max_restarts > 0 or record.is_queued
    return is_head and is_to_come and not record.is_over


def _may_have_to_succeed(record: JobRecord) -> bool:
    """Whether this node takes the head's place if that is lost."""
    is_head = record.attempt.head.node_id == record.part.node_id
    return not is_head and may_succeed(record) and not record.is_over
