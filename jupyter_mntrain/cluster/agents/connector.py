"""Connector: opens authenticated connections from one driver to its cluster's agents."""

from __future__ import annotations

import time

from cryptography import x509

from jupyter_mntrain.cluster.agents.distrust import explain
from jupyter_mntrain.cluster.agents.transport import open_http, shown_certificate
from jupyter_mntrain.http.kept_connections import KeptConnections
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import NodeError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.lifecycle.clock import Clock
from jupyter_mntrain.trust.certificates import subject_of
from jupyter_mntrain.trust.driver_membership import DriverMembership


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
