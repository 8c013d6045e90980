"""Agent client: one typed method per route of :mod:`jupyter_mntrain.model.api`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from jupyter_mntrain.cluster.agents.connector import Dialler, tls_name
from jupyter_mntrain.cluster.agents.distrust import revoked
from jupyter_mntrain.cluster.agents.transport import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    SILENT_STREAM_S,
    TROUBLE,
    is_about_trust,
    not_an_agent,
    refusal,
    serial_number,
    split_lines,
    transport_error,
)
from jupyter_mntrain.model import api
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.job import JobRecord, RankStack
from jupyter_mntrain.model.records.metrics import JournalLine, read_journal_line
from jupyter_mntrain.model.records.node import Capacity, NodeInfo

T = TypeVar("T")


class AgentClient:
    """Asks one agent. Every method raises the same errors.

    Raises:
        NodeError: no usable answer; ``reason`` says which kind. After "timed out" or "broken
            off" the agent may have acted, and asking again is safe.
        RefusedError: the agent said no.
        JobNotFoundError: the agent does not know the job.
        SpecError: the agent found the request wrong in itself.

    Args:
        dialler: shared by all clients of a driver.
        address: ``host:port``.
        node_id: who must answer there; ``None`` = whichever node of the cluster does.
        node: what errors call it; its address if not given.
    """

    def __init__(
        self,
        dialler: Dialler,
        address: str,
        *,
        node_id: NodeId | None = None,
        node: str | None = None,
    ) -> None:
        self.address = address
        self.node_id = node_id
        self.node = node or address
        self._dialler = dialler
        self._url = f"https://{address}"

    async def node_info(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> NodeInfo:
        info = await self._ask("GET", Route.NODE, NodeInfo, timeout_s=timeout_s)
        self.check(info)
        return info

    async def lease(self, request: api.LeaseRequest) -> api.LeaseGrant:
        return await self._ask("POST", Route.LEASES, api.LeaseGrant, body=request)

    async def release(self, job_id: JobId, attempt: int) -> None:
        await self._ask(
            "DELETE", Route.LEASE.format(job_id=job_id, attempt=attempt), dict[str, Any]
        )

    async def port_status(self, port: int, interface: str | None = None) -> api.PortStatus:
        query = f"?interface={quote(interface, safe='')}" if interface else ""
        return await self._ask("GET", Route.PORT.format(port=port) + query, api.PortStatus)

    async def news(self) -> api.TrustNews:
        return await self._ask("GET", Route.TRUST, api.TrustNews)

    async def tell_news(self, news: api.TrustNews) -> None:
        await self._ask("PUT", Route.TRUST, dict[str, Any], body=news)

    async def jobs(self) -> list[JobRecord]:
        return await self._ask("GET", Route.JOBS, list[JobRecord])

    async def job(self, job_id: JobId) -> JobRecord:
        return await self._ask("GET", Route.JOB.format(job_id=job_id), JobRecord)

    async def start(self, request: api.StartRequest) -> JobRecord:
        path = Route.ATTEMPT.format(job_id=request.job_id, attempt=request.attempt.number)
        return await self._ask("PUT", path, JobRecord, body=request)

    async def stop(self, job_id: JobId, request: api.StopRequest) -> JobRecord:
        path = Route.STOP.format(job_id=job_id)
        timeout_s = ANSWER_TIMEOUT_S + request.grace_s
        return await self._ask("POST", path, JobRecord, body=request, timeout_s=timeout_s)

    async def deposit(self, request: api.StartRequest) -> JobRecord:
        return await self._ask(
            "PUT", Route.JOB.format(job_id=request.job_id), JobRecord, body=request
        )

    async def save(self, job_id: JobId, request: api.SaveRequest) -> JobRecord:
        return await self._ask("POST", Route.SAVE.format(job_id=job_id), JobRecord, body=request)

    async def stacks(self, job_id: JobId) -> list[RankStack]:
        return await self._ask("POST", Route.STACKS.format(job_id=job_id), list[RankStack])

    async def probe_listen(self, request: api.ProbeListen) -> api.ProbeTicket:
        return await self._ask("POST", Route.PROBE_LISTEN, api.ProbeTicket, body=request)

    async def probe_send(self, request: api.ProbeSend) -> Capacity:
        timeout_s = ANSWER_TIMEOUT_S + request.seconds
        return await self._ask(
            "POST", Route.PROBE_SEND, Capacity, body=request, timeout_s=timeout_s
        )

    async def log(self, job_id: JobId, offset: int, limit: int) -> tuple[bytes, int]:
        """Bytes of the log and the size of all of it; a negative offset counts from the end."""
        params = {"offset": offset, "limit": limit}
        response = await self._request("GET", Route.LOG.format(job_id=job_id), params=params)
        try:
            return response.content, int(response.headers[api.LOG_SIZE_HEADER])
        except (KeyError, ValueError) as error:
            raise not_an_agent(self.address, self.node) from error

    async def stream(self) -> AsyncGenerator[api.StreamMessage, None]:
        """Hello, then what changes and a beat a second, until the connection ends."""
        async with aclosing(self._lines(Route.STREAM, {})) as lines:
            async for line in lines:
                yield self._decode(api.stream_decoder, line)

    async def journal(
        self, job_id: JobId, *, since: int, follow: bool
    ) -> AsyncGenerator[JournalLine, None]:
        """Lines numbered above ``since``; with ``follow``, new ones as they come.

        Samples of a kind that only a newer agent knows are left out.
        """
        params = {"since": since} | ({"follow": 1} if follow else {})
        async with aclosing(self._lines(Route.JOURNAL.format(job_id=job_id), params)) as lines:
            async for line in lines:
                known = self._decoded(read_journal_line, line)
                if known is not None:
                    yield known

    def check(self, info: NodeInfo) -> None:
        """Raises:
        NodeError: it speaks another protocol, or calls itself something its certificate does not.
        """
        if self.node_id not in (None, info.node_id):
            raise NodeError(
                f"{info.name} answers at {self.address} instead",
                fix="check that no two machines have the same address",
                node=self.node,
                kind=Kind.WRONG_NODE,
            )
        if info.protocol != api.PROTOCOL:
            is_old = info.protocol < api.PROTOCOL
            age, where = ("older", "there") if is_old else ("newer", "here")
            raise NodeError(
                f"its agent speaks protocol {info.protocol}, {age} than our {api.PROTOCOL}",
                fix=f"upgrade jupyter-mntrain {where}",
                node=self.node,
                kind=Kind.OTHER_PROTOCOL,
            )

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[T],
        *,
        body: msgspec.Struct | None = None,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> T:
        response = await self._request(
            method,
            path,
            content=None if body is None else msgspec.json.encode(body),
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S, pool=None),
        )
        return self._decode(msgspec.json.Decoder(answer), response.content)

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = await self._dialler.http.request(
                method, self._url + path, extensions=await self._named(), **options
            )
        except TROUBLE as error:
            raise await self._explained(error) from error
        if not response.is_success:
            raise refusal(response.content, self.address, self.node)
        return response

    async def _lines(self, path: str, params: Mapping[str, int]) -> AsyncGenerator[bytes, None]:
        is_answered = False
        try:
            async with self._dialler.http.stream(
                "GET",
                self._url + path,
                params=params,
                extensions=await self._named(),
                timeout=httpx.Timeout(SILENT_STREAM_S, connect=CONNECT_TIMEOUT_S, pool=None),
            ) as response:
                if not response.is_success:
                    body = await response.aread()
                    raise refusal(body, self.address, self.node)
                is_answered = True
                shown = serial_number(response)
                async for line in split_lines(response.aiter_bytes()):
                    # A connection that is open goes on whatever happens to certificates.
                    if self._dialler.is_revoked(shown):
                        raise revoked(self.node)
                    yield line
        except TROUBLE as error:
            if is_answered:
                raise transport_error(error, self.address, self.node) from error
            raise await self._explained(error) from error

    def _decode(self, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
        return self._decoded(decoder.decode, body)

    def _decoded(self, decode: Callable[[bytes], T], body: bytes) -> T:
        try:
            return decode(body)
        except msgspec.DecodeError as error:
            raise not_an_agent(self.address, self.node) from error

    async def _named(self) -> dict[str, str]:
        """Whose certificate must be shown, whatever address was dialled."""
        if self.node_id is None:
            self.node_id = await self._dialler.identify(self.address)
        return {"sni_hostname": tls_name(self.node_id)}

    async def _explained(self, error: Exception) -> NodeError:
        # Who hangs up on our certificate says why, but what we have sent meanwhile may drown it.
        was_cut = isinstance(error, (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError))
        if was_cut or is_about_trust(error):
            reason = await self._dialler.explain(self.address, self.node_id, self.node)
            if reason is not None:
                return reason
        return transport_error(error, self.address, self.node)
