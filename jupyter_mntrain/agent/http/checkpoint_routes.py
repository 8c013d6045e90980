"""Checkpoint routes: list what this node has of a run; delete, pin and unpin."""

from __future__ import annotations

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.jobs.run_checkpoints import (
    change_checkpoint,
    checkpoints_here,
    checkpoints_in,
)
from jupyter_mntrain.http.json_handler import refusal
from jupyter_mntrain.model.api import CheckpointChange
from jupyter_mntrain.model.failure.kinds import Kind


class CheckpointsHandler(AgentHandler):
    async def get(self, job_id: str) -> None:
        await self._answer_with_list(job_id)

    async def post(self, job_id: str) -> None:
        change = self.body_as(CheckpointChange)
        jobs = self.node.jobs
        record = jobs.get(self.job_id(job_id)).record
        is_running = any(job.is_active for job in jobs.of_run(record.run))
        with self.audited(f"{change.action} checkpoint", job=job_id, step=str(change.step)):
            await self.slowly(
                change_checkpoint, record, jobs.directory, change, is_running=is_running
            )
        await self._answer_with_list(job_id)

    async def _answer_with_list(self, job_id: str) -> None:
        jobs = self.node.jobs
        record = jobs.get(self.job_id(job_id)).record
        self.answer(await self.slowly(checkpoints_here, record, jobs.directory))


class CheckpointsAtHandler(AgentHandler):
    async def get(self) -> None:
        path = self.get_query_argument("path", "")
        if not path.startswith(("/", "~")) or "\0" in path:
            fix = "give a path from / or ~"
            raise refusal(400, Kind.BAD_REQUEST, f"path={path!r} is not absolute", fix)
        self.answer(await self.slowly(checkpoints_in, path))
