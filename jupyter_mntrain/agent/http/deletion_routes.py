"""Deletion and label routes: delete an ended job, name it, and note something about it."""

from __future__ import annotations

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.jobs.forgetting import delete, deletion_of
from jupyter_mntrain.model.lifecycle.deletion import JobDeletion
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.plan.spec_check import check_label


class DeletionHandler(AgentHandler):
    """``GET`` says what ``DELETE`` would delete."""

    async def get(self, job_id: str) -> None:
        self.answer(await self._measured(job_id))

    async def delete(self, job_id: str) -> None:
        with_checkpoints = self.number("checkpoints", 0, 0, 1) == 1
        measured = await self._measured(job_id)
        jobs = self.node.jobs
        with self.audited("delete", job=job_id, checkpoints=str(with_checkpoints).lower()):
            delete(jobs, jobs.get(self.job_id(job_id)), with_checkpoints=with_checkpoints)
        self.answer(measured)

    async def _measured(self, job_id: str) -> JobDeletion:
        record = self.node.jobs.get(self.job_id(job_id)).record
        return await self.slowly(deletion_of, self.node.jobs, record)


class LabelHandler(AgentHandler):
    def put(self, job_id: str) -> None:
        label = self.body_as(JobLabel)
        check_label(label)
        job = self.node.jobs.get(self.job_id(job_id))
        with self.audited("label", job=job_id, name=label.name):
            job.put_label(label)
        self.node.jobs.tell(job)
        self.answer(job.record.without_files())
