"""Starting, stopping and reading jobs."""

from __future__ import annotations

import asyncio
import os

from tornado.iostream import StreamClosedError

from jupyter_mntrain.agent.handlers.base import AgentHandler
from jupyter_mntrain.model.api import LOG_SIZE_HEADER, StartRequest, StopRequest
from jupyter_mntrain.model.ids import JobId

MAX_LOG_BYTES = 1 << 20
"""Per request; a reader asks again for more."""


class Jobs(AgentHandler):
    def get(self) -> None:
        self.answer([job.record for job in self.node.jobs.all()])


class Job(AgentHandler):
    def get(self, job_id: str) -> None:
        self.answer(self.node.jobs.get(JobId(job_id)).record)


class Attempts(AgentHandler):
    def put(self, job_id: str, attempt: str) -> None:
        request = self.body_as(StartRequest)
        if request.job_id != job_id or request.attempt.number != int(attempt):
            raise self.problem(400, "bad-request", "path and body name different attempts")
        if self.node.node_id not in {p.node_id for p in request.attempt.placements}:
            raise self.problem(400, "bad-request", f"{self.node.name} is not a participant")
        job = self.node.jobs.start(request)
        self.watches.watch(job)
        self.node.changed()
        self.answer(job.record)


class JobStop(AgentHandler):
    def post(self, job_id: str) -> None:
        request = self.body_as(StopRequest)
        record = self.node.jobs.stop(
            JobId(job_id), request.reason, request.grace_s, request.attempt
        )
        self.answer(record)


class JobJournal(AgentHandler):
    """Lines above ``since``; with ``follow=1`` the answer goes on until the part has ended."""

    async def get(self, job_id: str) -> None:
        since = self.number_argument("since", 0)
        follow = self.get_query_argument("follow", "0") == "1"
        job = self.node.jobs.get(JobId(job_id))
        self.set_header("Content-Type", "application/x-ndjson")
        try:
            while True:
                # Taken before reading: a line that comes meanwhile wakes the wait below.
                grown, is_last = job.journal.grown, not (follow and job.is_active)
                for block in job.journal.read(since):
                    self.write(block)
                    await self.flush()
                    since += block.count(b"\n")
                if is_last:
                    return
                await grown.wait()
        except StreamClosedError:
            return


class JobLog(AgentHandler):
    async def get(self, job_id: str) -> None:
        job = self.node.jobs.get(JobId(job_id))
        offset = self.number_argument("offset", 0)
        limit = max(0, min(self.number_argument("limit", MAX_LOG_BYTES), MAX_LOG_BYTES))
        path = job.attempt.path / "log"
        size = path.stat().st_size if path.exists() else 0
        if offset < 0:
            offset = max(0, size + offset)
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header(LOG_SIZE_HEADER, str(size))
        if offset < size:
            content = await asyncio.to_thread(_read, str(path), offset, limit)
            self.write(content)


def _read(path: str, offset: int, limit: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)
