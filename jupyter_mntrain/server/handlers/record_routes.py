"""Record resources: name, note and deletion of a job."""

from __future__ import annotations

from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource
from jupyter_mntrain.server.messages import LabelJob


class LabelResource(OneJobResource):
    @allowed
    async def put(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        body = self.body_as(LabelJob)
        job = updates.clusters.known_job(entry.job_id)
        if body.name is not None:
            await self.work(job.rename, body.name)
        if body.note is not None:
            await self.work(job.note, body.note)
        updates.look_now()
        self.answer(updates.job(entry.job_id) or entry, 202)


class RemovalResource(OneJobResource):
    """``GET`` says what ``DELETE`` would delete."""

    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        self.answer(await self.work(updates.clusters.known_job(entry.job_id).plan_removal))

    @allowed
    async def delete(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        with_checkpoints = self.number("checkpoints", 0, 0, 1) == 1
        job = updates.clusters.known_job(entry.job_id)
        removal = await self.work(job.remove, with_checkpoints=with_checkpoints)
        updates.look_now()
        self.answer(removal)
