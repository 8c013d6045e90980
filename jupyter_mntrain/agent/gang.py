"""All or nothing, also after the start: one failed part ends the others.

Without this the rest waits: torchrun itself sits 300 s at its exit barrier, and ranks in a
collective for 10 to 30 minutes (measured). The head's agent watches; if it does not answer, the
lowest-ranked participant that does. A silent peer is not a dead one: nothing is killed for it.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from jupyter_mntrain.agent.job import LocalJob
from jupyter_mntrain.model.api import CLUSTER_HEADER, StopRequest
from jupyter_mntrain.model.job import TERMINAL, JobRecord, PartStatus, Placement
from jupyter_mntrain.model.rollup import first_cause

log = logging.getLogger("mntrain.agent")

WATCH_INTERVAL_S = 1.0
REQUEST_TIMEOUT_S = 2.0
GIVE_UP_AFTER_S = 60.0
"""Of the own part's end: then a participant that never answered is left to its own agent."""


class GangWatch:
    """Watches the other participants of one attempt from this node."""

    def __init__(self, job: LocalJob, cluster: str) -> None:
        self._job = job
        self._cluster = cluster
        self._client = AsyncHTTPClient()

    async def run(self) -> None:
        """Until every part is at its end."""
        job = self._job
        others = [p for p in job.record.attempt.placements if p.node_id != job.placement.node_id]
        ended_s: float | None = None
        while others:
            await asyncio.sleep(WATCH_INTERVAL_S)
            if not job.is_active:
                ended_s = ended_s or time.monotonic()
                if time.monotonic() - ended_s > GIVE_UP_AFTER_S:
                    return
            parts = await self._others_parts(others)
            if parts is None:
                continue
            known = [part for part in parts.values() if part is not None]
            ours = job.record.part
            if len(known) == len(others) and {p.state for p in [ours, *known]} <= TERMINAL:
                return
            await self._end_the_rest([ours, *known], others)

    async def _others_parts(self, others: list[Placement]) -> dict[str, PartStatus | None] | None:
        """Everybody's part; ``None`` if somebody ranked before us answers and so does the work."""
        parts: dict[str, PartStatus | None] = {}
        for placement in others:
            part = await self._ask(placement)
            if part is not None and placement.node_rank < self._job.placement.node_rank:
                return None
            parts[placement.node_id] = part
        return parts

    async def _end_the_rest(self, parts: list[PartStatus], others: list[Placement]) -> None:
        broken = [part for part in parts if part.state in {"failed", "cancelled"}]
        if not broken:
            return
        guilty = first_cause(broken) or broken[0]
        what = guilty.cause.summary if guilty.cause else guilty.state
        reason = f"{guilty.node}: {what}"
        open_nodes = {part.node_id for part in parts if part.state not in TERMINAL}
        if self._job.record.part.node_id in open_nodes:
            log.info("job %s: ending our part: %s", self._job.record.job_id, reason)
            self._job.stop(reason, StopRequest(reason=reason).grace_s)
        for placement in others:
            if placement.node_id in open_nodes:
                await self._stop(placement, reason)

    async def _ask(self, placement: Placement) -> PartStatus | None:
        body = await self._request(placement, "GET", f"/v1/jobs/{self._job.record.job_id}", None)
        if body is None:
            return None
        record = msgspec.json.decode(body, type=JobRecord)
        same = record.attempt.number == self._job.record.attempt.number
        return record.part if same else None

    async def _stop(self, placement: Placement, reason: str) -> None:
        request = StopRequest(reason=reason, attempt=self._job.record.attempt.number)
        path = f"/v1/jobs/{self._job.record.job_id}/stop"
        await self._request(placement, "POST", path, msgspec.json.encode(request))

    async def _request(
        self, placement: Placement, method: str, path: str, body: bytes | None
    ) -> bytes | None:
        """The answer's body from the first address that answers; ``None`` from silence."""
        headers = {CLUSTER_HEADER: self._cluster, "Content-Type": "application/json"}
        for address in placement.agent:
            request = HTTPRequest(
                f"http://{address}{path}",
                method=method,
                headers=headers,
                body=body,
                connect_timeout=REQUEST_TIMEOUT_S,
                request_timeout=REQUEST_TIMEOUT_S,
            )
            try:
                return (await self._client.fetch(request)).body
            except (HTTPClientError, OSError):
                continue
        return None
