"""Peer client: calls another node's agent, and checks the node id in its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_mntrain.http.agent_calls import AgentCalls, Reply, Request
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.trust.certificates import Subject

if TYPE_CHECKING:
    from jupyter_mntrain.http.kept_connections import KeptConnections

REQUEST_TIMEOUT_S = 2.0
"""Timeout for an answer from one agent to another."""
NO_ANSWER = 599


class PeerClient(AgentCalls):
    """Calls a participant at the first of its addresses that answers.

    Args:
        context: shows this node's certificate.
        kept: connections for large bodies.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        placement: Placement,
        kept: Callable[[], KeptConnections] | None = None,
    ) -> None:
        super().__init__(placement.agent[0], placement.node)
        self._context = context
        self._placement = placement
        self._kept = kept

    async def send(self, request: Request) -> Reply:
        timeout_s = REQUEST_TIMEOUT_S + request.extra_s
        for address in self._placement.agent:
            if request.is_large and self._kept is not None:
                reply = await self._kept().reply(address, self._name, request, timeout_s)
            else:
                reply = await self._send_to(address, request, timeout_s)
            if reply is not None:
                return reply
        raise silence(self.node)

    @property
    def _name(self) -> str:
        """TLS name to expect. It contains the node id, so it proves that the right node answers."""
        return Subject(role="node", name=self._placement.node_id).dns_name

    async def _send_to(self, address: str, request: Request, timeout_s: float) -> Reply | None:
        name = self._name
        host, _, port = address.rpartition(":")
        client = SimpleAsyncHTTPClient(force_instance=True, hostname_mapping={name: host})
        try:
            sent = HTTPRequest(
                f"https://{name}:{port}{request.path}",
                method=request.method,
                headers={"Content-Type": "application/json"},
                body=request.body,
                connect_timeout=REQUEST_TIMEOUT_S,
                request_timeout=timeout_s,
                ssl_options=self._context,
            )
            answer = await client.fetch(sent, raise_error=False)
            # tornado's own code 599 stands for every failure to get an answer.
            if answer.code == NO_ANSWER:
                return None
            return Reply(answer.code < HTTPStatus.BAD_REQUEST, answer.body)
        except (HTTPClientError, OSError, ValueError):  # ValueError: a bad address
            return None
        finally:
            client.close()


Peers = Callable[[Placement], AgentCalls]
"""Makes the client of a participant."""


class PeerClients:
    """Makes clients of other nodes, which share their connections for large bodies.

    Args:
        context: shows this node's certificate.
        where: addresses of a node, by its name, if they are known better than a placement says.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        where: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        self._context = context
        self._where = where
        self._opened: KeptConnections | None = None

    def __call__(self, placement: Placement) -> PeerClient:
        return PeerClient(self._context, self.renewed(placement), self._kept)

    def renewed(self, placement: Placement) -> Placement:
        """Return the placement with the agent's current addresses."""
        agent = self._where(placement.node)
        return msgspec.structs.replace(placement, agent=agent) if agent else placement

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _kept(self) -> KeptConnections:
        if self._opened is None:
            # An agent at rest does without it.
            from jupyter_mntrain.http.kept_connections import KeptConnections

            self._opened = KeptConnections(self._context)
        return self._opened


def silence(node: str) -> NodeError:
    """Make the error for a participant that does not answer."""
    fix = "'nodes' shows why; the job starts once the node is back"
    return NodeError("does not answer", kind=Kind.SILENT, fix=fix, node=node)
