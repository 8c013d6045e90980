"""Blob routes: a driver asks which files this node lacks, sends them, and reads them back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable

import msgspec

from jupyter_mntrain.agent.http.base import AgentHandler
from jupyter_mntrain.agent.machine.files.blob_store import UploadPart
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.launch.project.tree import PART_BYTES, sha256_of
from jupyter_mntrain.model.api import BlobQuery, BlobsMissing
from jupyter_mntrain.model.failure.kinds import Kind

LONGEST_KEY = 32

_contents = msgspec.msgpack.Decoder(list[bytes])


class BlobsHandler(AgentHandler):
    async def post(self) -> None:
        query = self.body_as(BlobQuery)
        missing = await asyncio.to_thread(self.node.blobs.missing, query.sizes)
        self.answer(BlobsMissing(sha256s=missing))

    async def put(self) -> None:
        try:
            contents = _contents.decode(self.request.body)
        except msgspec.MsgspecError as error:
            raise refusal(400, Kind.BAD_REQUEST, f"these are no files' contents: {error}") from None
        key = secrets.token_hex(8)
        parts = [
            UploadPart(
                who=self.caller.uri,
                key=key,
                sha256=sha256_of(content),
                offset=0,
                size_bytes=len(content),
                content=content,
            )
            for content in contents
        ]
        await asyncio.to_thread(self._take, parts)
        self.answer({})

    def _take(self, parts: Iterable[UploadPart]) -> None:
        in_use = projects_in_use(self.node)
        for part in parts:
            self.node.blobs.take(part, in_use)


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
        await asyncio.to_thread(self.node.blobs.take, part, projects_in_use(self.node))
        self.answer({})


def projects_in_use(node: LocalNode) -> set[str]:
    """Trees of jobs that run or wait here."""
    specs = [job.record.spec for job in node.jobs.active()]
    return {spec.project for spec in specs if spec.project is not None}
