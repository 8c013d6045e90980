"""Trust relay: passes revocations and renewed certificates on to the nodes.

Drivers never connect to one another. Each sends its nodes what they do not know yet, and learns
from them what other drivers have sent.
"""

from __future__ import annotations

import logging

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.trust.driver_membership import DriverMembership

log = logging.getLogger("mntrain.cluster")

RENEW_EVERY_S = tunables.seconds("trust.renew_interval_s")
SAME_S = 1.0
"""Times in certificates are whole seconds."""


class TrustRelay:
    """Relays trust between this driver and the nodes it sees; one per driver process.

    Args:
        identity: of this driver.
    """

    def __init__(self, identity: DriverMembership) -> None:
        self._identity = identity
        self._renewed_s: float | None = None

    def renew(self, now_s: float) -> None:
        """Renew certificates past half of their life; checks once a minute."""
        if self._renewed_s is None or now_s - self._renewed_s >= RENEW_EVERY_S:
            self._renewed_s = now_s
            if self._identity.registrar is not None:
                self._identity.registrar.renew()

    async def settle(self, info: NodeInfo, client: AgentClient) -> None:
        """Exchange news with a node. After a failure the node's next message triggers a retry."""
        try:
            if self._knows_less(info):
                await client.tell_news(self._identity.news_for(info.node_id))
            if self._wants_news(info):
                self._identity.take_news(await client.news())
        except MntrainError as error:
            name = shown_name(info.name)
            log.info("%s: revocations and renewals were not exchanged: %s", name, error)

    def _knows_less(self, info: NodeInfo) -> bool:
        if info.revocations < self._identity.credentials.revocations:
            return True
        registrar = self._identity.registrar
        newest_s = registrar.expiries().get(info.node_id) if registrar else None
        return newest_s is not None and info.certificate_expires_s < newest_s - SAME_S

    def _wants_news(self, info: NodeInfo) -> bool:
        known = self._identity.credentials.revocations
        cannot_renew_itself = self._identity.registrar is None and self._identity.is_due
        return cannot_renew_itself or info.revocations > known
