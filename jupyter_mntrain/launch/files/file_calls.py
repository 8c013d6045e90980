"""File calls: a client for an agent's large files, used by drivers and other nodes."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec

from jupyter_mntrain.http.agent_calls import AgentCalls, Into, Reply, not_an_agent, refusal
from jupyter_mntrain.launch.files.records import (
    Cleaned,
    CleanRequest,
    Deposit,
    Hashing,
    JobFiles,
    NodeSpace,
    PieceSource,
    TransferState,
    WantedFiles,
)
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.ids import JobId

PIECE_S = 70.0
"""Timeout for a piece: 8 MiB at 1 Mbit/s."""
DISK_S = 120.0
"""An agent that is asked about its disks may take this much longer than usual to answer."""

T = TypeVar("T")


class FileCalls:
    """Calls about the files of one node. Methods raise as those of :class:`AgentCalls`."""

    def __init__(self, agent: AgentCalls) -> None:
        self._agent = agent
        self.node = agent.node

    async def hashing(self, name: str) -> Hashing:
        """Start hashing what the node has under a name, or ask for the progress."""
        return await self._ask("POST", Route.MANIFEST, Hashing, name)

    async def job_files(self, job_id: JobId, path: str = "", most: int = 0) -> JobFiles:
        """List what a job wrote on the node, or in one folder there.

        Args:
            most: files that are listed; default: as many as people and the page look at.
        """
        query = f"?path={quote(path, safe='')}" + (f"&most={most}" if most else "")
        return await self._ask("GET", Route.JOB_FILES.format(job_id=job_id) + query, JobFiles)

    async def offered(self, job_id: JobId, wanted: WantedFiles) -> Hashing:
        """Start hashing a job's files there, or ask for the progress; then pieces can be read."""
        return await self._ask("POST", Route.JOB_FILES.format(job_id=job_id), Hashing, wanted)

    async def deposit(self, deposit: Deposit) -> TransferState:
        return await self._ask("POST", Route.TRANSFERS, TransferState, deposit)

    async def put_piece(self, transfer: str, piece: int, content: bytes) -> None:
        await self._send_piece("PUT", _path(transfer, piece), content, PIECE_S)

    async def piece(self, transfer: str, piece: int) -> bytes:
        return await self._send_piece("GET", _path(transfer, piece), None, PIECE_S)

    async def piece_into(self, transfer: str, piece: int, into: Into) -> None:
        """Read a piece into a buffer. The node may still be receiving it itself."""
        body = await self._send_piece("GET", _path(transfer, piece), None, PIECE_S, into)
        if len(body) == len(into.content):
            into.content[:] = body
            into.came(len(body))
        elif body:
            raise not_an_agent(self._agent.address, self.node)

    async def fetch_piece(self, transfer: str, piece: int, source: PieceSource) -> None:
        """Have the node fetch a piece from another node."""
        asked = msgspec.json.encode(source)
        await self._send_piece("POST", _path(transfer, piece), asked, 2 * PIECE_S)

    async def finish(self, transfer: str) -> TransferState:
        """Move a complete transfer to its destination."""
        return await self._ask("PUT", Route.TRANSFER.format(transfer=transfer), TransferState)

    async def space(self) -> NodeSpace:
        return await self._ask("GET", Route.SPACE, NodeSpace)

    async def clean(self, request: CleanRequest) -> Cleaned:
        return await self._ask("POST", Route.SPACE, Cleaned, request)

    async def _ask(self, method: str, path: str, answer: type[T], body: object = None) -> T:
        content = None if method == "GET" else msgspec.json.encode(body)
        reply = await self._send(method, path, content, DISK_S)
        try:
            return msgspec.json.decode(reply, type=answer)
        except msgspec.DecodeError as error:
            raise not_an_agent(self._agent.address, self.node) from error

    async def _send(self, method: str, path: str, body: bytes | None, extra_s: float) -> bytes:
        return self._body(await self._agent.send(method, path, body, extra_s))

    async def _send_piece(
        self, method: str, path: str, body: bytes | None, extra_s: float, into: Into | None = None
    ) -> bytes:
        return self._body(await self._agent.send_large(method, path, body, extra_s, into))

    def _body(self, reply: Reply) -> bytes:
        if not reply.is_success:
            raise refusal(reply.body, self._agent.address, self.node)
        return reply.body


def _path(transfer: str, piece: int) -> str:
    return Route.PIECE.format(transfer=transfer, piece=piece)
