"""HTTP transport: turns failures of a connection into errors with a cause and a fix."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpcore
import httpx

from jupyter_mntrain.cluster.agents.address import host_of
from jupyter_mntrain.http.agent_calls import not_an_agent
from jupyter_mntrain.http.kept_connections import MOST_ANSWER_BYTES
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import LOST_AFTER_S
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind

CONNECT_TIMEOUT_S = tunables.seconds("connection.connect_timeout_s")

ANSWER_TIMEOUT_S = tunables.seconds("connection.answer_timeout_s")

SILENT_STREAM_S = LOST_AFTER_S
"""A stream that is silent for this long is reopened."""

TROUBLE = (httpx.HTTPError, ssl.SSLError)
"""Errors of a request. httpx does not wrap a TLS alert that follows the handshake, as those about
certificates do in TLS 1.3 (measured, httpcore 1.0.9)."""

_HOST_GONE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EADDRNOTAVAIL)


def open_http(context: ssl.SSLContext) -> httpx.AsyncClient:
    """Make an HTTP client for agents, without the environment's proxies or a limit of streams.

    No connection is reused. One that the agent has closed meanwhile would lose a request, and
    httpcore leaks connections that it finds closed while it is being canceled (measured).
    """
    return httpx.AsyncClient(
        verify=context,
        trust_env=False,
        timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S, pool=None),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        event_hooks={"request": [_follow_connection], "response": [_bound_answer]},
        headers={"Accept-Encoding": "identity"},
    )


MOST_BYTES = "mntrain_most_bytes"
"""Extension of a request: how long its answer may be; 0 for a stream, whose lines are bounded."""
MOST_STRANGERS_BYTES = 1 << 20
"""Limit of an answer from a machine that has not been authenticated."""
MOST_LINE_BYTES = 64 << 20


class _BoundStream(httpx.AsyncByteStream):
    """A response stream that fails once it is longer than any agent's answer."""

    def __init__(self, stream: httpx.AsyncByteStream, most: int) -> None:
        self._stream, self._most = stream, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > self._most:
                raise httpx.RemoteProtocolError(f"an answer of more than {self._most} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound_answer(response: httpx.Response) -> None:
    """Limit the length of an answer: whatever listens there may send without end.

    A compressed answer is refused: no agent compresses, and a few bytes may expand to any number.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx.RemoteProtocolError("a compressed answer", request=response.request)
    most = response.request.extensions.get(MOST_BYTES, MOST_ANSWER_BYTES)
    if most and isinstance(response.stream, httpx.AsyncByteStream):
        response.stream = _BoundStream(response.stream, most)


_IS_THERE = "mntrain_is_there"
"""Extension of a request whose connection the machine has accepted."""


async def _follow_connection(request: httpx.Request) -> None:
    """Follow how a connection is made.

    A busy agent gets as long for the TLS handshake as for an answer: httpcore would give it only
    the time of a TCP connection, which the kernel accepts at any load. The socket of a handshake
    that is canceled is closed: httpcore leaves it open (both measured, httpcore 1.0.9).
    """
    begun: list[httpcore.AsyncNetworkStream] = []

    async def trace(event: str, info: dict[str, Any]) -> None:
        match event:
            case "connection.connect_tcp.complete":
                begun.append(info["return_value"])
                request.extensions[_IS_THERE] = True
            case "connection.start_tls.started":
                info["timeout"] = ANSWER_TIMEOUT_S
            case "connection.start_tls.failed":
                for stream in begun:
                    await stream.aclose()

    request.extensions["trace"] = trace


def is_about_trust(error: Exception) -> bool:
    """Whether an error means that either side refused the other's certificate."""
    return any(isinstance(cause, ssl.SSLError) for cause in _causes(error))


def shown_certificate(response: httpx.Response) -> bytes:
    """Return the other side's certificate, as DER."""
    connection = response.extensions["network_stream"].get_extra_info("ssl_object")
    shown: bytes = connection.getpeercert(binary_form=True)
    return shown


def transport_error(error: Exception, address: str, node: str) -> NodeError:
    """Return the error for a request that got no answer."""
    if isinstance(error, httpx.TimeoutException):
        if error.request.extensions.get(_IS_THERE):
            return NodeError(
                f"the agent at {address} accepted the connection but does not answer",
                fix="check the load of that machine, then try again",
                node=node,
                kind=Kind.SLOW_TO_ANSWER,
            )
        return NodeError(
            f"no answer from {address} in {CONNECT_TIMEOUT_S:g} s",
            fix="check that the machine is on and no firewall drops the port",
            node=node,
            kind=Kind.NO_ANSWER,
        )
    if isinstance(error, httpx.ConnectError):
        return _connect_error(error, address, node)
    if isinstance(error, httpx.RemoteProtocolError) and not _broke_off(error):
        return not_an_agent(address, node)
    return NodeError(
        f"the connection to {address} broke off",
        fix="try again; if that does not help, the program there may not be an agent",
        node=node,
        kind=Kind.BROKEN_OFF,
    )


async def split_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of an NDJSON stream; an unfinished last line is dropped.

    httpx's own ``aiter_lines`` also splits at U+2028 and its like, which JSON may hold.
    """
    # Joined once per line: adding each chunk to the rest is quadratic in the line's length.
    begun: list[bytes] = []
    length = 0
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        length = len(others[-1]) if others else length + len(first)
        if length > MOST_LINE_BYTES:
            raise httpx.RemoteProtocolError(f"a line of more than {MOST_LINE_BYTES} bytes")
        for other in others:
            if line := b"".join(begun):
                yield line
            begun = [other]


def _connect_error(error: httpx.ConnectError, address: str, node: str) -> NodeError:
    causes = list(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return NodeError(
            f"unknown host name {host_of(address)}",
            fix="check the spelling, or use its IP address",
            node=node,
            kind=Kind.UNREACHABLE,
        )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return not_an_agent(address, node)
    codes = {cause.errno for cause in causes if isinstance(cause, OSError)}
    if errno.ECONNREFUSED not in codes and codes.intersection(_HOST_GONE):
        return NodeError(
            f"no route to {address} from this machine",
            fix="check the address, the cable and the network",
            node=node,
            kind=Kind.UNREACHABLE,
        )
    where = "there" if node == address else f"on {address}"
    return NodeError(
        f"connection refused: nothing listens {where}",
        fix="start it there with: mntrain agent run",
        node=node,
        kind=Kind.CONNECTION_REFUSED,
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__ or error.__context__


def _broke_off(error: httpx.RemoteProtocolError) -> bool:
    """Whether the connection broke off, as opposed to carrying something other than HTTP."""
    return "disconnected" in str(error) or "peer closed" in str(error)
