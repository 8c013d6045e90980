"""File calls: a client for an agent's large files, used by drivers and other nodes."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import msgspec

from jupyter_mntrain.http.agent_calls import AgentCalls, Into, Request, not_an_agent
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
        await self._agent.answer(_request("PUT", transfer, piece, content))

    async def piece(self, transfer: str, piece: int) -> bytes:
        return await self._agent.answer(_request("GET", transfer, piece))

    async def piece_into(self, transfer: str, piece: int, into: Into) -> None:
        """Read a piece into a buffer. The node may still be receiving it itself."""
        asked = _request("GET", transfer, piece)._replace(into=into)
        body = await self._agent.answer(asked)
        if len(body) == len(into.content):
            into.content[:] = body
            into.came(len(body))
        elif body:
            raise not_an_agent(self._agent.address, self.node)

    async def fetch_piece(self, transfer: str, piece: int, source: PieceSource) -> None:
        """Have the node fetch a piece from another node."""
        asked = _request("POST", transfer, piece, msgspec.json.encode(source))
        await self._agent.answer(asked._replace(extra_s=2 * PIECE_S))

    async def finish(self, transfer: str) -> TransferState:
        """Move a complete transfer to its destination."""
        return await self._ask("PUT", Route.TRANSFER.format(transfer=transfer), TransferState)

    async def space(self) -> NodeSpace:
        return await self._ask("GET", Route.SPACE, NodeSpace)

    async def clean(self, request: CleanRequest) -> Cleaned:
        return await self._ask("POST", Route.SPACE, Cleaned, request)

    async def _ask(self, method: str, path: str, answer: type[T], body: object = None) -> T:
        return await self._agent.ask(method, path, answer, body, extra_s=DISK_S)


def _request(method: str, transfer: str, piece: int, body: bytes | None = None) -> Request:
    path = Route.PIECE.format(transfer=transfer, piece=piece)
    return Request(method, path, body, PIECE_S, is_large=True)
