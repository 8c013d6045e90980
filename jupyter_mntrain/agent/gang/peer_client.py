"""Peer client: calls another node's agent, and checks the node id in its certificate."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from jupyter_mntrain.http.agent_calls import AgentCalls, Reply
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.trust.certificates import Subject

REQUEST_TIMEOUT_S = tunables.seconds("connection.peer_timeout_s")
NO_ANSWER = 599


class PeerClient(AgentCalls):
    """Calls a participant at the first of its addresses that answers.

    Args:
        context: shows this node's certificate.
    """

    def __init__(self, context: ssl.SSLContext, placement: Placement) -> None:
        super().__init__(placement.agent[0], placement.node)
        self._context = context
        self._placement = placement

    async def send(self, method: str, path: str, body: bytes | None, extra_s: float) -> Reply:
        for address in self._placement.agent:
            if reply := await self._send_to(address, method, path, body, extra_s):
                return reply
        raise silence(self.node)

    async def _send_to(
        self, address: str, method: str, path: str, body: bytes | None, extra_s: float
    ) -> Reply | None:
        name = Subject(role="node", name=self._placement.node_id).dns_name
        host, _, port = address.rpartition(":")
        # Only the certificate knows the name: it proves that the right node answers.
        client = SimpleAsyncHTTPClient(force_instance=True, hostname_mapping={name: host})
        try:
            request = HTTPRequest(
                f"https://{name}:{port}{path}",
                method=method,
                headers={"Content-Type": "application/json"},
                body=body,
                connect_timeout=REQUEST_TIMEOUT_S,
                request_timeout=REQUEST_TIMEOUT_S + extra_s,
                ssl_options=self._context,
            )
            answer = await client.fetch(request, raise_error=False)
            # tornado's own code 599 stands for every failure to get an answer.
            return None if answer.code == NO_ANSWER else Reply(answer.code < 400, answer.body)
        except (HTTPClientError, OSError, ValueError):  # ValueError: a bad address
            return None
        finally:
            client.close()


Peers = Callable[[Placement], AgentCalls]
"""Makes the client of a participant."""


def silence(node: str) -> NodeError:
    """The error for a participant that does not answer."""
    fix = "'nodes' shows why; the job starts once the node is back"
    return NodeError("does not answer", kind=Kind.SILENT, fix=fix, node=node)
