"""Trace resource: a recorded step of a job, requested while a page shows it."""

from __future__ import annotations

from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource
from jupyter_mntrain.server.shown_steps import JobTrace, job_trace
from jupyter_mntrain.show.job_output import LAST_SAMPLES_S


class TraceResource(OneJobResource):
    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        updates.feed(entry.job_id)  # so that what is read is freed again
        job = updates.clusters.known_job(entry.job_id)

        def read() -> JobTrace:
            return job_trace(job.catch_up(LAST_SAMPLES_S), job.spec)

        self.answer(await self.work(read))
