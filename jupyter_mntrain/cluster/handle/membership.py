"""Membership of a cluster: its invitations, members and revocations."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.model.errors import no_cluster
from jupyter_mntrain.trust.certificates import Role
from jupyter_mntrain.trust.driver_membership import DriverMembership, known_clusters
from jupyter_mntrain.trust.joining.token import write_token
from jupyter_mntrain.trust.registrar import INVITE_LIFE_S, RegisteredMember


class ClusterMembership:
    """The members of one cluster, as this driver knows them. Safe from any thread.

    Args:
        session: of the driver.
    """

    def __init__(self, session: DriverSession) -> None:
        self._session = session

    @property
    def identity(self) -> DriverMembership | None:
        """This driver's membership; ``None`` before it has joined.

        Raises:
            TrustError: its keys are damaged, or other users can read them.
        """
        desk = self._session.live.desk
        if desk.problem is not None:
            raise desk.problem
        return desk.identity

    @property
    def is_driver(self) -> bool:
        """Whether this user has keys of the cluster. The first invitation creates them."""
        return self._session.live.desk.identity is not None

    @property
    def is_read_only(self) -> bool:
        """Whether this user may only watch."""
        identity = self._session.live.desk.identity
        return identity is not None and identity.is_read_only

    def required(self) -> DriverMembership:
        """This driver's membership.

        Raises:
            TrustError: this user has no keys of the cluster, or they cannot be used.
        """
        if not self.is_driver:
            self._session.loop.run(self._look())  # another process may just have joined
        identity = self.identity
        if identity is None:
            raise no_cluster(self._session.live.cluster, known_clusters())
        return identity

    def invite(
        self,
        role: Role = "node",
        *,
        uses: int = 1,
        expires_in_s: float = INVITE_LIFE_S,
        replaces: str | None = None,
    ) -> str:
        """Make a token with which a node or driver joins. The first one creates the cluster.

        While this process, or another of this user, runs, it admits the machines that wait with
        the token.

        Args:
            uses: number of machines that may join with it.
            replaces: name of the member that the machine replaces; its certificates are revoked
                when it joins.

        Raises:
            SpecError: uses or validity is not positive, or there is no such member.
            TrustError: another driver created the cluster, or other users can read the keys.
        """
        if replaces is not None:
            identity = self.required()
        else:
            identity = self.identity or DriverMembership.make(self._session.live.cluster)
        self._session.loop.run(self._look())
        registrar = identity.authorized()
        token = registrar.invite(role, uses=uses, expires_in_s=expires_in_s, replaces=replaces)
        return write_token(token)

    def members(self) -> Sequence[RegisteredMember]:
        """All members that ever joined, as known to the driver that created the cluster."""
        registrar = self.identity.registrar if self.identity else None
        return registrar.members() if registrar else ()

    def revoke(self, name: str, *, role: Role | None = None) -> RegisteredMember:
        """Revoke a driver's or a node's certificate. Reachable nodes know it when this returns.

        Unreachable nodes learn it from the first driver that reaches them.

        Raises:
            SpecError: no member of this role, or of any, has this name, or it is this driver.
            TrustError: there is no such cluster yet, or another driver created it.
        """
        gone = self.required().authorized().revoke(name, role=role)
        self._session.loop.run(self._session.live.desk.update(self._session.live.nodes))
        return gone

    async def _look(self) -> None:
        self._session.live.desk.look()
