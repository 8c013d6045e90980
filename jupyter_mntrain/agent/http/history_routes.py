"""History routes: ended jobs in pages, and whole specs, whose files no record carries."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.jobs.ended_jobs import page_of
from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.lifecycle.listing import JobQuery


class JobsHandler(AgentHandler):
    def get(self) -> None:
        names = JobQuery.__struct_fields__
        asked = {name: text for name in names if (text := self.get_query_argument(name, ""))}
        try:
            query = msgspec.convert(asked, JobQuery, strict=False)
        except msgspec.ValidationError as error:
            raise refusal(400, Kind.BAD_REQUEST, f"the query is not valid: {error}") from error
        self.answer(page_of((job.file for job in self.node.jobs.all()), query, self.seen))


class SpecHandler(AgentHandler):
    def get(self, job_id: str) -> None:
        self.answer(self.node.jobs.get(self.job_id(job_id)).record.spec)
