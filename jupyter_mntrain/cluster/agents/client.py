"""Agent client: a driver's requests to an agent, and its streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec
from cryptography import x509

from jupyter_mntrain import __version__
from jupyter_mntrain.cluster.agents.distrust import distrusted, ended_trust, explain
from jupyter_mntrain.cluster.agents.transport import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    MOST_BYTES,
    SILENT_STREAM_S,
    TROUBLE,
    is_about_trust,
    open_http,
    shown_certificate,
    split_lines,
    transport_error,
)
from jupyter_mntrain.http.agent_calls import AgentCalls, Reply, Request, not_an_agent, refusal
from jupyter_mntrain.http.kept_connections import KeptConnections
from jupyter_mntrain.launch.progress import Count
from jupyter_mntrain.metrics.downsampled.samples import NodeSamples
from jupyter_mntrain.metrics.node_history import NodeHistory
from jupyter_mntrain.model import api
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import MntrainError, NodeError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.lifecycle.clock import Clock
from jupyter_mntrain.model.records.metrics import JournalLine, read_journal_line
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.session import Event, SessionRequest, frames
from jupyter_mntrain.model.text.log_parts import (
    LOG_OFFSET_HEADER,
    LOG_SIZE_HEADER,
    LogPart,
    LogTimes,
)
from jupyter_mntrain.trust.certificates import Subject, subject_of
from jupyter_mntrain.trust.driver_membership import DriverMembership

LOOK_S = 1.0
"""How often it is looked whether a node that answers slowly is still there."""

SAMPLES_S = 30.0
"""Added to that for downsampled samples: a slow disk."""

A = TypeVar("A")
T = TypeVar("T")

CUT = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""Errors of a connection that was open."""


class AgentClient(AgentCalls):
    """Client of one agent.

    Args:
        connector: shared by all clients of a driver.
        address: ``host:port``.
        node_id: the node that must answer there; ``None`` = any node of the cluster.
        node: its name in errors; default: its address.
        is_lost: tells whether its heartbeats have stopped, if they are followed: what takes long is
            then no longer waited for.
    """

    def __init__(
        self,
        connector: Connector,
        address: str,
        *,
        node_id: NodeId | None = None,
        node: str | None = None,
        is_lost: Callable[[], bool] | None = None,
    ) -> None:
        super().__init__(address, node or address)
        self.node_id = node_id
        self._is_lost = is_lost
        self._connector = connector
        self._url = f"https://{address}"

    async def node_info(self) -> NodeInfo:
        info = await self.ask("GET", Route.NODE, NodeInfo)
        self.check(info)
        return info

    async def log(self, job_id: JobId, offset: int, limit: int) -> LogPart:
        """Read a part of the log. A negative offset counts from the end."""
        params = {"offset": offset, "limit": limit}
        response = await self._request("GET", Route.LOG.format(job_id=job_id), params=params)
        if not response.is_success:
            raise refusal(response.content, self.address, self.node)
        try:
            size = int(response.headers[LOG_SIZE_HEADER])
            begin = int(response.headers[LOG_OFFSET_HEADER])
        except (KeyError, ValueError) as error:
            raise not_an_agent(self.address, self.node) from error
        return LogPart(response.content, begin, size)

    async def log_times(self, job_id: JobId, begin: int, end: int) -> tuple[tuple[int, float], ...]:
        """Return when the log's bytes between two offsets were written."""
        path = f"{Route.LOG_TIMES.format(job_id=job_id)}?begin={begin}&end={end}"
        return (await self.ask("GET", path, LogTimes)).marks

    async def stream(self) -> AsyncGenerator[api.StreamMessage, None]:
        """Stream a hello, then changes and a heartbeat per second, until the connection ends."""
        async with aclosing(self._lines(Route.STREAM, {})) as lines:
            async for line in lines:
                yield self.read(api.stream_decoder.decode, line)

    async def journal(
        self, job_id: JobId, *, since: int, follow: bool
    ) -> AsyncGenerator[JournalLine, None]:
        """Yield the lines numbered above ``since``; with ``follow``, also new ones as they arrive.

        Samples of unknown kinds, from newer agents, are omitted.
        """
        params = {"since": since} | ({"follow": 1} if follow else {})
        async with aclosing(self._lines(Route.JOURNAL.format(job_id=job_id), params)) as lines:
            async for line in lines:
                known = self.read(read_journal_line, line)
                if known is not None:
                    yield known

    async def samples(
        self,
        job_id: JobId,
        *,
        points: int,
        begin: int | None = None,
        end: int | None = None,
        by: Literal["step", "time"] = "step",
    ) -> NodeSamples:
        """Return the node's samples of a job, at most ``points`` blocks of each rank.

        Args:
            begin: first step, or Unix time, of the range; by default all steps, and the newest of
                them one by one.
            end: the last one.

        Raises:
            NodeError: also of an agent that is too old to answer it.
        """
        asked = {"points": points, "begin": begin, "end": end}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        path = f"{Route.SAMPLES.format(job_id=job_id)}?{query}&by={by}"
        return await self.ask("GET", path, NodeSamples, extra_s=SAMPLES_S)

    async def node_history(self, since_s: int, until_s: int, points: int) -> NodeHistory:
        """Return the node's usage between two Unix times, with at most ``points`` points per line.

        Raises:
            NodeError: also of an agent that is too old to answer it.
        """
        query = urlencode({"since": since_s, "until": until_s, "points": points})
        return await self.ask("GET", f"{Route.HISTORY}?{query}", NodeHistory, extra_s=SAMPLES_S)

    def check(self, info: NodeInfo) -> None:
        """Check that the agent is the expected node and speaks our protocol.

        Raises:
            NodeError: it is not, or does not.
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
            age = "older" if is_old else "newer"
            there = f"mntrain upgrade USER@HOST, or there: pip install the wheel of {__version__}"
            here = "upgrade it here: pip install the wheel that the node has"
            raise NodeError(
                f"its agent speaks protocol {info.protocol}, {age} than our {api.PROTOCOL}",
                fix=there if is_old else here,
                node=self.node,
                kind=Kind.OTHER_PROTOCOL,
            )

    async def send(self, request: Request) -> Reply:
        if self._is_lost is None or not request.extra_s:
            return await self._send(request)
        sending = asyncio.ensure_future(self._send(request))
        try:
            while not (await asyncio.wait({sending}, timeout=LOOK_S))[0]:
                if self._is_lost():
                    raise NodeError(
                        f"the agent at {self.address} no longer answers",
                        fix="check that its machine is on and not frozen, then try again",
                        node=self.node,
                        kind=Kind.SILENT,
                    )
            return sending.result()
        finally:
            sending.cancel()

    async def _send(self, request: Request) -> Reply:
        timeout_s = ANSWER_TIMEOUT_S + request.extra_s
        if request.is_large and self.node_id is not None:
            name = _dns_name(self.node_id)
            reply = await self._connector.kept.reply(self.address, name, request, timeout_s)
            if reply is not None:
                return reply
            # Without an answer, what follows finds out why.
        response = await self._request(
            request.method,
            request.path,
            content=request.body,
            timeout=httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S, pool=None),
        )
        return Reply(response.is_success, response.content)

    async def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        # A kept connection may end in the moment in which it is used: a question is asked again.
        tries = 2 if method == "GET" else 1
        while True:
            tries -= 1
            try:
                return await self._connector.http.request(
                    method, self._url + path, extensions=await self._named(), **options
                )
            except TROUBLE as error:
                if not (tries and isinstance(error, CUT)):
                    raise await self._explained(error) from error

    async def session(self, job_id: JobId, request: SessionRequest) -> AsyncGenerator[Event, None]:
        """Ask ranks of a session, and yield their events until each has said its last."""
        data = bytearray()
        path = Route.SESSION.format(job_id=job_id)
        chunks = self._chunks("POST", path, content=msgspec.json.encode(request))
        async with aclosing(chunks):
            async for chunk in chunks:
                data += chunk
                for event in self.read(frames, data):
                    yield event

    async def _lines(self, path: str, params: Mapping[str, int]) -> AsyncGenerator[bytes, None]:
        chunks = self._chunks("GET", path, params=params)
        async with aclosing(chunks):
            async for line in split_lines(chunks):
                yield line

    async def _chunks(self, method: str, path: str, **options: Any) -> AsyncGenerator[bytes, None]:
        is_answered = False
        try:
            async with self._connector.http.stream(
                method,
                self._url + path,
                extensions={**await self._named(), MOST_BYTES: 0},
                timeout=httpx.Timeout(SILENT_STREAM_S, connect=CONNECT_TIMEOUT_S, pool=None),
                **options,
            ) as response:
                if not response.is_success:
                    raise refusal(await response.aread(), self.address, self.node)
                is_answered = True
                shown = x509.load_der_x509_certificate(shown_certificate(response))
                async for chunk in response.aiter_bytes():
                    # An open connection ends with its certificate. A renewed one is shown to the
                    # next connection.
                    credentials = self._connector.identity.credentials
                    now = datetime.fromtimestamp(self._connector.clock(), UTC)
                    if (ended := ended_trust(shown, credentials, now)) is not None:
                        raise distrusted(ended, self.node)
                    yield chunk
        except TROUBLE as error:
            if is_answered:
                raise transport_error(error, self.address, self.node) from error
            raise await self._explained(error) from error

    async def _named(self) -> dict[str, str]:
        """Return the request extension with the TLS name that the certificate must have."""
        if self.node_id is None:
            self.node_id = await self._connector.identify(self.address)
        return {"sni_hostname": _dns_name(self.node_id)}

    async def _explained(self, error: Exception) -> NodeError:
        # An agent that refuses our certificate sends an alert, but pending writes may hide it.
        if isinstance(error, CUT) or is_about_trust(error):
            reason = await self._connector.explain(self.address, self.node_id, self.node)
            if reason is not None:
                return reason
        return transport_error(error, self.address, self.node)


def _dns_name(node_id: NodeId) -> str:
    return Subject(role="node", name=node_id).dns_name


async def ask_each(
    asked: Sequence[A], call: Callable[[A], Awaitable[T]], count: Count | None = None
) -> list[T | MntrainError]:
    """Ask several nodes at once; return the answer of each, or the error of one that gave none.

    Args:
        asked: whatever ``call`` asks.
        count: of those that have answered.
    """

    async def ask(one: A) -> T | MntrainError:
        try:
            return await call(one)
        except MntrainError as error:
            return error
        finally:
            if count is not None:
                count.more()

    return await asyncio.gather(*map(ask, asked))


class Connector:
    """Opens connections; shared by all clients of a driver.

    Args:
        clock: Unix time, for the end of certificates.
    """

    def __init__(self, identity: DriverMembership, clock: Clock = time.time) -> None:
        self.identity = identity
        self.clock = clock
        self.http = open_http(identity.credentials.client)
        self.kept = KeptConnections(identity.credentials.client)
        self._unnamed = open_http(identity.credentials.unnamed_client)

    async def close(self) -> None:
        await self.http.aclose()
        await self._unnamed.aclose()
        self.kept.close()

    async def identify(self, address: str) -> NodeId:
        """Return the id of the cluster's node that answers at an address.

        Raises:
            httpx.HTTPError, ssl.SSLError: no node answers.
            NodeError: a driver answers.
        """
        async with self._unnamed.stream("GET", f"https://{address}{Route.NODE}") as response:
            shown = x509.load_der_x509_certificate(shown_certificate(response))
        try:
            subject = subject_of(shown)
        except TrustError as error:
            raise NodeError(error.cause, node=address, kind=Kind.NOT_AN_AGENT) from error
        return NodeId(subject.name)

    async def explain(self, address: str, node_id: NodeId | None, node: str) -> NodeError | None:
        """Explain a failed handshake; ``None`` if both certificates are fine."""
        return await explain(address, self.identity.credentials, node_id=node_id, node=node)
