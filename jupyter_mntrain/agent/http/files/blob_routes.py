"""Blob routes: a driver asks which files this node lacks, sends them, and reads them back."""

from __future__ import annotations

import asyncio

from jupyter_mntrain.agent.attempt.blob_store import UploadPart
from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.launch.project.tree import PART_BYTES
from jupyter_mntrain.model.api import BlobQuery, BlobsMissing
from jupyter_mntrain.model.failure.kinds import Kind

LONGEST_KEY = 32


class BlobsHandler(AgentHandler):
    async def post(self) -> None:
        query = self.body_as(BlobQuery)
        missing = await asyncio.to_thread(self.node.blobs.missing, query.sizes)
        self.answer(BlobsMissing(sha256s=missing))


class BlobHandler(AgentHandler):
    async def get(self, sha256: str) -> None:
        offset = self.number("offset", 0)
        limit = min(self.number("limit", PART_BYTES), PART_BYTES)
        content = await asyncio.to_thread(self.node.blobs.read, sha256, offset, limit)
        self.set_header("Content-Type", "application/octet-stream")
        self.write(content)

    async def put(self, sha256: str) -> None:
        key = self.get_query_argument("key", "")
        if not (key.isalnum() and key.isascii() and len(key) <= LONGEST_KEY):
            raise refusal(400, Kind.BAD_REQUEST, "an upload needs a key of letters and digits")
        part = UploadPart(
            who=self.caller.uri,
            key=key,
            sha256=sha256,
            offset=self.number("offset", 0),
            size_bytes=self.number("size", LARGEST),
            content=self.request.body,
        )
        jobs = self.node.jobs.active()
        in_use = {job.record.spec.project for job in jobs if job.record.spec.project is not None}
        await asyncio.to_thread(self.node.blobs.take, part, in_use)
        self.answer({})
