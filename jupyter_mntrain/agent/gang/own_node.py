"""Own node: the head's own part in a gang start, without HTTP."""

from __future__ import annotations

from jupyter_mntrain.agent.gang.moved_gpus import as_it_is_now
from jupyter_mntrain.agent.jobs.local_job import LocalJob
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.api import LeaseGrant, LeaseRequest, StartRequest, StopRequest
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobRecord


class OwnNode:
    """Takes part in a gang start like an HTTP client, but calls this agent directly.

    Args:
        job: as it is before the attempt; nothing starts after a user has stopped it.
    """

    def __init__(self, node: LocalNode, job: LocalJob) -> None:
        self._node = node
        self._job = job
        self._after = "queue" if job.record.attempt.number == 0 else "failure"

    async def lease(self, request: LeaseRequest) -> LeaseGrant:
        refuse_if_stopped(self._job)
        return await self._node.lease_for(as_it_is_now(self._node, request))

    async def start(self, request: StartRequest) -> JobRecord:
        refuse_if_stopped(self._job)
        outcome = "failed"
        try:
            record = self._node.jobs.start(request).record
            outcome = "done"
        except MntrainError as error:
            outcome = f"refused: {error.cause}"
            raise
        finally:
            number = str(request.attempt.number)
            self._note("start", request.job_id, attempt=number, outcome=outcome)
        return record

    async def job(self, job_id: JobId) -> JobRecord:
        return self._node.jobs.get(job_id).record

    async def stop(self, job_id: JobId, request: StopRequest) -> JobRecord:
        self._note("stop", job_id)
        return self._node.jobs.stop(job_id, request)

    async def release(self, job_id: JobId, attempt: int) -> None:
        self._node.leases.release_unstarted(job_id, attempt)

    def _note(self, what: str, job_id: JobId, **about: str) -> None:
        """For the audit log; the other participants note the same caller."""
        who = f"node {self._node.node_id}"
        self._node.audit.note(what, job=job_id, after=self._after, who=who, **about)


def refuse_if_stopped(job: LocalJob) -> None:
    """Refuse to start a job that a user has stopped.

    Raises:
        RefusedError: no further attempt may start.
    """
    if job.record.restart is None:
        raise RefusedError(f"job {job.record.job_id} was stopped", kind=Kind.OUT_OF_TURN)
