"""Admission desk: holds a driver's membership, admits machines and makes clients for agents."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import httpx
import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient, Connector
from jupyter_mntrain.cluster.agents.transport import (
    MOST_BYTES,
    MOST_STRANGERS_BYTES,
    TROUBLE,
    open_http,
    shown_certificate,
    transport_error,
)
from jupyter_mntrain.cluster.discovery.discovery import MOST_ANNOUNCED, FoundAgent
from jupyter_mntrain.cluster.loop import end_tasks
from jupyter_mntrain.http.agent_calls import not_an_agent, refusal
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import MntrainError, TrustError, no_cluster
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.node import NodeInfo, NodeView
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.trust.credentials import blind_context
from jupyter_mntrain.trust.driver_membership import DriverMembership
from jupyter_mntrain.trust.joining.messages import Application, Greeting, Sealed, read, seal, unseal
from jupyter_mntrain.trust.joining.token import Conversation, new_nonce
from jupyter_mntrain.trust.registrar import IssuedInvitation, Registrar

# Trust relay: passes revocations and renewed certificates on to the nodes.
#
# Drivers never connect to one another. Each sends its nodes what they do not know yet, and learns
# from them what other drivers have sent.


log = logging.getLogger("mntrain.cluster")

RENEW_EVERY_S = 60.0
"""Interval of checks whether a node's certificate is due for renewal."""
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

    async def update(self, info: NodeInfo, client: AgentClient) -> None:
        """Exchange news with a node. After a failure the node's next message triggers a retry."""
        try:
            if self._knows_less(info):
                await client.tell_news(self._identity.news_for(info.node_id))
            if self._wants_news(info):
                self._identity.take_news(await client.news())
        except (MntrainError, OSError) as error:
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


# Admission: connects to a machine that waits with one of our tokens, and admits it.


async def admit(
    address: str, registrar: Registrar, invites: Sequence[IssuedInvitation]
) -> Application:
    """Admit the machine that waits at ``address`` with one of these invitations.

    Raises:
        NodeError: no machine waits there.
        TrustError: it has none of these tokens, the connection is intercepted, or the invitation
            is used up. The other side gets the cause, too.
    """
    nonce = new_nonce()
    async with open_http(blind_context()) as http:
        body = msgspec.json.encode(Greeting(nonce=nonce))
        response = await _send(http, address, "POST", body)
        sealed = _decoded(response, address)
        shown = hashlib.sha256(shown_certificate(response)).digest()
        seen = Conversation(shown, nonce, read(sealed, Application).nonce)
        try:
            invite, application = _recognize(sealed, invites, seen)
        except TrustError as error:
            registrar.note_refused(address, error.cause)
            raise
        admission = registrar.admit(invite, application, where=address)
        sealed = seal(admission, invite.token, seen)
        await _send(http, address, "PUT", msgspec.json.encode(sealed))
    if admission.refusal is not None:
        name = shown_name(application.name)
        raise TrustError(f"{name}: {admission.refusal}", fix=admission.fix)
    registrar.note_joined(invite, application.subject)
    return application


def _recognize(
    sealed: Sealed, invites: Sequence[IssuedInvitation], seen: Conversation
) -> tuple[IssuedInvitation, Application]:
    problem = TrustError("there are no open invitations", fix="invite: mntrain invite")
    for invite in invites:
        try:
            return invite, unseal(sealed, Application, invite.token, seen)
        except TrustError as error:
            problem = error
    raise problem


async def _send(http: httpx.AsyncClient, address: str, method: str, body: bytes) -> httpx.Response:
    try:
        response = await http.request(
            method,
            f"https://{address}{Route.JOIN}",
            content=body,
            extensions={MOST_BYTES: MOST_STRANGERS_BYTES},
        )
    except TROUBLE as error:
        raise transport_error(error, address, address) from error
    if not response.is_success:
        raise refusal(response.content, address, address)
    return response


def _decoded(response: httpx.Response, address: str) -> Sealed:
    try:
        return msgspec.json.decode(response.content, type=Sealed)
    except msgspec.DecodeError as error:
        raise not_an_agent(address, address) from error


ADMIT_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
"""Pauses between tries to admit a machine that does not answer."""


@dataclass
class AdmissionDesk:
    """Admits machines and makes clients, once this user has created or joined the cluster.

    Args:
        cluster: this user's name for it.
        now: Unix time.
        on_member: called with every agent found that claims to be a member of this cluster.
        on_open: called when this user has become a driver.
    """

    cluster: str
    now: Callable[[], float]
    on_member: Callable[[FoundAgent], None]
    on_open: Callable[[], None]
    strangers: dict[str, FoundAgent] = field(default_factory=dict)
    """Announced agents of other clusters, by instance. They are never contacted."""
    problem: MntrainError | None = None
    """Why this user's keys exist but cannot be used."""
    _connector: Connector | None = None
    _trust_relay: TrustRelay | None = None
    _early: list[FoundAgent] = field(default_factory=list)
    """Agents found before the desk opened."""
    _admissions: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Running admissions, by instance."""

    @property
    def identity(self) -> DriverMembership | None:
        """This driver's membership; ``None`` before it has joined."""
        return self._connector.identity if self._connector else None

    def look(self) -> None:
        """Open the desk once this user is a member; reload the membership if it has changed on
        disk.
        """
        if self._connector is not None:
            self._connector.identity.credentials.refresh()
            return
        try:
            identity = DriverMembership.find(self.cluster, clock=self.now)
        except MntrainError as error:
            self.problem = error
            return
        self.problem = None
        if identity is None:
            return
        self._connector, self._trust_relay = Connector(identity), TrustRelay(identity)
        self.on_open()
        early, self._early = self._early, []
        for found in early:
            self.take(found)

    async def close(self) -> None:
        await end_tasks(self._admissions.values())
        if self._connector is not None:
            await self._connector.close()

    def client(
        self,
        address: str,
        node_id: NodeId | None = None,
        node: str | None = None,
        is_lost: Callable[[], bool] | None = None,
    ) -> AgentClient:
        """Make a client for an agent.

        Raises:
            TrustError: this user is not a driver of the cluster.
        """
        if self._connector is None:
            raise self.problem or no_cluster(self.cluster)
        return AgentClient(self._connector, address, node_id=node_id, node=node, is_lost=is_lost)

    def take(self, found: FoundAgent) -> None:
        """Sort an announced agent: member, candidate or stranger."""
        identity = self.identity
        if found.is_gone:
            # A member may be there all the same: its heartbeat decides.
            self.strangers.pop(found.instance, None)
            self._early = [one for one in self._early if one.instance != found.instance]
        elif identity is None:
            if len(self._early) < MOST_ANNOUNCED:
                self._early.append(found)
        elif found.joining:
            is_new = found.instance not in self._admissions
            registrar = identity.registrar
            if is_new and registrar and registrar.any_invitation(found.joining):
                # If it has expired, the machine is told so: its own clock may be wrong.
                self._admissions[found.instance] = asyncio.create_task(self._admit(found))
        elif found.authority in (None, identity.credentials.authority_id):
            self.on_member(found)
        elif len(self.strangers) < MOST_ANNOUNCED or found.instance in self.strangers:
            # Its name does not matter: its nodes trust another authority.
            self.strangers[found.instance] = found

    async def admit(self, address: str) -> Subject:
        """Admit the machine that waits at an address with one of our invitations.

        Raises:
            NodeError: no machine waits there.
            TrustError: the machine there has none of our invitations.
        """
        registrar = self.identity.registrar if self.identity else None
        invites = registrar.invites() if registrar else ()
        if registrar is None or not invites:
            raise TrustError("there are no open invitations", fix="invite a node: mntrain invite")
        return (await admit(address, registrar, invites)).subject

    async def lets_in(self, address: str) -> bool:
        """Admit a machine that waits at an address that multicast does not reach; ``True`` if it
        did.
        """
        registrar = self.identity.registrar if self.identity else None
        if registrar is None or not registrar.open_invites():
            return False
        try:
            await self.admit(address)
        except MntrainError as error:
            log.info("admission failed at %s: %s", address, error)
            return False
        return True

    async def update(self, nodes: Iterable[NodeView]) -> None:
        """Renew certificates that are due, and exchange revocations with every node."""
        if self._trust_relay is None:
            return
        self._trust_relay.renew(self.now())
        for view in nodes:
            if view.info is not None and view.liveness == "up":
                client = self.client(view.address, view.info.node_id, view.name)
                await self._trust_relay.update(view.info, client)

    async def _admit(self, found: FoundAgent) -> None:
        # It may not listen yet or be too busy; or another process of this user was faster.
        for pause_s in ADMIT_PAUSES_S:
            for address in found.addresses:
                try:
                    subject = await self.admit(address)
                except MntrainError as error:
                    log.info("%s was not admitted at %s: %s", found.name, address, error)
                    if isinstance(error, TrustError):
                        return
                    continue
                if subject.role == "node":
                    self.on_member(found)
                return
            await asyncio.sleep(pause_s)
