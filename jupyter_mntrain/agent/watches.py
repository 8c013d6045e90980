"""The gang watches of this agent's attempts, as tasks that end with them."""

from __future__ import annotations

import asyncio
import time

from jupyter_mntrain.agent.gang import GIVE_UP_AFTER_S, GangWatch
from jupyter_mntrain.agent.job import LocalJob
from jupyter_mntrain.agent.peers import PeerClient


class Watches:
    """One task per attempt; asking twice starts one."""

    def __init__(self, peers: PeerClient) -> None:
        self._peers = peers
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    def watch(self, job: LocalJob) -> None:
        """Unless it ended so long ago that everybody knows."""
        ended_s = job.record.part.ended_s
        if ended_s is not None and time.time() - ended_s > GIVE_UP_AFTER_S:
            return
        key = (job.record.job_id, job.record.attempt.number)
        if key in self._tasks:
            return
        task = asyncio.ensure_future(GangWatch(job, self._peers).run())
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
