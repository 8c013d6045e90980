"""Achievements: notices the end of jobs, whose ranks achieved something on this node's devices."""

from __future__ import annotations

from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.ids import JobId


class Achievements:
    """Notices the end of jobs that trained by a recipe, and keeps what their ranks achieved."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._running: dict[tuple[JobId, int], LocalJob] = {}

    def look(self) -> None:
        """Call at every heartbeat."""
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
    from jupyter_mntrain.agent.gang.achieved_rates import keep_achieved

    return keep_achieved(node, job)
