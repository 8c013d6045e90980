"""Asking other nodes' agents, each by its node id as the name that its certificate must have."""

from __future__ import annotations

import socket
import ssl
from typing import Any, NamedTuple

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.netutil import DefaultLoopResolver, Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.trust.certificates import Subject

REQUEST_TIMEOUT_S = tunables.seconds("connection.peer_timeout_s")
NO_ANSWER = 599


class Answer(NamedTuple):
    """What another agent said, be it a refusal."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return self.status < 400

    @property
    def problem(self) -> Problem:
        """Why it was refused."""
        try:
            return msgspec.json.decode(self.body, type=Problem)
        except msgspec.MsgspecError:
            return Problem(kind=Kind.BROKEN, cause=f"its agent answered with HTTP {self.status}")


class PeerClient:
    """Args:
    context: shows this node's certificate.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    async def ask(
        self, node_id: NodeId, address: str, method: str, path: str, body: bytes | None = None
    ) -> bytes | None:
        """The answer's body; ``None`` from silence, a refusal, or somebody else at that address."""
        answer = await self._request(node_id, address, method, path, body)
        return answer.body if answer is not None and answer.is_success else None

    async def tell(
        self, place: Placement, method: str, path: str, body: bytes | None = None
    ) -> Answer | None:
        """What a participant answers, at the first of its addresses where it is; else ``None``."""
        for address in place.agent:
            answer = await self._request(place.node_id, address, method, path, body)
            if answer is not None:
                return answer
        return None

    async def _request(
        self, node_id: NodeId, address: str, method: str, path: str, body: bytes | None
    ) -> Answer | None:
        name = Subject(role="node", name=node_id).dns_name
        host, _, port = address.rpartition(":")
        resolver = _To(host=host)
        client = SimpleAsyncHTTPClient(force_instance=True, resolver=resolver)
        try:
            request = HTTPRequest(
                f"https://{name}:{port}{path}",
                method=method,
                headers={"Content-Type": "application/json"},
                body=body,
                connect_timeout=REQUEST_TIMEOUT_S,
                request_timeout=REQUEST_TIMEOUT_S,
                ssl_options=self._context,
            )
            answer = await client.fetch(request, raise_error=False)
            # 599 is tornado's own, for everything that is no answer.
            return None if answer.code == NO_ANSWER else Answer(answer.code, answer.body)
        except (HTTPClientError, OSError, ValueError):  # ValueError: a bad address
            return None
        finally:
            client.close()


class _To(Resolver):
    """Every name is at one address: whoever is meant must be there, or nobody."""

    def initialize(self, host: str) -> None:
        self._host = host

    async def resolve(
        self,
        host: str,  # noqa: ARG002 - a name that only its certificate knows
        port: int,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = await DefaultLoopResolver().resolve(self._host, port, family)
        return found

    def close(self) -> None:
        pass
