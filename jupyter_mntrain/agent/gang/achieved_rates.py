"""Achieved rates: stores what a job's ranks achieved on this node's devices, next to the measured
speeds.
"""

from __future__ import annotations

import logging

from jupyter_mntrain.agent.attempt.metrics_tail import last_steps
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.api import rank_file
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId, Rank
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.metrics import RankStep

log = logging.getLogger("mntrain.agent")


WARM_UP = 3
FEWEST = 10
"""Steps after the warm-up that a rate needs."""


def keep_achieved(node: LocalNode, job: LocalJob) -> bool:
    """Store what the job achieved; return whether anything was stored."""
    record, placement = job.record, job.placement
    try:
        found = list(
            program_of(record.spec).achieved(
                record.job_id, record.attempt.world_size, node.info(), placement, _timed(job)
            )
        )
    except (MntrainError, OSError, ValueError) as error:
        log.info("what %s achieved is not known: %s", record.job_id, error)
        return False
    for measured, rate in found:
        node.devices.book.keep_achieved(measured, rate)
    return bool(found)


def _timed(job: LocalJob) -> dict[int, list[RankStep]]:
    """Return this node's ranks' steps after the warm-up, by local rank, if there are enough."""
    metrics, found = job.attempt.path / "metrics", {}
    for local in range(job.placement.nproc):
        steps = last_steps(metrics / rank_file(Rank(job.placement.first_rank + local)))
        timed = [one for one in steps if one.compute_s and one.flops][WARM_UP:]
        if len(timed) >= FEWEST:
            found[local] = timed
    return found


# Achievements: notices the end of jobs, whose ranks achieved something on this node's devices.


class Achievements:
    """Detects the end of jobs that trained with a recipe, and stores what their ranks achieved."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._running: dict[tuple[JobId, int], LocalJob] = {}

    def look(self) -> None:
        """Check for jobs that have ended. Call at every heartbeat."""
        now = {
            (job.record.job_id, job.record.attempt.number): job
            for job in self._node.jobs.active()
            if not job.record.is_queued
        }
        before, self._running = self._running, now
        for key, job in before.items():
            if key not in now and _keep(self._node, job):
                self._node.changed()


def _keep(node: LocalNode, job: LocalJob) -> bool:
    if not job.record.spec.runs_trainer:
        return False
    # An agent that has trained by no recipe does without recipes.

    return keep_achieved(node, job)
