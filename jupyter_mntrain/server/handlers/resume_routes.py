"""Resume resources: what a job can resume from, resuming it, and its run's checkpoints."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.cluster import Job as ClusterJob
from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.model.api import CheckpointChange
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource
from jupyter_mntrain.server.page_launches import ResumeJob


class ResumeResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        job = updates.clusters.known_job(entry.job_id)
        self.answer(await self.work(job.resume_offer))

    @allowed
    async def post(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        body = self.body_as(ResumeJob)
        job = updates.clusters.known_job(entry.job_id)
        spec = await self.work(_planned, job, body)
        await self.launch(updates, spec, entry.job_id, is_checked=not body.skips_doctor)


class CheckpointsResource(OneJobResource):
    @allowed
    async def post(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        change = self.body_as(CheckpointChange)
        job = updates.clusters.known_job(entry.job_id)
        await self.work(job.change_checkpoint, change.step, change.action)
        self.answer(await self.work(job.resume_offer))


def _planned(job: ClusterJob, body: ResumeJob) -> JobSpec:
    more = [] if body.steps is None else [f"train.steps={body.steps}"]
    before = msgspec.structs.replace(job.spec(), mixed_versions=body.mixed_versions)
    plan = job.plan_resume(program_of(before).with_settings(more), begin=body.begin)
    if body.expected_step not in (None, plan.step):
        raise refusal(
            409,
            Kind.NO_CHECKPOINT,
            f"the newest checkpoint is now of step {plan.step}, not {body.expected_step}",
            "look at the list of checkpoints again",
        )
    return plan.spec
