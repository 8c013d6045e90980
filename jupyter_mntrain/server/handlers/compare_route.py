"""Compare resource: what differs between the settings of jobs."""

from __future__ import annotations

from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.launch.compared_settings import compare_settings, compared_settings
from jupyter_mntrain.metrics.ranking import rank_jobs
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource, shown_setting
from jupyter_mntrain.server.shown_settings import DifferingSetting, JobComparison
from jupyter_mntrain.show.job_output import LAST_SAMPLES_S

LEAST, MOST = 2, 4


class CompareResource(OneJobResource):
    @allowed
    async def get(self) -> None:
        wanted = self.get_query_arguments("job")
        if not LEAST <= len(wanted) <= MOST:
            raise refusal(
                400,
                Kind.BAD_REQUEST,
                f"{len(wanted)} jobs cannot be compared",
                f"name {LEAST} to {MOST} with job=",
            )
        settings, numbers = [], {}
        for text in wanted:
            updates, entry = await self.entry(text)
            updates.feed(entry.job_id)  # so that what is read is freed again
            job = updates.clusters.known_job(entry.job_id)
            # What the list knows of a job that nobody watches is not what it made.
            await self.work(job.catch_up, LAST_SAMPLES_S)
            numbers[entry.job_id] = (await self.work(job.summary)).numbers
            settings.append(compared_settings(await self.work(job.spec)))
        found = compare_settings(settings)
        differing = (
            DifferingSetting(
                name=one.name,
                values=tuple(
                    None if value is None else shown_setting(value) for value in one.values
                ),
            )
            for one in found.differing
        )
        ranking = rank_jobs(numbers)
        self.answer(JobComparison(tuple(differing), found.same, ranking))
